"""What a trace says about engines and tiers: who shares, and what a cache is worth.

Every prompt token is one of three, if nothing ever leaves the cache:

    own      in a block that this conversation has sent before
    others   in a block that another conversation sent first
    new      in a block that nobody has sent, or behind the last block
"""

from typing import NamedTuple

import numpy as np

from perc.compare import check_blocks, compare
from perc.curves import lru_curve
from perc.metrics import ratio
from perc.traces.build import factorize
from perc.types import Trace

CANDIDATES = ("lru", "lfu_in_cache", "perc")
GAIN = 0.01  # of prompt tokens, from which on another policy than LRU is advised
ENOUGH = 0.95  # of what an infinite cache hits
MULTIPLES = (1, 2, 4, 8)  # of the accelerators' cache


class Sharing(NamedTuple):
    """Shares of the prompt tokens, and the shape of the traffic."""

    own: float
    others: float
    new: float
    turns: float  # requests of a conversation, mean
    context_p99: int  # tokens of prompt and answer


class Worth(NamedTuple):
    """What a cache of one size keeps, in shares of the prompt tokens."""

    blocks: int
    hits: dict[str, float]  # by policy
    best: str  # the policy to take: LRU unless another one keeps clearly more
    infinite: float  # what no size can beat
    larger: dict[int, float]  # LRU with so many times the blocks
    enough: int  # the least of these multiples with 95 % of infinite, or the largest


def sharing(trace: Trace) -> Sharing:
    """Who sent first what is sent again.

    Raises:
        InputError: for a trace without blocks.

    Example:
        >>> from perc.prefix_traces import trace_of_tokens
        >>> prompts = [[1, 2], [1, 2, 3, 4], [1, 2, 9, 9]]
        >>> found = sharing(
        ...     trace_of_tokens(prompts, block_tokens=2, session=["a", "a", "b"])
        ... )
        >>> found.own, found.others, found.new, found.turns
        (0.2, 0.2, 0.6, 1.5)
    """
    check_blocks(trace)
    session = trace.session[trace.request].astype(np.int64)
    pair = factorize(session * max(trace.n_blocks, 1) + trace.block)
    first = np.zeros(len(pair), bool)
    first[np.unique(pair, return_index=True)[1]] = True
    seen = trace.prev >= 0
    tokens = trace.tokens.astype(np.int64)
    total = int(trace.input_tokens.sum(dtype=np.int64))
    own, others = int(tokens[~first].sum()), int(tokens[first & seen].sum())
    lengths = trace.input_tokens.astype(np.int64) + trace.output_tokens
    return Sharing(
        own=ratio(own, total),
        others=ratio(others, total),
        new=ratio(total - own - others, total),
        turns=ratio(trace.n_requests, len(np.unique(trace.session))),
        context_p99=int(np.percentile(lengths, 99)) if len(lengths) else 0,
    )


def worth(trace: Trace, blocks: int) -> Worth:
    """Replays the candidates at one size.

    Args:
        trace: with blocks.
        blocks: of the accelerators' cache, of the trace's block size.

    Raises:
        InputError: for a trace without blocks.
    """
    rows = compare(trace, CANDIDATES, [blocks]).rows
    hits = {row.policy: row.token_hit_ratio for row in rows}
    best = max(CANDIDATES, key=lambda name: hits[name])
    if hits[best] - hits["lru"] < GAIN:
        best = "lru"
    curve = lru_curve(trace, weights=trace.tokens)
    total = float(trace.input_tokens.sum(dtype=np.int64))
    infinite = ratio(float(curve[-1]), total)
    larger = {
        times: ratio(float(curve[min(times * blocks, len(curve) - 1)]), total)
        for times in MULTIPLES
    }
    enough = (times for times in MULTIPLES if larger[times] >= ENOUGH * infinite)
    return Worth(blocks, hits, best, infinite, larger, next(enough, MULTIPLES[-1]))
