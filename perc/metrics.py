"""From hits to what a person asks for: ratios, recomputed tokens, seconds.

block hit ratio = leading resident blocks / blocks looked up
token hit ratio = prompt tokens in those blocks / prompt tokens asked for
recompute       = the prompt tokens that are left, and the seconds to prefill them
"""

from dataclasses import dataclass

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.types import Trace


@dataclass(frozen=True)
class Metrics:
    """What one configuration reached over the counted requests."""

    block_hit_ratio: float
    token_hit_ratio: float
    recompute_tokens: int
    recompute_s: float


def measure(
    trace: Trace,
    hit_blocks: np.ndarray,
    *,
    warmup_requests: int = 0,
    cost: PrefillCost = DEFAULT_COST,
) -> Metrics:
    """Sums the hits of one configuration up.

    Args:
        trace: R requests.
        hit_blocks: i32[R], the longest resident prefix of each request.
        warmup_requests: the first ones are served but not counted.
        cost: prices the recomputed tokens.

    Returns:
        Ratios of 0 where nothing was asked for.
    """
    rows = np.asarray(hit_blocks)[None]
    return measure_rows(trace, rows, warmup_requests=warmup_requests, cost=cost)[0]


def measure_rows(
    trace: Trace,
    hit_blocks: np.ndarray,
    *,
    warmup_requests: int = 0,
    cost: PrefillCost = DEFAULT_COST,
) -> list[Metrics]:
    """`measure` for K configurations at once, hit_blocks i32[K, R]."""
    counted = slice(warmup_requests, None)
    asked = trace.input_tokens[counted].astype(np.int64)
    total, work_s = asked.sum(), cost.prefill_s(asked).sum()
    looked_up = (trace.stop - trace.start)[counted].sum()
    running = np.concatenate([[0], np.cumsum(trace.tokens, dtype=np.int64)])
    start = trace.start[counted]
    found = []
    for row in np.asarray(hit_blocks)[:, counted]:
        cached = running[start + row] - running[start]
        tokens = cached.sum()
        found.append(
            Metrics(
                block_hit_ratio=ratio(row.sum(dtype=np.int64), looked_up),
                token_hit_ratio=ratio(tokens, total),
                recompute_tokens=int(total - tokens),
                recompute_s=float(work_s - cost.prefill_s(cached).sum()),
            )
        )
    return found


def tokens_of_hits(trace: Trace, hit_blocks: np.ndarray) -> np.ndarray:
    """Prompt tokens i64[R] in the leading `hit_blocks` i32[R] of each request."""
    running = np.concatenate([[0], np.cumsum(trace.tokens, dtype=np.int64)])
    return running[trace.start + hit_blocks] - running[trace.start]


def weights_of_hits(trace: Trace, cost: PrefillCost) -> list[np.ndarray]:
    """What a hit of each access counts: blocks, tokens, seconds; f64[N] each."""
    before = trace.depth.astype(np.int64) * trace.block_tokens
    seconds = cost.recompute_s(before + trace.tokens, before)
    return [np.ones(trace.n_accesses), trace.tokens.astype(np.float64), seconds]


def metrics_of_sums(
    trace: Trace,
    blocks: np.ndarray,
    tokens: np.ndarray,
    seconds: np.ndarray,
    *,
    warmup_requests: int = 0,
    cost: PrefillCost = DEFAULT_COST,
) -> list[Metrics]:
    """Metrics at K capacities from the sums [K] of what the hits count."""
    counted = slice(warmup_requests, None)
    asked = trace.input_tokens[counted].astype(np.int64)
    looked_up = (trace.stop - trace.start)[counted].sum()
    work_s = cost.prefill_s(asked).sum()
    return [
        Metrics(
            block_hit_ratio=ratio(block, looked_up),
            token_hit_ratio=ratio(token, asked.sum()),
            recompute_tokens=int(asked.sum() - token),
            recompute_s=float(work_s - second),
        )
        for block, token, second in zip(blocks, tokens, seconds, strict=True)
    ]


def ratio(part: float, whole: float) -> float:
    """part / whole, and 0 where there is no whole."""
    return float(part) / float(whole) if whole else 0.0


def warmup_requests(trace: Trace, share: float) -> int:
    """How many requests the first `share` of the trace holds.

    Raises:
        InputError: unless 0 <= share < 1.
    """
    if not 0 <= share < 1:
        raise InputError(
            f"a warm-up share of {share}; give 0 (count everything) or more, below 1."
        )
    return int(share * trace.n_requests + 1e-6)  # .29 of 100 are 29
