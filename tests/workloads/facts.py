"""Figures of a trace that the workload models are held to."""

import numpy as np

from perc.types import Trace


def ideal_hit_ratio(trace: Trace) -> float:
    """Block hit ratio of an infinite cache: blocks seen before."""
    return float((trace.prev >= 0).mean())


def share_never_reused(trace: Trace) -> float:
    """Share of the distinct blocks that one request uses only."""
    return float((np.bincount(trace.block) == 1).mean())


def follow_up_gaps_s(trace: Trace) -> np.ndarray:
    """Seconds between the requests of each session."""
    order = np.lexsort((trace.turn, trace.session))
    follows = np.diff(trace.session[order]) == 0
    return np.diff(trace.arrival_s[order])[follows]


def continuation(trace: Trace, turns: int) -> np.ndarray:
    """Share of the turns 1, 2, ... `turns` that another one follows."""
    count = np.bincount(trace.turn, minlength=turns + 2)
    return count[2 : turns + 2] / count[1 : turns + 1]
