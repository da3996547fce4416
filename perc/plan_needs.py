"""The capacity that reaches a target, and how sure it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perc.bootstrap import Interval, Measure, by_session, interval, share_of
from perc.cost import PrefillCost
from perc.metrics import tokens_of_hits
from perc.types import Trace

SLACK = 1e-12  # of a target, for sums of floats that should be equal
Replay = Callable[[Sequence[int]], np.ndarray]  # sizes [K] to hits i32[K, R]


@dataclass(frozen=True)
class Need:
    """What one policy needs for one target."""

    policy: str
    goal: str  # block_hit_ratio, token_hit_ratio, share_of_ideal or ttft_p95_s
    target: float  # a ratio, or seconds
    capacity_blocks: int | None  # None: no cache of any size reaches the target
    capacity_gib: float | None
    low_blocks: int | None  # the interval; None: not reached at this end of it
    high_blocks: int | None
    of_lru: float | None  # this capacity / that of lru; None where either is none
    of_lru_low: float | None  # None too where some sample of sessions has none
    of_lru_high: float | None
    reached: float | None  # the goal at this capacity
    best: float  # the goal with a cache that holds everything
    method: str  # how the capacity was found


class Goal(NamedTuple):
    """A target as the least share of a measure."""

    name: str
    target: float
    measure: Measure
    share: float


class Setting(NamedTuple):
    """What is the same for every policy."""

    trace: Trace
    skip: int  # warm-up requests
    cost: PrefillCost
    grid: list[int]  # blocks, ascending, the last is the working set
    goals: list[Goal]
    gib: float  # of a block
    resamples: int
    seed: int

    def sums(self, measure: Measure, hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parts f64[..., S] and wholes f64[S] of the counted requests, by session."""
        part = measure.part(self.trace, hits, self.cost)
        whole = measure.whole(self.trace, self.cost)
        return (
            by_session(self.trace, part, skip=self.skip),
            by_session(self.trace, whole, skip=self.skip),
        )

    def share(self, measure: Measure, hits: np.ndarray) -> float:
        """The measure that hits i32[R] reach over the counted requests."""
        part = measure.part(self.trace, hits, self.cost)[self.skip :]
        whole = measure.whole(self.trace, self.cost)[self.skip :]
        return float(share_of(part, whole))

    def value(self, goal: Goal, hits: np.ndarray) -> float:
        """What hits i32[R] reach, in the unit of the goal's target."""
        if goal.measure.name != "within_budget":
            return self.share(goal.measure, hits)
        waits = ttft_s(self.trace, hits, self.cost)[self.skip :]
        return quantile(waits, goal.share)


class Found(NamedTuple):
    """A policy's capacity for a goal."""

    size: int | None
    reached: float | None
    best: float
    draws: np.ndarray  # f64[B], the capacity in each sample of sessions, inf = none


def search(
    goal: Goal, hits: dict[int, np.ndarray], replay_at: Replay | None, at: Setting
) -> int | None:
    """The smallest known size from which on the target holds; None if none does.

    Args:
        goal: the target.
        hits: i32[R] by size; sizes that are replayed on the way join it.
        replay_at: where a larger cache never hits less, to bisect the last gap; None
            elsewhere.
        at: the trace and its counted requests.
    """

    def met(size: int) -> bool:
        return at.share(goal.measure, hits[size]) >= goal.share * (1 - SLACK)

    sizes = sorted(hits)
    missed = [k for k, size in enumerate(sizes) if not met(size)]
    if not missed:
        return sizes[0]
    if missed[-1] == len(sizes) - 1:
        return None
    low, high = sizes[missed[-1]], sizes[missed[-1] + 1]
    while replay_at and high - low > 1:
        middle = (low + high) // 2
        hits[middle] = replay_at([middle])[0]
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def crossings(sizes: Sequence[int], draws: np.ndarray, share: float) -> np.ndarray:
    """Capacity f64[B] from which on each draw f64[K, B] holds the share.

    Linear between the K > 1 sizes; inf where the largest does not hold it.
    """
    missed = draws < share * (1 - SLACK)
    n, column = len(sizes), np.arange(draws.shape[1])
    last = np.where(missed.any(axis=0), n - 1 - np.argmax(missed[::-1], axis=0), -1)
    low = np.clip(last, 0, n - 2)
    below, above = draws[low, column], draws[low + 1, column]
    step = np.divide(
        share - below, above - below, out=np.ones_like(above), where=above > below
    )
    x = np.asarray(sizes, np.float64)
    found = x[low] + np.clip(step, 0, 1) * (x[low + 1] - x[low])
    return np.where(last < 0, x[0], np.where(last == n - 1, np.inf, found))


def need(
    policy: str, goal: Goal, own: Found, lru: Found, at: Setting, method: str
) -> Need:
    """Puts a capacity in a person's units, beside that of LRU."""
    low, high = (
        None if end is None or np.isinf(end) else int(np.ceil(end))
        for end in interval(own.draws)
    )
    of_lru, ends = _relative(own, lru)
    return Need(
        policy=policy,
        goal=goal.name,
        target=goal.target,
        capacity_blocks=own.size,
        capacity_gib=None if own.size is None else own.size * at.gib,
        low_blocks=low,
        high_blocks=high,
        of_lru=of_lru,
        of_lru_low=ends.low,
        of_lru_high=ends.high,
        reached=own.reached,
        best=own.best,
        method=method,
    )


def _relative(own: Found, lru: Found) -> tuple[float | None, Interval]:
    """Capacity as a share of LRU's, with its paired interval."""
    if own.size is None or not lru.size:
        return None, Interval(None, None)
    point = own.size / lru.size
    finite = np.isfinite(own.draws) & np.isfinite(lru.draws)
    if not finite.all() or not lru.draws.all():
        return point, Interval(None, None)
    return point, interval(own.draws / lru.draws)


def ttft_s(trace: Trace, hit_blocks: np.ndarray, cost: PrefillCost) -> np.ndarray:
    """Seconds f64[..., R] to prefill what hits i32[..., R] leave, without a queue."""
    return cost.recompute_s(trace.input_tokens, tokens_of_hits(trace, hit_blocks))


def quantile(values: np.ndarray, share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    Without interpolation, so that "the quantile keeps the budget" and "the share of
    requests within the budget" are one statement.
    """
    place = max(int(np.ceil(share * len(values) * (1 - SLACK))), 1) - 1
    return float(np.partition(values, place)[place])
