"""Replays a trace under rules, for any policy that gives every access a rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.retention.engine import Found, replay_columns
from perc.retention.rules import Rules, blocks_of
from perc.retention.schedule import Schedule, schedule
from perc.types import AnyPolicy, Hits, OnlinePolicy, Policy, Trace

NO_QUOTA = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Ruled:
    """What a cache did under rules, at each of K capacities."""

    hits: Hits  # blocks i32[K, R], evictions i32[K], as `perc.replay` gives them
    rules: Rules
    capacities: tuple[int, ...]
    plan: Schedule | None  # None for a trace without blocks
    found: tuple[Found, ...]  # one a capacity, without padding


def replay_rules(
    trace: Trace,
    policy: AnyPolicy,
    rules: Rules,
    capacities: Sequence[int],
    *,
    cost: PrefillCost = DEFAULT_COST,
) -> Ruled:
    """Counts what a cache hits whose victims rules choose before the policy does.

    Where no rule applies this is `perc.replay`. docs/retention.md has the order of
    victims, and what happens when directives ask for more than the cache holds.

    Args:
        trace: N accesses of R requests.
        policy: orders the blocks that the rules leave equal.
        rules: from `perc.load_rules` or `perc.parse_rules`.
        capacities: K sizes in blocks, 0 or more.
        cost: prices the feature `recompute_s`.

    Returns:
        Hits, and what became of every block, for `perc.retention.report`.

    Raises:
        InputError: for a policy whose order depends on the cache.
        ValueError: for a negative capacity.

    Example:
        >>> import perc
        >>> trace = perc.make("agent", requests=50)
        >>> rules = perc.parse_rules(
        ...     {"pin_budget": 0.5, "rules": [{"tokens": {"to": 10_000}, "pin": True}]}
        ... )
        >>> lru = perc.policies.registry["lru"]()
        >>> perc.replay_rules(trace, lru, rules, [300, 500]).hits.blocks.shape
        (2, 50)
    """
    policy = ranked(policy)
    if any(capacity < 0 for capacity in capacities):
        raise ValueError(f"negative capacity in {list(capacities)}; give 0 or more")
    shape = (len(capacities), trace.n_requests)
    hits, evictions = np.zeros(shape, np.int32), np.zeros(len(capacities), np.int32)
    sizes = tuple(int(capacity) for capacity in capacities)
    if not trace.n_accesses:
        return Ruled(Hits(hits, evictions), rules, sizes, None, ())
    plan = schedule(trace, rules, policy, cost=cost)
    found = []
    for k, size in enumerate(sizes):
        one = _replay_one(plan, policy, size)
        hits[k], evictions[k] = one.hits, one.evictions
        found.append(one)
    return Ruled(Hits(hits, evictions), rules, sizes, plan, tuple(found))


def ranked(policy: AnyPolicy) -> Policy:
    """The policy, if rules can stand above its order.

    Raises:
        InputError: if its order depends on what the cache did.
    """
    if isinstance(policy, OnlinePolicy):
        raise InputError(
            f"policy {policy.name!r} looks at the cache to choose victims, so rules "
            "cannot choose before it. Take one that scores each use: lru, "
            "fifo, lfu, perc_decay, priority, belady, or a Policy of yours."
        )
    return policy


def _replay_one(plan: Schedule, policy: Policy, capacity: int) -> Found:
    rules, n_accesses = plan.rules, plan.trace.n_accesses
    quota = [blocks_of(amount, capacity) for amount in plan.quotas]
    found = replay_columns(
        plan.columns,
        np.int32(min(capacity, n_accesses)),
        np.int32(min(blocks_of(rules.pin_budget, capacity), n_accesses)),
        np.array([NO_QUOTA, *(min(q, n_accesses) for q in quota)], np.int32),
        bypass=policy.bypass,
        refresh=policy.refresh,
        closed=rules.merge == "override",
    )
    found = jax.tree.map(np.asarray, found)
    n = plan.trace.n_requests
    return found._replace(
        hits=found.hits[:n],
        pinned=found.pinned[:n],
        refused=found.refused[:n],
        charged=found.charged[:n],
        left=found.left[: len(plan.access)],
    )
