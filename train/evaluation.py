"""How good a policy is on traffic that it has not seen, beside LRU and the bound.

    gap closed = mean over capacities of (hits - LRU's) / (bound's - LRU's)

Where the bound hits no more than LRU there is no gap, and the capacity does not count.

All policies serve all requests; the first ones fill the cache and are not counted.
Intervals draw sessions anew, the same ones for every policy (`perc.bootstrap`).
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from perc.bootstrap import RESAMPLES, Interval, by_session, interval, samples
from perc.compare import resolve, run
from perc.cost import DEFAULT_COST
from perc.types import AnyPolicy, Trace


class Standing(NamedTuple):
    """What one policy reached at K capacities."""

    name: str
    hits: np.ndarray  # i64[K], counted block hits
    misses: np.ndarray  # i64[K], counted blocks that were recomputed
    gap_closed: np.ndarray  # f64[K], share of the gap to the bound, nan = no gap
    mean: float  # of gap_closed where there is a gap, nan = nowhere
    interval: Interval  # of the mean
    draws: np.ndarray  # f64[B], of the mean: paired between policies


def standings(
    trace: Trace,
    policies: Sequence[AnyPolicy],
    sizes: Sequence[int],
    *,
    skip: int = 0,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Standing]:
    """Replays policies, LRU first and the clairvoyant bound last.

    Args:
        trace: the traffic.
        policies: to judge, beside `lru` and `belady`.
        sizes: K capacities in blocks.
        skip: requests that are not counted.
        resamples: B, samples of sessions.
        seed: of those.
        progress: called with the name of each policy before its replay.
    """
    lru, bound = resolve(["lru", "belady"])
    running = [lru, *policies, bound]
    by = []
    for policy in running:
        if progress:
            progress(policy.name)
        hits = run(policy, trace, sizes, cost=DEFAULT_COST)
        by.append(by_session(trace, hits, skip=skip))
    asked = int((trace.stop - trace.start)[skip:].sum())
    totals = np.stack(by).sum(axis=-1)
    closed = _closed(totals)
    gap = totals[-1] > totals[0]
    draws = _drawn(np.stack(by)[:, gap], resamples if gap.any() else 0, seed)
    return [
        Standing(
            policy.name,
            hits=totals[p].astype(np.int64),
            misses=(asked - totals[p]).astype(np.int64),
            gap_closed=closed[p],
            mean=float(closed[p, gap].mean()) if gap.any() else math.nan,
            interval=interval(draws[p]),
            draws=draws[p],
        )
        for p, policy in enumerate(running)
    ]


def _closed(sums: np.ndarray) -> np.ndarray:
    """Shares of the gap f64[P, ...] between the first row and the last."""
    room = np.broadcast_to(sums[-1] - sums[0], sums.shape)
    nothing = np.full(sums.shape, np.nan)
    return np.divide(sums - sums[0], room, out=nothing, where=room > 0)


def _drawn(hits: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The mean share of the gap f64[P, B], from hits f64[P, K, S] by session."""
    found = [np.zeros((len(hits), 0))]
    for times in samples(hits.shape[-1], resamples, seed):
        shares = _closed(hits @ times)
        there = np.isfinite(shares).sum(axis=1)  # capacities with a gap in this sample
        found.append(np.nansum(shares, axis=1) / np.maximum(there, 1))
    return np.concatenate(found, axis=1)
