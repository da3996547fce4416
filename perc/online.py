"""Replays policies whose order depends on what the cache did, exactly.

Where a score depends on the trace alone, `perc.replay` sorts it once and is faster.
In-cache counts, GreedyDual's clock, queues, ghosts and admission depend on the cache
itself; here they are computed inside the loop, by one of these engines:

    Scored  `perc/online_scored.py`. The blocks of a request are looked up, scored and
            stored together, as `perc.step` does; they are never its victims unless
            nothing else is left, which takes the tail, or the policy may bypass.
    Listed  `perc/online_listed.py`. A request is looked up, then its blocks are
            accessed one by one, deepest first. One that is not there makes room for
            itself first, so another block of the same request may be the victim.
            (`random` goes root first and spares the request.)
    Rescored  `perc/online_rescored.py`. As Scored, but the order changes while blocks
            idle: all resident blocks are scored anew when a request needs room.
    Aged    `perc/online_aged.py`. Likewise, but blocks of a class and an age are worth
            the same, so that runs of blocks are priced instead of single ones.

A hit is a leading run of blocks that were resident when the request came. Every block
is accessed once a request. Where a parent may leave before its child, the child stays
as a block that no prompt can reach. It cannot under lfu_in_cache, lru_k, gds and gdsf
with equal costs, nor under slru_threshold, whose keys never rise with depth; nor under
`closed` scored rules and `random`. It can under slru, arc, s3fifo, sieve and tinylfu.

On a CPU, JAX 0.10 compiles a loop as one piece only while it is small, which the loops
of listed rules are not: they take 20 times as long as with JAX 0.12 or with

    XLA_FLAGS=--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=16384
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc.aged import AgedTraffic, aged_traffic, replay_at
from perc.cost import DEFAULT_COST, PrefillCost
from perc.features import features
from perc.online_listed import replay_listed
from perc.online_rescored import replay_rescored, slots_for
from perc.online_scored import Traffic, replay_scored
from perc.shapes import bucket, pad, parents
from perc.types import Aged, Hits, Listed, OnlinePolicy, Rescored, Trace

# The last layout of a trace, by rule and features, for configurations of one policy.
Layouts = dict[tuple[Any, tuple[str, ...]], Traffic | AgedTraffic]


def replay_online(
    trace: Trace,
    policy: OnlinePolicy,
    capacities: Sequence[int],
    *,
    cost: PrefillCost = DEFAULT_COST,
    shared: Layouts | None = None,
) -> Hits:
    """Counts what a cache under an online policy hits, request by request.

    Args:
        trace: N accesses of R requests.
        policy: its rule says which engine runs.
        capacities: K sizes in blocks, 0 or more.
        cost: prices the feature `recompute_s`.
        shared: layouts of this trace at this cost, if others replay it as well.

    Returns:
        Hits: blocks i32[K, R] and evictions i32[K]. A block that is not stored counts
        as evicted.

    Raises:
        ValueError: for a negative capacity, a score that is NaN, or a victim that is
            not resident.
    """
    if any(capacity < 0 for capacity in capacities):
        raise ValueError(f"negative capacity in {list(capacities)}; give 0 or more")
    shape = (len(capacities), trace.n_requests)
    hits, evictions = np.zeros(shape, np.int32), np.zeros(len(capacities), np.int32)
    if not trace.n_accesses:
        return Hits(hits, evictions)
    traffic = _laid_out(trace, policy, cost, {} if shared is None else shared)
    if isinstance(traffic, AgedTraffic):
        return replay_at(trace, policy, capacities, traffic)
    for k, capacity in enumerate(capacities):
        leading, evictions[k] = replay_traffic(policy, traffic, int(capacity))
        hits[k] = leading[: trace.n_requests]
    return Hits(hits, evictions)


def _laid_out(
    trace: Trace, policy: OnlinePolicy, cost: PrefillCost, shared: Layouts
) -> Traffic | AgedTraffic:
    """The trace as the rule wants it; one layout is kept, so memory stays flat."""
    if isinstance(policy.rule, Rescored) and policy.rule.learn:
        return online_traffic(trace, policy, cost=cost)  # learns by its parameters
    key = policy.rule, policy.uses
    if key not in shared:
        shared.clear()
        make = aged_traffic if isinstance(policy.rule, Aged) else online_traffic
        shared[key] = make(trace, policy, cost=cost)
    return shared[key]


def replay_traffic(
    policy: OnlinePolicy, traffic: Traffic, capacity: int
) -> tuple[np.ndarray, int]:
    """One configuration: leading resident blocks, padded, and evictions.

    Raises:
        ValueError: for a score that is NaN, or a victim that is not resident.
    """
    size = np.int32(min(capacity, np.iinfo(np.int32).max))
    if isinstance(policy.rule, Rescored):
        longest = int((traffic.stop - traffic.start).max())
        n_slots = slots_for(int(size), len(traffic.parent), longest)
        hits, evictions, bad = replay_rescored(policy, traffic, size, n_slots)
        wrong = "of its scores are NaN"
    elif isinstance(policy.rule, Listed):
        if size == 0:  # its functions may count on room for one block
            accesses = int((traffic.stop - traffic.start).sum())
            return np.zeros(len(traffic.start), np.int32), accesses
        hits, evictions, bad = replay_listed(policy, traffic, size)
        wrong = "of its victims were not resident"
    else:
        hits, evictions, bad = replay_scored(policy, traffic, size)
        wrong = "of its scores are NaN"
    if bad:
        raise ValueError(f"policy {policy.name}: {bad} {wrong}")
    return np.asarray(hits), int(evictions)


def online_traffic(
    trace: Trace, policy: OnlinePolicy, *, cost: PrefillCost = DEFAULT_COST
) -> Traffic:
    """Lays a trace out for the engines, padded so that programs are shared."""
    mirror = (trace.start + trace.stop - 1)[trace.request] - np.arange(trace.n_accesses)
    before = np.full(trace.n_accesses, bucket(trace.n_accesses), np.int32)
    again = np.flatnonzero(trace.prev >= 0)
    before[mirror[again]] = mirror[trace.prev[again]]
    values = features(trace, policy.uses, cost=cost)
    learn = policy.rule.learn if isinstance(policy.rule, Rescored) else None
    learned = learn(policy.params, trace, cost) if learn else ()

    def lay_out(column: np.ndarray) -> jax.Array:
        return jnp.asarray(pad(column, 0))

    return Traffic(
        block=lay_out(trace.block),
        leaving=lay_out(trace.block[mirror]),
        parent=lay_out(parents(trace)),
        start=lay_out(trace.start),
        stop=lay_out(trace.stop),
        features=jax.tree.map(lambda column: jnp.asarray(pad(column, 1)), values),
        before=lay_out(before),
        time_s=lay_out(trace.arrival_s.astype(np.float32)),
        learned=jax.tree.map(jnp.asarray, learned),
    )
