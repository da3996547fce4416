"""What the directives did with the cache: what they held, and where they broke.

Everything is read from the engine's record of when each block left, in float64.
"""

from dataclasses import dataclass

import numpy as np

from perc.retention.engine import ABSENT, STAYS, Found
from perc.retention.replay import Ruled
from perc.retention.rules import DEFAULT_PRIORITY, blocks_of
from perc.retention.schedule import Schedule


@dataclass(frozen=True)
class Upkeep:
    """What one rule held and what it was refused, over the counted requests.

    A block counts at every moment for one directive: its pin, or else its deadline, or
    else its priority above the default; and there for one rule, whose claim it is.
    """

    rule: str
    pinned_blocks: int  # at the end
    pins_refused: int  # times that a block was to be pinned and was not
    ttl_released_early: int  # blocks evicted before their deadline
    pin_block_s: float
    ttl_block_s: float
    priority_block_s: float


@dataclass(frozen=True)
class QuotaUse:
    """How a tenant kept within its quota, over the counted requests.

    The cache takes blocks of a tenant over its quota first, but only when it needs
    room, so a quota may be exceeded in a cache that is not full.
    """

    tenant: str
    quota_blocks: int
    peak_blocks: int  # after a request of the tenant
    requests_over: int  # of the tenant, after which it was over its quota


TRACE_PRIORITY = "(trace's priorities)"


def upkeep(ruled: Ruled, k: int, skip: int) -> list[Upkeep]:
    """What each rule did at capacity k, and the trace's priorities if it has any.

    Args:
        ruled: from `perc.replay_rules`.
        k: index of the capacity.
        skip: requests before this one are not counted.
    """
    names = [rule.name for rule in ruled.rules.rules]
    if ruled.plan is None:
        return [Upkeep(name, 0, 0, 0, 0.0, 0.0, 0.0) for name in names]
    plan, found = ruled.plan, ruled.found[k]
    trace, claims = plan.trace, plan.claims
    if ruled.rules.trace_priority and trace.priority.any():
        names.append(TRACE_PRIORITY)
    seconds = _residence_s(plan, found, skip)
    block = trace.block[plan.access]
    pin_access = _pinned_by(plan, found)
    pinned = plan.access >= pin_access[block]
    deadline = claims.deadline_s[plan.access] > plan.time_s
    priority = claims.priority_at(plan.access, plan.time_s) > DEFAULT_PRIORITY
    pin_rule = np.append(claims.pin_rule, -1)
    by_pin = pin_rule[pin_access[block]]
    by_deadline = claims.deadline_rule[plan.access]
    by_priority = claims.priority_rule_at(plan.access, plan.time_s)
    early = np.asarray(found.left >= skip) & (found.left < STAYS) & deadline
    refused = (
        (trace.depth >= found.pinned[trace.request, 1])
        & (trace.depth < claims.pins[trace.request])
        & (trace.request >= skip)
    )

    def total(rule: np.ndarray, where: np.ndarray, weight=None) -> np.ndarray:
        weight = None if weight is None else weight[where]
        return np.bincount(rule[where], weight, minlength=len(names))

    columns = zip(
        total(pin_rule[pin_access], pin_access < trace.n_accesses),
        total(claims.pin_rule, refused),
        total(by_deadline, early),
        total(by_pin, pinned, seconds),
        total(by_deadline, deadline & ~pinned, seconds),
        total(by_priority, priority & ~deadline & ~pinned, seconds),
        strict=True,
    )
    return [
        Upkeep(name, *map(int, row[:3]), *map(float, row[3:]))
        for name, row in zip(names, columns, strict=True)
    ]


def _residence_s(plan: Schedule, found: Found, skip: int) -> np.ndarray:
    """Seconds f64[S] that a block was in the cache under each setting.

    From the arrival of the first counted request to that of the last.
    """
    arrival, block = plan.trace.arrival_s, plan.trace.block[plan.access]
    since = arrival[skip] if skip < len(arrival) else np.inf
    order = np.lexsort((plan.time_s, plan.access, block))
    end = np.full(len(block), arrival[-1])
    same = block[order[1:]] == block[order[:-1]]
    end[order[:-1][same]] = plan.time_s[order[1:][same]]
    left = (found.left >= 0) & (found.left < STAYS)
    end[left] = arrival[found.left[left]]
    seconds = np.maximum(end - np.maximum(plan.time_s, since), 0)
    return np.where(found.left == ABSENT, 0, seconds)


def _pinned_by(plan: Schedule, found: Found) -> np.ndarray:
    """The access i64[M] that pinned each block, N = none."""
    trace = plan.trace
    low, high = found.pinned[trace.request].T
    (at,) = np.nonzero((low <= trace.depth) & (trace.depth < high))
    by = np.full(trace.n_blocks, trace.n_accesses)
    by[trace.block[at]] = at
    return by


def quota_use(ruled: Ruled, k: int, skip: int) -> list[QuotaUse]:
    """How each tenant that has a quota kept it at capacity k; see `upkeep`."""
    uses = []
    for number, one in enumerate(ruled.rules.tenants, 1):
        if one.quota is not None:
            quota = blocks_of(one.quota, ruled.capacities[k])
            charged = np.zeros(0, np.int32)
            if ruled.plan is not None:
                mine = ruled.plan.tenant == number
                charged = ruled.found[k].charged[skip:][mine[skip:]]
            uses.append(
                QuotaUse(
                    one.name,
                    quota,
                    int(charged.max(initial=0)),
                    int(np.count_nonzero(charged > quota)),
                )
            )
    return uses
