"""Policies that price blocks as they idle, laid out for the compiled loop.

    Aged      class and age give the worth; of a class only the oldest and the newest
              block that may leave are looked at, as in `perc.online_aged`
    Rescored  a class is all that the score reads but the time of the use; within one
              the score is taken to have one peak by age, as it has where it only falls

What a policy has counted of the traffic (`perc.reuse`, `Rescored.learn`) it counted at
the recorded arrivals, up to the last request that was admitted; ages run by the
simulated clock, from the admission of a block's last use.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.aged import aged_traffic, replay_at, worth_of
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.features import features
from perc.guard import lru_hits, watch_of
from perc.online_aged import Watch
from perc.ranks import lru_ranks
from perc.reuse import count_reuse, dense_levels
from perc.serving.free import Lines, Scores, Table
from perc.serving.outputs import Named
from perc.shapes import bucket, pad, parents
from perc.types import Aged, AnyPolicy, Features, OnlinePolicy, Rescored, Trace

MOST_CLASSES = 4096  # all are priced when room is needed


class Changing(NamedTuple):
    """An order that changes while blocks idle."""

    lines: Lines
    policy: OnlinePolicy


def can_price(policy: AnyPolicy) -> bool:
    """Whether the simulator can follow this policy's prices."""
    known = isinstance(policy, OnlinePolicy)
    return known and isinstance(policy.rule, Aged | Rescored) and not policy.bypass


def changing_order(
    policy: OnlinePolicy, trace: Trace, *, cost: PrefillCost = DEFAULT_COST
) -> tuple[np.ndarray, Changing]:
    """Numbers the accesses by line, and lays the prices out.

    Args:
        policy: one that `can_price`.
        trace: N accesses of R requests.
        cost: prices the feature `recompute_s`.

    Returns:
        Numbers i32[N] by (class, request, deepest first), in the place of ranks, and
        the rest.

    Raises:
        InputError: if the policy tells too many classes apart, or a worth is not a
            number.
    """
    values = features(trace, policy.uses, cost=cost)
    if isinstance(policy.rule, Aged):
        cls, prices, n_classes = _table(policy, policy.rule, trace, values, cost)
    else:
        cls, prices, n_classes = _scores(policy, trace, values, cost)
    parent = _parents(policy, trace)
    number, lines = line_up(trace, cls, n_classes, prices, parent)
    return number, Changing(lines, policy)


def line_up(
    trace: Trace,
    cls: np.ndarray,
    n_classes: int,
    prices: Table | Scores,
    parent: np.ndarray,
) -> tuple[np.ndarray, Lines]:
    """Numbers accesses of classes i32[N]: i32[N], and the lines of an empty cache."""
    tie = lru_ranks(trace)
    order = np.lexsort((tie, cls))
    number = np.empty(trace.n_accesses, np.int32)
    number[order] = np.arange(trace.n_accesses, dtype=np.int32)
    rows = np.stack([trace.block[order], cls[order], tie[order]], axis=1)
    lines = Lines(
        by_number=jnp.asarray(pad(rows.astype(np.int32), 0)),
        parent=jnp.asarray(parent),
        ends=jnp.full((2, n_classes), -1, jnp.int32),
        prices=prices,
    )
    return number, lines


def watches_of(
    changing: Changing, named: Named, capacities: Sequence[int]
) -> list[Watch | None]:
    """What the policy's guard must know of the caches beside each of the servers.

    Both hold as many blocks as the server, and serve the trace's requests one at a
    time.
    """
    policy, trace = changing.policy, named.trace
    guard = policy.rule.guard if isinstance(policy.rule, Aged) else None
    if guard is None or not trace.n_accesses:
        return [None for _ in capacities]
    bare = replace(policy, rule=replace(policy.rule, guard=None))
    sizes = [min(capacity, trace.n_accesses) for capacity in capacities]
    length = named.prompt_stop - trace.start
    alone = replay_at(trace, bare, sizes, aged_traffic(trace, bare)).blocks
    lru = lru_hits(trace, sizes)
    # Answers' blocks are stored, not looked up.
    return [
        watch_of(guard, np.minimum(a, length), np.minimum(b, length), length, size)
        for a, b, size in zip(lru, np.asarray(alone), sizes, strict=True)
    ]


def _table(policy, rule: Aged, trace: Trace, values: Features, cost: PrefillCost):
    """Classes i32[N], prices, and the number of classes."""
    named = [np.asarray(level) for level in rule.classes(values)]
    classes, above = dense_levels(named)
    _, first = np.unique(classes[-1], return_index=True)
    known = count_reuse(trace, classes, above, named=named[-1][first], cost=cost)
    worth = worth_of(policy, known)
    prices = Table(worth, jnp.asarray(pad(known.epoch, 0)))
    return classes[-1], prices, worth.shape[1]


def _scores(policy, trace: Trace, values: Features, cost: PrefillCost):
    """Classes i32[N], prices, and the number of classes."""
    read = [name for name in policy.uses if name != "time_s"]
    columns = [np.asarray(getattr(values, name)) for name in read]
    flat = [column.reshape(trace.n_accesses, -1) for column in columns]
    rows = np.concatenate([*flat, np.zeros((trace.n_accesses, 1))], axis=1)
    _, first, cls = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) > MOST_CLASSES:
        raise InputError(
            f"policy {policy.name!r} reads {', '.join(read)}, which tell "
            f"{len(first):,} classes of uses apart; perc simulate prices up to "
            f"{MOST_CLASSES:,} at once. Take a policy that reads less, or replay it "
            "with perc compare."
        )
    learn = policy.rule.learn
    learned = learn(policy.params, trace, cost) if learn else ()
    of_class = {  # padded, so that traces share programs
        name: jnp.asarray(pad(column[first], 0, 4))
        for name, column in zip(read, columns, strict=True)
    }
    learned = jax.tree.map(jnp.asarray, learned)
    prices = Scores(policy, Features(**of_class), learned)
    return cls.reshape(-1).astype(np.int32), prices, bucket(len(first), 4)


def _parents(policy: OnlinePolicy, trace: Trace) -> np.ndarray:
    """The block i32[M] that each hangs on; M, none, where a parent may go first."""
    parent = parents(trace)
    if isinstance(policy.rule, Rescored) and not policy.rule.closed:
        return np.full_like(parent, len(parent))
    return parent
