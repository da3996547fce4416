"""A hot set that is used all the time, and one-off scans that sweep over it."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from perc.errors import InputError
from perc.workloads.arguments import at_least, describe, positive
from perc.workloads.sampling import draw_poisson_arrivals

if TYPE_CHECKING:
    from perc.types import Trace


def scan(
    *,
    requests: int = 5_000,
    seed: int = 0,
    hot_chains: int = 50,
    hot_blocks: int = 4,
    hot_order: Literal["random", "cyclic"] = "random",
    scan_every: int = 200,
    scan_requests: int = 100,
    scan_blocks: int = 4,
    requests_per_s: float = 10.0,
    block_tokens: int = 512,
) -> "Trace":
    """Hot prompts again and again, interrupted by batches of prompts used once.

    LRU lets every batch push the hot set out. With `hot_order="cyclic"` and
    `scan_requests=0` the trace is a cyclic scan, where LRU has no hit at all as soon
    as the cache is one block too small.

    Args:
        requests: requests of the trace, hot ones and scans together.
        seed: of all random draws; the same arguments give the same trace.
        hot_chains: prompts of the hot set, which share no block.
        hot_blocks: blocks of each of them.
        hot_order: which hot prompt is next: any of them, or one after the other.
        scan_every: hot requests before each scan.
        scan_requests: one-off requests of a scan; 0 = no scans.
        scan_blocks: blocks of each of those, none of them seen before.
        requests_per_s: mean rate of the Poisson arrivals.
        block_tokens: tokens of a block.

    Returns:
        The trace, of the kinds "hot" and "scan", each request a session of its own.

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    source = describe(scan, locals())
    at_least(0, requests=requests, seed=seed, scan_requests=scan_requests)
    at_least(1, hot_chains=hot_chains, hot_blocks=hot_blocks, scan_every=scan_every)
    at_least(1, scan_blocks=scan_blocks, block_tokens=block_tokens)
    positive(requests_per_s=requests_per_s)
    if hot_order not in ("random", "cyclic"):
        raise InputError(f"hot_order is {hot_order!r}; say random or cyclic.")
    rng = np.random.default_rng(seed)
    index = np.arange(requests)
    hot = index % (scan_every + scan_requests) < scan_every
    if hot_order == "cyclic":
        pick = (np.cumsum(hot) - 1) % hot_chains
    else:
        pick = rng.integers(hot_chains, size=requests)
    chain = np.where(hot, pick, hot_chains + index)
    lengths = np.where(hot, hot_blocks, scan_blocks)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns = Columns(
        arrival_s=draw_poisson_arrivals(rng, requests_per_s, requests),
        input_tokens=lengths * block_tokens,
        output_tokens=np.ones(requests, np.int64),
        ids=np.repeat(chain, lengths) * max(hot_blocks, scan_blocks) + within,
        lengths=lengths,
        session=index,
        kind=np.where(hot, "hot", "scan"),
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)
