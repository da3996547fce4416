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
    hit_tokens = tokens_of_hits(trace, hit_blocks)
    counted = slice(warmup_requests, None)
    asked = trace.input_tokens[counted].astype(np.int64)
    cached = hit_tokens[counted]
    blocks = (trace.stop - trace.start)[counted].sum()
    return Metrics(
        block_hit_ratio=ratio(hit_blocks[counted].sum(dtype=np.int64), blocks),
        token_hit_ratio=ratio(cached.sum(), asked.sum()),
        recompute_tokens=int((asked - cached).sum()),
        recompute_s=float(cost.recompute_s(asked, cached).sum()),
    )


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
    return int(share * trace.n_requests)
