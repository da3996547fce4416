"""How sure a hit ratio is: sessions drawn again, with replacement.

A ratio of a trace is a sum over its requests of what the cache served, over a sum of
what was asked for. The requests of a session come and go together, so the session is
what a sample of traffic consists of and what is drawn:

    ratio(b) = sum_s w_s(b) part_s / sum_s w_s(b) whole_s,   w(b) ~ Multinomial(S, 1/S)

`part_s` stays as one replay of the whole trace left it. The interval therefore covers
which sessions happened to be in the trace. It does not cover what sessions do to each
other in the cache, nor the traffic of another day.

References:
    Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13 for the
    percentile interval and chapter 8 for drawing whole units of dependent data.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perc.cost import PrefillCost
from perc.metrics import tokens_of_hits
from perc.types import Trace

LEVEL = 0.95
# The ends of a percentile interval want about 1,000 draws (Efron and Tibshirani,
# section 13.3); 200 do for a standard error.
RESAMPLES = 1000
WEIGHTS_AT_ONCE = 1 << 23  # session weights held in memory, 64 MiB
COVERS = (
    f"{LEVEL:.0%} percentile bootstrap over sessions: which sessions were in the "
    "trace. Not covered: sessions displacing each other in the cache, and other days"
)


class Interval(NamedTuple):
    """Where a value lies at the level `LEVEL`; None where there are no draws."""

    low: float | None
    high: float | None


class Measure(NamedTuple):
    """A ratio of sums over requests: what the cache served over what was asked for."""

    name: str  # one of the branches below
    budget_s: float = 0.0  # of `within_budget`: uncached prefill that is soon enough

    def part(
        self, trace: Trace, hit_blocks: np.ndarray, cost: PrefillCost
    ) -> np.ndarray:
        """What hits i32[..., R] are worth, f64[..., R]."""
        if self.name in ("block_hit_ratio", "share_of_ideal"):
            return hit_blocks.astype(np.float64)
        cached = tokens_of_hits(trace, hit_blocks)
        if self.name == "token_hit_ratio":
            return cached.astype(np.float64)
        if self.name == "saved_share":
            return cost.prefill_s(cached)
        ttft_s = cost.recompute_s(trace.input_tokens, cached)
        return (ttft_s <= self.budget_s).astype(np.float64)

    def whole(self, trace: Trace, cost: PrefillCost) -> np.ndarray:
        """What there was to be had, f64[R]."""
        if self.name == "share_of_ideal":  # the blocks that were ever seen before
            seen = np.concatenate([[0], np.cumsum(trace.prev >= 0)])
            return (seen[trace.stop] - seen[trace.start]).astype(np.float64)
        if self.name == "block_hit_ratio":
            return (trace.stop - trace.start).astype(np.float64)
        if self.name == "token_hit_ratio":
            return trace.input_tokens.astype(np.float64)
        if self.name == "saved_share":
            return cost.prefill_s(trace.input_tokens)
        return np.ones(trace.n_requests)


def by_session(trace: Trace, values: np.ndarray, *, skip: int = 0) -> np.ndarray:
    """Sums f64[..., S] of values [..., R] over the requests of each session.

    Args:
        trace: R requests.
        values: one a request.
        skip: the first requests are left out, and with them the sessions that have
            no others.
    """
    session = trace.session[skip:]
    order = np.argsort(session, kind="stable")
    first = np.flatnonzero(np.diff(session[order], prepend=-1))
    values = np.asarray(values, np.float64)[..., skip:][..., order]
    if not len(first):
        return np.zeros((*values.shape[:-1], 0))
    return np.add.reduceat(values, first, axis=-1)


def share_of(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """The ratio f64[...] of the sums of f64[..., X] and f64[X]; 0 of nothing."""
    part, whole = parts.sum(axis=-1), wholes.sum()
    return part / whole if whole else np.zeros_like(part)


def resampled_ratios(
    parts: np.ndarray, wholes: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0
) -> np.ndarray:
    """Ratios f64[..., B] of B samples of S sessions, drawn with replacement.

    The same seed draws the same sessions: ratios of two policies over one trace are
    paired draw by draw, and their difference is that of the policies on equal traffic.

    Args:
        parts: f64[..., S], by session.
        wholes: f64[S].
        resamples: B.
        seed: of the draws.

    Returns:
        0 where a sample asks for nothing; B = 0 with fewer than two sessions, of which
        nothing can be learned about others.
    """
    found = [np.zeros((*parts.shape[:-1], 0))]
    for times in samples(len(wholes), resamples, seed):
        part, whole = parts @ times, wholes @ times
        found.append(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))
    return np.concatenate(found, axis=-1)


def samples(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of n sessions is drawn, f64[n, b], until all b sum to `resamples`.

    No sample of fewer than two sessions: nothing can be learned of others.
    """
    generator = np.random.default_rng(seed)
    at_once = max(WEIGHTS_AT_ONCE // max(n, 1), 1)
    for done in range(0, resamples if n > 1 else 0, at_once):
        drawn = generator.integers(n, size=(min(at_once, resamples - done), n))
        times = np.stack([np.bincount(row, minlength=n) for row in drawn])
        yield times.T.astype(np.float64)


def interval(draws: np.ndarray | Sequence[float]) -> Interval:
    """The percentile interval of draws f64[B], by order statistics.

    Infinities are fine: no value between two draws is computed.
    """
    draws = np.sort(np.asarray(draws, np.float64))
    if not len(draws):
        return Interval(None, None)
    cut = int((1 - LEVEL) / 2 * len(draws))
    return Interval(float(draws[cut]), float(draws[-1 - cut]))
