"""A policy over a grid of capacities: what each size hits, and what more would buy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perc.bootstrap import Measure, interval, resampled_ratios, share_of
from perc.compare import run
from perc.plan_needs import (
    SLACK,
    Found,
    Need,
    Replay,
    Setting,
    crossings,
    need,
    quantile,
    search,
    ttft_s,
)
from perc.ranks import ranks, scores
from perc.replay import replay
from perc.types import Policy

BLOCK, TOKEN = Measure("block_hit_ratio"), Measure("token_hit_ratio")
EXACT = "bisection on exact replays"
FROM_GRID = "capacity of the grid from which on the target holds; more may hit less"


@dataclass(frozen=True)
class Point:
    """One policy at one capacity, over the counted requests; low and high: interval."""

    policy: str
    capacity_blocks: int
    capacity_gib: float
    block_hit_ratio: float
    block_hit_ratio_low: float | None
    block_hit_ratio_high: float | None
    token_hit_ratio: float
    token_hit_ratio_low: float | None
    token_hit_ratio_high: float | None
    over_lru: float  # in block hit ratio
    over_lru_low: float | None
    over_lru_high: float | None
    recompute_s: float
    ttft_mean_s: float  # prefill of what is not cached, no queue
    ttft_p50_s: float
    ttft_p95_s: float
    # The mean over the step to the next capacity of the grid; None at the last.
    saved_s_per_gib_hour: float | None
    hit_ratio_per_gib: float | None


@dataclass(frozen=True)
class Knee:
    """Where a policy's curve bends: beyond it, each doubling of the cache buys less."""

    policy: str
    capacity_blocks: int
    capacity_gib: float
    block_hit_ratio: float


class Curve(NamedTuple):
    """One policy over the grid."""

    policy: str
    at: Setting
    hits: np.ndarray  # i32[K, R]
    block: np.ndarray  # f64[K]
    token: np.ndarray  # f64[K]
    block_draws: np.ndarray  # f64[K, B]
    token_draws: np.ndarray  # f64[K, B]
    found: list[Found]  # one a goal
    method: str  # how they were found


def curve_of(policy: Policy, at: Setting) -> Curve:
    """Replays a policy over the grid, and where the search for a target leads."""
    replay_at = replayer(policy, at)
    sizes = sorted({0, *at.grid})
    hits = dict(zip(sizes, replay_at(sizes), strict=True))
    monotone = larger_never_hits_less(policy)
    bisect = replay_at if monotone else None
    chosen = [search(goal, hits, bisect, at) for goal in at.goals]
    sizes = sorted(hits)
    every = np.stack([hits[size] for size in sizes])
    draws, ratios = {}, {}
    for measure in {BLOCK, TOKEN, *(goal.measure for goal in at.goals)}:
        part, whole = at.sums(measure, every)
        ratios[measure] = share_of(part, whole)
        draws[measure] = resampled_ratios(
            part, whole, resamples=at.resamples, seed=at.seed
        )
    found = [
        Found(
            size,
            None if size is None else at.value(goal, hits[size]),
            at.value(goal, hits[at.grid[-1]]),
            crossings(sizes, draws[goal.measure], goal.share),
        )
        for goal, size in zip(at.goals, chosen, strict=True)
    ]
    grid = np.searchsorted(sizes, at.grid)
    return Curve(
        policy.name,
        at,
        every[grid],
        ratios[BLOCK][grid],
        ratios[TOKEN][grid],
        draws[BLOCK][grid],
        draws[TOKEN][grid],
        found,
        EXACT if monotone else FROM_GRID,
    )


def needs(curve: Curve, lru: Curve) -> list[Need]:
    """What the policy needs for each goal."""
    return [
        need(curve.policy, goal, own, base, curve.at, curve.method)
        for goal, own, base in zip(curve.at.goals, curve.found, lru.found, strict=True)
    ]


def points(curve: Curve, lru: Curve) -> Iterator[Point]:
    """A point for each capacity: hits, waits, and what the next GiB adds."""
    at = curve.at
    wait = ttft_s(at.trace, curve.hits, at.cost)[:, at.skip :]
    lost = wait.sum(axis=-1)  # one request at a time, waiting is recomputing
    hours = float(at.trace.arrival_s[-1] - at.trace.arrival_s[at.skip]) / 3600
    for k, size in enumerate(at.grid):
        more = at.gib * (at.grid[k + 1] - size) if k + 1 < len(at.grid) else 0.0
        block, token = interval(curve.block_draws[k]), interval(curve.token_draws[k])
        over = interval(curve.block_draws[k] - lru.block_draws[k])
        yield Point(
            curve.policy,
            size,
            size * at.gib,
            float(curve.block[k]),
            *block,
            float(curve.token[k]),
            *token,
            float(curve.block[k] - lru.block[k]),
            *over,
            recompute_s=float(lost[k]),
            ttft_mean_s=float(wait[k].mean()),
            ttft_p50_s=float(quantile(wait[k], 0.5)),
            ttft_p95_s=float(quantile(wait[k], 0.95)),
            saved_s_per_gib_hour=float(lost[k] - lost[k + 1]) / (more * hours)
            if more and hours
            else None,
            hit_ratio_per_gib=float(curve.block[k + 1] - curve.block[k]) / more
            if more
            else None,
        )


def knees(curve: Curve) -> Iterator[Knee]:
    """The knee of the curve, if it has one."""
    at = curve.at
    k = knee(at.grid, curve.block.tolist())
    if k is not None:
        size = at.grid[k]
        yield Knee(curve.policy, size, size * at.gib, float(curve.block[k]))


def knee(capacities: Sequence[int], hit_ratios: Sequence[float]) -> int | None:
    """Index of the capacity that lies farthest above the chord of the curve.

    With x the logarithm of the capacity and y the hit ratio, both scaled to 0..1 over
    the curve, it is the largest y - x.

    Returns:
        None where no point lies above the chord: hits never slow down.

    References:
        Satopaa et al. 2011, "Finding a Kneedle in a Haystack", section III, without
        its smoothing: the curve is exact.
    """
    sizes = np.asarray(capacities, np.float64)
    kept = np.flatnonzero(sizes > 0)  # a logarithm has no zero
    x, y = np.log(sizes[kept]), np.asarray(hit_ratios, np.float64)[kept]
    if len(kept) < 3 or y[-1] <= y[0]:
        return None
    height = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    best = int(np.argmax(height))
    return int(kept[best]) if height[best] > SLACK else None


def replayer(policy: Policy, at: Setting) -> Replay:
    """Replays a policy; an order that ignores the cache is sorted once for all."""
    if not isinstance(policy, Policy):
        return lambda sizes: run(policy, at.trace, sizes, cost=at.cost)
    order = ranks(at.trace, scores(policy, at.trace, cost=at.cost))

    def replay_at(sizes: Sequence[int]) -> np.ndarray:
        hits = replay(
            at.trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh
        )
        return np.asarray(hits.blocks)

    return replay_at


def larger_never_hits_less(policy: Policy) -> bool:
    """Whether the policy is a stack algorithm (Mattson et al. 1970).

    It is where the order of blocks depends on the traffic alone. An insertion kept for
    life (`refresh=False`) depends on what the cache held, and so does an online score.
    """
    return isinstance(policy, Policy) and policy.refresh
