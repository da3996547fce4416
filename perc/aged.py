"""Replays policies whose worth follows from class and age, at several capacities."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.features import features
from perc.guard import lru_hits, watch_of
from perc.online_aged import one_peak, replay_aged, replay_guarded
from perc.reuse import Reuse, count_reuse, dense_levels
from perc.segments import Segments, cut
from perc.shapes import bucket, pad
from perc.types import Aged, Hits, OnlinePolicy, Trace


class AgedTraffic(NamedTuple):
    """A trace as an `Aged` rule sees it, whatever the policy's parameters."""

    segments: Segments
    reuse: Reuse
    n_blocks: int  # M, padded


def aged_traffic(
    trace: Trace, policy: OnlinePolicy, *, cost: PrefillCost = DEFAULT_COST
) -> AgedTraffic:
    """Classes, segments and counts of a trace; policies of one rule share them."""
    rule = _rule_of(policy)
    values = features(trace, policy.uses, cost=cost)
    named = [np.asarray(level) for level in rule.classes(values)]
    classes, parents = dense_levels(named)
    _, first = np.unique(classes[-1], return_index=True)
    return AgedTraffic(
        segments=jax.tree.map(jnp.asarray, cut(trace, classes[-1])),
        reuse=count_reuse(trace, classes, parents, named=named[-1][first], cost=cost),
        n_blocks=bucket(trace.n_blocks),
    )


def replay_at(
    trace: Trace,
    policy: OnlinePolicy,
    capacities: Sequence[int],
    traffic: AgedTraffic,
) -> Hits:
    """Counts what a cache hits, request by request.

    Args:
        trace: N > 0 accesses of R requests.
        policy: its rule is `Aged`.
        capacities: K sizes in blocks.
        traffic: of this trace and rule.

    Returns:
        Hits: blocks i32[K, R] and evictions i32[K].

    Raises:
        InputError: if a worth is not a number.
    """
    found = replay_rows(trace, policy, capacities, traffic)
    return Hits(found.blocks, found.evictions)


class Rows(NamedTuple):
    """A replay at K capacities, and whom it followed."""

    blocks: np.ndarray  # i32[K, R], leading resident blocks
    evictions: np.ndarray  # i64[K]
    trusted: np.ndarray  # bool[K, R], served in the policy's order


def replay_rows(
    trace: Trace,
    policy: OnlinePolicy,
    capacities: Sequence[int],
    traffic: AgedTraffic,
) -> Rows:
    """Like `replay_at`, and says which requests were served in the policy's order.

    Without a guard all are.
    """
    worth = worth_of(policy, traffic.reuse)
    epoch = jnp.asarray(pad(traffic.reuse.epoch, 0))
    sizes = [min(int(capacity), trace.n_accesses) for capacity in capacities]
    guard, n = _rule_of(policy).guard, trace.n_requests
    lru = lru_hits(trace, sizes) if guard else np.zeros((len(sizes), n), np.int32)
    found = []
    for size, shadow in zip(sizes, lru, strict=True):
        cache = (worth, epoch, traffic.segments, np.int32(size), traffic.n_blocks)
        hits, gone = replay_aged(*cache)
        trusted = np.ones(n, bool)
        if guard:
            alone, length = np.asarray(hits)[:n], trace.stop - trace.start
            watch = watch_of(guard, shadow, alone, length, size)
            hits, gone, trusted = replay_guarded(*cache, watch)
        found.append((np.asarray(hits)[:n], int(gone), np.asarray(trusted)[:n]))
    return Rows(*(np.stack(column) for column in zip(*found, strict=True)))


def worth_of(policy: OnlinePolicy, reuse: Reuse) -> jax.Array:
    """What the policy pays, f32[E, K, A], with one peak by age.

    Raises:
        InputError: if some of it is not a number.
    """
    worth = jnp.asarray(_rule_of(policy).worth(policy.params, reuse), jnp.float32)
    if bool(jnp.isnan(worth).any()):
        raise InputError(
            f"policy {policy.name}: what a block is worth is not a number. Are its "
            "parameters too large?"
        )
    return one_peak(worth)


def _rule_of(policy: OnlinePolicy) -> Aged:
    assert isinstance(policy.rule, Aged)
    if policy.bypass:
        raise InputError(
            f"policy {policy.name}: an Aged rule stores what runs; it cannot bypass."
        )
    return policy.rule
