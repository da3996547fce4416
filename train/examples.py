"""What a trace teaches: when blocks were used again, and what was known before.

One example a run of blocks of a request (`perc.history.runs`) whose next use comes with
one and the same request: these blocks have the same past and the same future.
"""

from typing import NamedTuple

import numpy as np

from perc.errors import InputError
from perc.history import history, runs
from perc.types import Trace

MOST_BINS = 16  # of age
REACH = 0.9  # of the trace's length: nobody is watched for longer


class Examples(NamedTuple):
    """S examples of a trace."""

    history: np.ndarray  # f32[S, len(NAMES)], what was known (`perc.history`)
    gap_s: np.ndarray  # f64[S], until the next use, inf = not in this trace
    seen_s: np.ndarray  # f64[S], until the trace ends
    blocks: np.ndarray  # i64[S], blocks of the run
    session: np.ndarray  # i32[S]


def examples(trace: Trace) -> Examples:
    """The examples of a trace.

    Raises:
        InputError: if it has no block that is used twice: nothing can be learned.
    """
    if not (trace.next >= 0).any():
        raise InputError(
            f"{trace.source}: no block is used twice in the training part, so it "
            "cannot teach when blocks return. Train on more requests."
        )
    _, run = runs(trace)
    later = np.where(trace.next >= 0, trace.request[trace.next], -1)
    ends = (run != np.append(run[1:], -1)) | (later != np.append(later[1:], -2))
    last = np.flatnonzero(ends)
    request = trace.request[last]
    now = trace.arrival_s[request]
    used = later[last] >= 0
    gap = np.where(used, trace.arrival_s[later[last]] - now, np.inf)
    return Examples(
        history=history(trace)[last],
        gap_s=gap,
        seen_s=trace.arrival_s[-1] - now,
        blocks=np.diff(last, prepend=-1),
        session=trace.session[request],
    )


def edges_of(found: Examples) -> np.ndarray:
    """Lower edges f32[B] of bins of age, in seconds: 0, then a geometric series.

    Each is at most twice the last, unless that took too many. They span what the trace
    can tell: from a quarter of the shorter gaps to four times the longer ones, or
    nearly the length of the trace.
    """
    used = _returns(found)
    if not used.any():
        raise InputError(
            "all uses of a block follow at once in the training part. Are its arrival "
            "times missing?"
        )
    short, long = _quantiles(found.gap_s[used], found.blocks[used], [0.25, 0.99])
    most = max(min(4 * long, REACH * found.seen_s.max()), short)
    least = min(short / 4, most / 2)
    count = int(np.clip(np.ceil(np.log2(most / least)), 2, MOST_BINS - 2))
    rising = np.geomspace(least, most, count + 1)
    return np.concatenate([[0.0], rising]).astype(np.float32)


def _returns(found: Examples) -> np.ndarray:
    """Examples bool[S] that are used again, and later."""
    return np.isfinite(found.gap_s) & (found.gap_s > 0)


def _quantiles(values: np.ndarray, weights: np.ndarray, at: list[float]) -> np.ndarray:
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.minimum(np.searchsorted(below, at), len(values) - 1)]


def prices_of(edges_s: np.ndarray) -> np.ndarray:
    """Lowest and highest price f32[2] of a block and second, in hits.

    At the lowest it pays to keep a block for the longest lease if it is used in 4 of
    10 cases; at the highest, for the shortest lease if in 2 of 10.
    """
    return np.array([0.4 / edges_s[-1], 0.2 / edges_s[1]], np.float32)


def held_out(found: Examples, share: float, seed: int) -> np.ndarray:
    """Marks examples bool[S] of a share of the sessions, drawn by the seed."""
    names = np.unique(found.session)
    drawn = np.random.default_rng(seed).random(len(names)) < share
    return np.isin(found.session, names[drawn])


def split(found: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Examples to learn from, and those of `held_out` sessions, which only judge.

    All for both, if one of the two would be nothing, or could not teach.
    """
    judging = held_out(found, share, seed)
    if not judging.any() or not _returns(found)[~judging].any():
        return found, found
    learning, judges = (
        Examples(*(column[some] for column in found)) for some in (~judging, judging)
    )
    return learning, judges
