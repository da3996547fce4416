"""What a policy may know: one array an access, computed from a trace in one pass.

Every feature but `next_use` is causal: its value at a request depends on that request
and earlier ones. `tests/test_features.py` cuts the future off and asserts it.
"""

import warnings
from collections.abc import Callable, Iterable

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError, TraceWarning
from perc.groups import count_before, distinct_so_far, group_by
from perc.history import history
from perc.types import Features, Trace

EXACT_FLOAT32 = 2**24  # whole numbers up to here have a float32 of their own
COARSE_SPAN_S = 2.0**23  # 97 days: float32 seconds resolve one second there
NEVER = np.iinfo(np.int32).max
GAP_WINDOW = 20  # gaps in `mean_gap_s`, as in PERC's first publication
TURN_CLASSES, FREQUENCY_CLASSES, KIND_CLASSES = 6, 8, 16


def features(
    trace: Trace, names: Iterable[str], *, cost: PrefillCost = DEFAULT_COST
) -> Features:
    """Computes the named features of every access.

    Args:
        trace: N accesses.
        names: fields of `Features`.
        cost: prices `recompute_s`.

    Returns:
        Features with the named fields set, each [N], `history` [N, H]; the others None.

    Raises:
        ValueError: for a name that is not a feature.
    """
    names = list(names)
    unknown = [name for name in names if name not in _FEATURES]
    if unknown:
        raise ValueError(f"no feature {unknown[0]!r}; there are {sorted(_FEATURES)}")
    return Features(**{name: _FEATURES[name](trace, cost) for name in names})


def _of_request(name: str, dtype: type = np.int32) -> Callable:
    return lambda t, cost: getattr(t, name).astype(dtype)[t.request]


def _recompute_s(t: Trace, cost: PrefillCost) -> np.ndarray:
    before = t.depth.astype(np.int64) * t.block_tokens
    return cost.recompute_s(before + t.tokens, before).astype(np.float32)


def _request_blocks(t: Trace, cost: PrefillCost) -> np.ndarray:
    return (t.stop - t.start)[t.request]


def _frequency(t: Trace, cost: PrefillCost) -> np.ndarray:
    return (count_before(group_by(t.block)) + 1).astype(np.int32)


def _sessions(t: Trace, cost: PrefillCost) -> np.ndarray:
    found = distinct_so_far(group_by(t.block), t.session[t.request])
    return found.astype(np.int32)


def _mean_gap_s(t: Trace, cost: PrefillCost) -> np.ndarray:
    """Mean of the session's last `GAP_WINDOW` gaps between requests, nan = none yet."""
    order = np.argsort(t.session, kind="stable")
    session, arrival = t.session[order], t.arrival_s[order]
    index = np.arange(len(order))
    first = np.searchsorted(session, session)  # where the session begins
    oldest = np.maximum(first, index - GAP_WINDOW)
    gaps = index - oldest
    mean = np.full(len(order), np.nan)
    some = gaps > 0
    mean[some] = (arrival - arrival[oldest])[some] / gaps[some]
    by_request = np.empty(len(order), np.float32)
    by_request[order] = mean
    return by_request[t.request]


def _resume_p(t: Trace, cost: PrefillCost) -> np.ndarray:
    """P(the block is used again | its class), from the counts of the past only.

        p = (accesses of the class that were followed + 1) / (accesses of it + 4)

    The class joins how often the block was used (1, 2-3, 4-7, ...), the turn and the
    kind of the request that used it last (in some formats its stop reason, which a
    server knows at the request's end, not at its start). A use counts once its
    successor has arrived; one that still waits counts as not followed, which errs on
    the low side everywhere.
    The prior, one in four, is the share that the conversation trace shows.
    """
    octave = np.floor(np.log2(_frequency(t, cost))).astype(np.int64)
    turn = np.minimum(t.turn, TURN_CLASSES)[t.request].astype(np.int64) - 1
    kind = np.minimum(t.kind, KIND_CLASSES - 1)[t.request].astype(np.int64)
    joint = np.minimum(octave, FREQUENCY_CLASSES - 1) + FREQUENCY_CLASSES * (
        turn + TURN_CLASSES * kind
    )
    followed = np.where(t.prev >= 0, joint[t.prev], -1)
    p = np.empty(t.n_accesses, np.float32)
    for cls in np.unique(joint):
        mine = np.flatnonzero(joint == cls)
        uses = _count(t, t.request[mine])
        returns = _count(t, t.request[followed == cls])
        r = t.request[mine]
        before = uses[r] - np.bincount(r, minlength=t.n_requests)[r]
        p[mine] = (returns[r] + 1) / (before + 4)
    return p


def _count(t: Trace, requests: np.ndarray) -> np.ndarray:
    """Running count i64[R]: how many of `requests` are this one or earlier."""
    return np.cumsum(np.bincount(requests, minlength=t.n_requests))


def _time_s(t: Trace, cost: PrefillCost) -> np.ndarray:
    span = float(t.arrival_s[-1]) if t.n_requests else 0.0
    if span > COARSE_SPAN_S:
        warnings.warn(
            f"{t.source} spans {span:.3g} s; times in scores resolve "
            f"{np.spacing(np.float32(span)):.3g} s, what lies closer counts as equal. "
            "Is a time stamp wrong, or its unit?",
            TraceWarning,
            stacklevel=3,
        )
    return t.arrival_s.astype(np.float32)[t.request]


def _next_use(t: Trace, cost: PrefillCost) -> np.ndarray:
    if t.n_requests > EXACT_FLOAT32:
        raise InputError(
            f"{t.source} has {t.n_requests} requests; the clairvoyant bound is exact "
            f"for at most {EXACT_FLOAT32}. Use a part of the trace."
        )
    return np.where(t.next >= 0, t.request[t.next], NEVER).astype(np.int32)


_FEATURES: dict[str, Callable[[Trace, PrefillCost], np.ndarray]] = {
    "step": lambda t, cost: t.request,
    "time_s": _time_s,
    "depth": lambda t, cost: t.depth,
    "tokens": lambda t, cost: t.tokens,
    "prefix_tokens": lambda t, cost: t.depth * np.int32(t.block_tokens),
    "recompute_s": _recompute_s,
    "frequency": _frequency,
    "priority": _of_request("priority"),
    "turn": _of_request("turn"),
    "kind": _of_request("kind"),
    "input_tokens": _of_request("input_tokens"),
    "request_blocks": _request_blocks,
    "mean_gap_s": _mean_gap_s,
    "resume_p": _resume_p,
    "sessions": _sessions,
    "history": lambda t, cost: history(t),
    "next_use": _next_use,
}
