"""Hit ratios of groups of requests, each with its interval and its gain over LRU.

A group joins requests of one kind, one turn, one priority, or sessions of one length.
Intervals are those of `perc.bootstrap`: sessions drawn again, the same for every
policy, so that the interval of a gain is that of the policies on equal traffic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perc.bootstrap import (
    Interval,
    Measure,
    by_session,
    interval,
    resampled_ratios,
    share_of,
)
from perc.cost import DEFAULT_COST, PrefillCost
from perc.types import Trace

LAST_TURN = 6  # later ones are one group
LONGEST = 16  # requests of a session; longer ones are one group


@dataclass(frozen=True)
class Part:
    """What one policy hits for one group of requests at one capacity."""

    policy: str
    capacity_blocks: int
    by: str  # what groups are made by: all, kind, turn, priority, session length
    group: str
    requests: int
    input_tokens: int
    token_hit_ratio: float
    low: float | None  # of the 95 % interval; None of fewer than two sessions
    high: float | None
    gain: float  # token hit ratio less LRU's
    gain_low: float | None
    gain_high: float | None


def breakdown(
    trace: Trace,
    hits: Mapping[str, np.ndarray],
    capacities: Sequence[int],
    *,
    skip: int = 0,
    cost: PrefillCost = DEFAULT_COST,
) -> list[Part]:
    """Token hit ratios of all requests together, and of every group of them.

    Args:
        trace: R requests.
        hits: by policy, leading resident blocks i32[K, R]; `lru` among them.
        capacities: K of them, in blocks.
        skip: the first requests that are not counted.
        cost: of `perc.bootstrap.Measure`; token hit ratios do not depend on it.

    Returns:
        Rows by group, then by capacity, then in the order of `hits`.
    """
    measure = Measure("token_hit_ratio")
    whole = measure.whole(trace, cost)
    policies = list(hits)
    parts = np.stack([measure.part(trace, hits[name], cost) for name in policies])
    base = policies.index("lru")
    rows = []
    for by, group, member in _groups(trace, skip):
        n, tokens = int(member.sum()), int(trace.input_tokens[member].sum())
        asked = by_session(trace, whole * member, skip=skip)
        some = asked > 0
        served = by_session(trace, parts * member, skip=skip)[..., some]
        ratios = share_of(served, asked[some])
        draws = resampled_ratios(served, asked[some])
        for k, size in enumerate(capacities):
            for p, name in enumerate(policies):
                sure = interval(draws[p, k])
                gain = interval(draws[p, k] - draws[base, k])
                rows.append(
                    Part(
                        name,
                        size,
                        by,
                        group,
                        n,
                        tokens,
                        float(ratios[p, k]),
                        *sure,
                        float(ratios[p, k] - ratios[base, k]),
                        *gain,
                    )
                )
    return rows


def block_intervals(trace: Trace, hits: np.ndarray, *, skip: int = 0) -> list[Interval]:
    """Intervals of the block hit ratios of hits i32[K, R], one a capacity."""
    measure = Measure("block_hit_ratio")
    parts = by_session(trace, measure.part(trace, hits, DEFAULT_COST), skip=skip)
    wholes = by_session(trace, measure.whole(trace, DEFAULT_COST), skip=skip)
    return [interval(draws) for draws in resampled_ratios(parts, wholes)]


def _groups(trace: Trace, skip: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """What groups are made by, their names, and bool[R] of their counted requests."""
    counted = np.arange(trace.n_requests) >= skip
    yield "all", "all", counted
    length = np.bincount(trace.session)[trace.session]
    octave = np.log2(np.clip(length, 1, LONGEST)).astype(int)
    spans = ["1", "2-3", "4-7", "8-15", f"{LONGEST}+"]
    turn = np.minimum(trace.turn, LAST_TURN)
    turns = ["", *map(str, range(1, LAST_TURN)), f"{LAST_TURN}+"]
    levels, level = np.unique(trace.priority, return_inverse=True)
    for by, label, names in (
        ("kind", trace.kind, list(trace.kinds)),
        ("turn", turn, turns),
        ("session length", octave, spans),
        ("priority", level, [f"{level:g}" for level in levels.tolist()]),
    ):
        found = [(name, counted & (label == i)) for i, name in enumerate(names)]
        found = [(name, member) for name, member in found if member.any()]
        if len(found) > 1:
            for name, member in found:
                yield by, name, member
