"""One policy at many capacities, by the cheapest exact way that its order allows.

    the order of LRU           one pass gives every capacity (`perc.curves`)
    any other order by ranks   a larger cache never hits less, so where two capacities
                               hit the same, so do all between: bisect
    FIFO with bypass           lanes (`perc.lanes`)
    the rest                   one replay a capacity

All give what `perc.replay` gives; `tests/test_evaluate.py` compares them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.curves import NEVER_HITS, lru_distances
from perc.lanes import fifo_curve
from perc.levels import LANES
from perc.metrics import Metrics, measure_rows, metrics_of_sums, weights_of_hits
from perc.ranks import lru_ranks, ranks, scores
from perc.replay import replay
from perc.types import Policy, Trace

FEW = 16  # capacities below which lanes do not pay


def evaluate(
    policy: Policy,
    trace: Trace,
    sizes: Sequence[int],
    *,
    warmup_requests: int = 0,
    cost: PrefillCost = DEFAULT_COST,
) -> list[Metrics]:
    """What a policy reaches at each of K capacities.

    Args:
        policy: any policy whose score does not depend on what the cache holds.
        trace: the traffic.
        sizes: K capacities in blocks.
        warmup_requests: the first ones fill the cache and are not counted.
        cost: prices recomputed tokens and the feature `recompute_s`.

    Returns:
        Metrics at each size, in the order of `sizes`.
    """
    order = ranks(trace, scores(policy, trace, cost=cost))
    counting: dict[str, Any] = dict(warmup_requests=warmup_requests, cost=cost)
    if not policy.refresh:
        if policy.bypass and len(sizes) > FEW:
            return _by_lanes(trace, sizes, **counting)
        hits = replay(
            trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh
        ).blocks
        return measure_rows(trace, np.asarray(hits), **counting)
    if np.array_equal(order, lru_ranks(trace)):
        return _by_distance(trace, sizes, **counting)
    return _by_bisection(trace, order, sizes, policy.bypass, **counting)


def _by_distance(trace, sizes, *, warmup_requests, cost) -> list[Metrics]:
    """Sums over the accesses whose stack distance fits."""
    distance = lru_distances(trace)
    counted = (distance != NEVER_HITS) & (trace.request >= warmup_requests)
    at = np.clip(sizes, 0, trace.n_blocks)
    sums = [
        np.cumsum(
            np.bincount(
                distance[counted],
                weights=weight[counted],
                minlength=trace.n_blocks + 1,
            )
        )[at]
        for weight in weights_of_hits(trace, cost)
    ]
    return metrics_of_sums(trace, *sums, warmup_requests=warmup_requests, cost=cost)


def _by_lanes(trace, sizes, *, warmup_requests, cost) -> list[Metrics]:
    ticks_per_s = 10_000_000  # whole numbers: seconds in ticks of 100 ns
    blocks, tokens, seconds = weights_of_hits(trace, cost)
    weights = np.rint([blocks, tokens, seconds * ticks_per_s])
    sums = fifo_curve(trace, sizes, weights=weights, warmup_requests=warmup_requests)
    sums = [sums[0], sums[1], sums[2] / ticks_per_s]
    return metrics_of_sums(trace, *sums, warmup_requests=warmup_requests, cost=cost)


def _by_bisection(
    trace, order, sizes, bypass, *, warmup_requests, cost
) -> list[Metrics]:
    def at(some: Sequence[int]) -> list[Metrics]:
        hits = replay(trace, order, some, bypass=bypass).blocks
        return measure_rows(
            trace, np.asarray(hits), warmup_requests=warmup_requests, cost=cost
        )

    found = bisect_equal(at, sorted(set(sizes)))
    return [found[size] for size in sizes]


def bisect_equal(
    at: Callable[[Sequence[int]], list[Metrics]], sizes: Sequence[int]
) -> dict[int, Metrics]:
    """Evaluates a monotone function only where its value changes.

    Args:
        at: gives equal metrics at two sizes only if it does at all sizes between.
            Called with several sizes at once, which is cheaper than one by one.
        sizes: ascending, each once.
    """
    found: dict[int, Metrics] = {}
    asked = sorted({round(k) for k in np.linspace(0, len(sizes) - 1, LANES)})
    while asked:
        chosen = [sizes[k] for k in asked]
        found.update(zip(chosen, at(chosen), strict=True))
        known = [k for k, size in enumerate(sizes) if size in found]
        asked = []
        for low, high in itertools.pairwise(known):
            if found[sizes[low]] == found[sizes[high]]:
                found.update(dict.fromkeys(sizes[low + 1 : high], found[sizes[low]]))
            elif high - low > 1:
                asked.append((low + high) // 2)
    return found
