"""The judgement: the chosen parameters on traffic that the search never saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perc.bootstrap import Measure, by_session, interval, resampled_ratios, share_of
from perc.compare import resolve, run
from perc.cost import PrefillCost
from perc.metrics import measure as sum_up
from perc.metrics import ratio
from perc.types import Policy, Trace


@dataclass(frozen=True)
class Row:
    """One contestant at one capacity."""

    contestant: str  # lru, default, tuned or the name of the bound
    capacity_blocks: int
    train: float  # the objective's share over the training part, from an empty cache
    held_out: float  # over the rest, the cache warm from the training part
    gap_closed: float | None  # (held_out - lru) / (bound - lru), None without a gap
    block_hit_ratio: float  # these three over the held-out part
    token_hit_ratio: float
    recompute_s: float


@dataclass(frozen=True)
class Margin:
    """How far the tuned parameters are ahead on the held-out part, in the objective."""

    over: str  # lru or default
    capacity_blocks: int | None  # None: the mean over the capacities
    value: float
    low: float | None  # the paired interval over sessions
    high: float | None


@dataclass(frozen=True)
class Judged:
    """Scores of all contestants, and the margins of the tuned one."""

    rows: list[Row]
    margins: list[Margin]

    def mean_margin(self, over: str) -> Margin:
        """The margin over lru or default as a mean over the capacities."""
        return next(
            margin
            for margin in self.margins
            if margin.over == over and margin.capacity_blocks is None
        )


class _Played(NamedTuple):
    train: np.ndarray  # f64[K]
    held_out: np.ndarray  # f64[K]
    draws: np.ndarray  # f64[K, B], of held_out
    hits: np.ndarray  # i32[K, R]


def judge(
    trace: Trace,
    training: Trace,
    tuned: Policy,
    default: Policy,
    sizes: Sequence[int],
    objective: Measure,
    *,
    cost: PrefillCost,
    resamples: int,
    seed: int,
) -> Judged:
    """Replays the contestants over everything and counts the held-out part.

    Args:
        trace: all of the traffic.
        training: its start, on which `tuned` was chosen.
        tuned: the choice.
        default: the same policy with default parameters.
        sizes: capacities in blocks.
        objective: what was maximised.
        cost: prices recomputed tokens.
        resamples: samples of sessions for the intervals.
        seed: of those samples.
    """
    lru, bound = resolve(["lru", "belady_bypass" if tuned.bypass else "belady"])
    contestants = {"lru": lru, "default": default, "tuned": tuned, bound.name: bound}
    skip = training.n_requests

    def play(policy: Policy) -> _Played:
        own, hits = (run(policy, t, sizes, cost=cost) for t in (training, trace))
        part = by_session(trace, objective.part(trace, hits, cost), skip=skip)
        whole = by_session(trace, objective.whole(trace, cost), skip=skip)
        return _Played(
            share_of(
                objective.part(training, own, cost), objective.whole(training, cost)
            ),
            share_of(part, whole),
            resampled_ratios(part, whole, resamples=resamples, seed=seed),
            hits,
        )

    played = {name: play(policy) for name, policy in contestants.items()}
    low, high = played["lru"].held_out, played[bound.name].held_out

    def row(name: str, k: int) -> Row:
        own = played[name]
        counted = sum_up(trace, own.hits[k], warmup_requests=skip, cost=cost)
        gap = float(high[k] - low[k])
        return Row(
            contestant=name,
            capacity_blocks=sizes[k],
            train=float(own.train[k]),
            held_out=float(own.held_out[k]),
            gap_closed=ratio(float(own.held_out[k] - low[k]), gap) if gap > 0 else None,
            block_hit_ratio=counted.block_hit_ratio,
            token_hit_ratio=counted.token_hit_ratio,
            recompute_s=counted.recompute_s,
        )

    return Judged(
        rows=[row(name, k) for k in range(len(sizes)) for name in contestants],
        margins=[
            margin
            for over in ("default", "lru")
            for margin in _margins(over, played["tuned"], played[over], sizes)
        ],
    )


def _margins(
    over: str, tuned: _Played, other: _Played, sizes: Sequence[int]
) -> list[Margin]:
    value = tuned.held_out - other.held_out
    draws = tuned.draws - other.draws
    return [Margin(over, None, float(value.mean()), *interval(draws.mean(axis=0)))] + [
        Margin(over, size, float(value[k]), *interval(draws[k]))
        for k, size in enumerate(sizes)
    ]
