"""What users waited for, and what the server did: a run in figures.

Over completed requests, as in vLLM's `benchmarks/serve.py`:

    TTFT     first token - arrival, so that queueing counts
    TPOT     (E2E - TTFT) / (tokens - 1), of answers of two tokens or more
    ITL      gaps between tokens, pooled over requests; to 1 %, from bins
    E2E      end - arrival
    queue    first admission - arrival
    goodput  requests a second that meet every stated limit; an answer of one token
             has a TPOT of 0 there
    recompute seconds   prefill of leading blocks that the run had computed by the time
             of the first admission, and that were in no tier or were not loaded: what
             an infinite cache would have saved then; and what preempted requests did
             twice

Percentiles interpolate linearly. Intervals draw sessions again (`perc.bootstrap`).
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from perc.bootstrap import RESAMPLES, interval, samples
from perc.errors import InputError
from perc.roofline import Roofline
from perc.serving.served import Served
from perc.serving.state import (
    BINS_PER_OCTAVE,
    COMPLETED,
    REJECTED,
    SHORTEST_ITL_S,
)
from perc.serving.tier_metrics import tier_figures
from perc.types import Trace

PERCENTS = (50, 90, 95, 99)


@dataclass(frozen=True)
class Limits:
    """A service level: seconds that a request may take, inf = no limit.

    Raises:
        InputError: for a limit below 0, or that is no number.
    """

    ttft_s: float = np.inf
    tpot_s: float = np.inf
    e2e_s: float = np.inf

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise InputError(f"a limit of {name} {value}: give seconds from 0 on.")


@dataclass(frozen=True)
class Spread:
    """How a figure is distributed over `n` samples; None of none."""

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def spread(values: np.ndarray) -> Spread:
    """Mean and percentiles of the values that are there.

    >>> spread(np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 100])).p95
    59.05
    """
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return Spread(0, None, None, None, None, None)
    found = np.percentile(values, PERCENTS)
    # 14 digits: the last one depends on the order of a sum.
    return Spread(
        len(values), *(float(f"{value:.14g}") for value in (values.mean(), *found))
    )


def latencies(served: Served) -> dict[str, np.ndarray]:
    """Seconds f64[R] by name; nan where a request has none."""
    done = served.status == COMPLETED
    ttft = np.where(done, served.first_token_s - served.arrived_s, np.nan)
    e2e = np.where(done, served.ended_s - served.arrived_s, np.nan)
    more = served.made_tokens - 1
    tpot = np.where(more > 0, (e2e - ttft) / np.maximum(more, 1), np.nan)
    queue = np.where(done, served.admitted_s - served.arrived_s, np.nan)
    return {"ttft_s": ttft, "tpot_s": tpot, "e2e_s": e2e, "queue_s": queue}


def itl(served: Served) -> Spread:
    """The gaps between tokens, from their bins: the middle of each, off by .6 %."""
    counts = served.itl_counts
    total = int(counts.sum())
    if not total:
        return Spread(0, None, None, None, None, None)
    middle = np.arange(len(counts)) + 0.5
    values = SHORTEST_ITL_S * 2 ** (middle / BINS_PER_OCTAVE)
    below = np.cumsum(counts)
    at = [int(np.searchsorted(below, p / 100 * (total - 1), "right")) for p in PERCENTS]
    mean = served.totals["itl_s"] / total
    return Spread(total, mean, *(float(values[i]) for i in at))


def meets(served: Served, limits: Limits) -> np.ndarray:
    """Which requests bool[R] completed within every limit."""
    found = latencies(served)
    tpot = np.nan_to_num(found["tpot_s"], nan=0.0)
    within = (found["ttft_s"] <= limits.ttft_s) & (tpot <= limits.tpot_s)
    return (served.status == COMPLETED) & within & (found["e2e_s"] <= limits.e2e_s)


def duration_s(served: Served) -> float:
    """From the first arrival to the last end, or to where the run was stopped."""
    first = np.nanmin(served.arrived_s, initial=served.totals["now_s"])
    return max(served.totals["now_s"] - float(first), 1e-12)


def recompute_s(served: Served, cost: Roofline) -> np.ndarray:
    """Seconds f64[R] of arithmetic for what had been computed before, and was gone.

    Of each request, at its first admission; 0 where it was never admitted.
    """
    known, cached = served.known_tokens.astype(np.int64), served.cached_tokens
    return cost.prefill_flops(known, cached) / cost.flops_per_s


def summary(
    trace: Trace, served: Served, cost: Roofline, limits: Limits = Limits()
) -> dict[str, Any]:
    """All figures of a run, by name; distributions as `Spread`."""
    totals, duration = served.totals, duration_s(served)
    done = served.status == COMPLETED
    good = meets(served, limits)
    prompts = int(np.maximum(trace.input_tokens, 1)[done].sum(dtype=np.int64))
    capacity = served.server.capacity_blocks
    missed = recompute_s(served, cost)
    stall_s = served.below.stall_s if served.below else 0.0
    held_s = totals["busy_s"] + stall_s  # blocks are in use while loads are awaited
    return {
        "policy": served.policy,
        "submitted": trace.n_requests,
        "completed": int(done.sum()),
        "rejected": int((served.status == REJECTED).sum()),
        "still_there": int((served.status == 0).sum()),
        "duration_s": duration,
        "throughput_per_s": float(done.sum() / duration),
        "output_tokens": totals["tokens"],
        "output_tokens_per_s": totals["tokens"] / duration,
        "goodput_per_s": float(good.sum() / duration),
        "good_share": float(good.mean()),
        "busy_share": totals["busy_s"] / duration,
        "compute_share": totals["compute_s"] / max(totals["busy_s"], 1e-12),
        "memory_share": totals["block_s"] / max(held_s * capacity, 1e-12),
        "mean_running": totals["running_s"] / duration,
        "token_hit_ratio": float(served.cached_tokens[done].sum() / max(prompts, 1)),
        "preemptions": int(served.preemptions.sum()),
        "evictions": totals["evictions"],
        "recompute_s": float(missed.sum() + totals["again_s"]),
        "recompute_preempted_s": totals["again_s"],
        **{name: spread(values) for name, values in latencies(served).items()},
        "itl_s": itl(served),
        **tier_figures(served, duration),
        **shield_figures(served),
    }


def shield_figures(served: Served) -> dict[str, int]:
    """What retention did, in shields; nothing without it."""
    kept = served.retained
    if kept is None:
        return {}
    return {
        "shields": kept.shields,
        "shields_in_time": kept.in_time,
        "shields_late": kept.late,
        "shields_expired": kept.expired,
        "shields_released": kept.released,
        "shields_refused": kept.refused,
    }


def by_group(trace: Trace, served: Served, by: str = "kind") -> dict[str, Spread]:
    """TTFT of each kind of request ("kind"), priority or session of a trace."""
    ttft = latencies(served)["ttft_s"]
    labels = getattr(trace, by)
    names = {
        int(label): trace.kinds[label] if by == "kind" else str(label)
        for label in np.unique(labels)
    }
    return {name: spread(ttft[labels == label]) for label, name in names.items()}


def intervals(
    trace: Trace,
    served: Served,
    cost: Roofline,
    limits: Limits = Limits(),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, tuple]:
    """95 % intervals of TTFT's p50 and p99, goodput and recompute seconds.

    Sessions are drawn again; what they did to each other stays as the one run left it.
    """
    _, session = np.unique(trace.session, return_inverse=True)
    session = session.reshape(-1)
    many = int(session.max()) + 1
    ttft = latencies(served)["ttft_s"]
    order = np.argsort(ttft)  # nan last
    ttft, owner = ttft[order], session[order]
    known = int((~np.isnan(ttft)).sum())
    good = np.bincount(session, meets(served, limits).astype(np.float64), many)
    lost = np.bincount(session, recompute_s(served, cost), many)
    again = served.totals["again_s"] / trace.n_requests
    size = np.bincount(session, minlength=many)
    draws: dict[str, list] = {
        name: []
        for name in ("ttft_p50_s", "ttft_p99_s", "goodput_per_s", "recompute_s")
    }
    for times in samples(many, resamples, seed):
        # A sample of sessions may have more requests; figures are of as many as here.
        scale = trace.n_requests / (size @ times)
        draws["goodput_per_s"].extend(good @ times * scale / duration_s(served))
        draws["recompute_s"].extend((lost @ times + again * (size @ times)) * scale)
        for column in times.T if known else ():
            below = np.cumsum(column[owner[:known]])
            for name, share in (("ttft_p50_s", 0.5), ("ttft_p99_s", 0.99)):
                at = np.searchsorted(below, share * below[-1])
                draws[name].append(ttft[min(at, known - 1)])
    return {name: tuple(interval(values)) for name, values in draws.items()}
