"""The classic cache workload: single blocks, a few of them much more popular."""

from typing import TYPE_CHECKING

import numpy as np

from perc.workloads.arguments import at_least, describe, positive
from perc.workloads.sampling import draw_poisson_arrivals, draw_ranks, zipf_shares

if TYPE_CHECKING:
    from perc.types import Trace


def zipf(
    *,
    requests: int = 20_000,
    seed: int = 0,
    n_blocks: int = 10_000,
    alpha: float = 0.9,
    requests_per_s: float = 10.0,
    block_tokens: int = 512,
) -> "Trace":
    """Requests of one block each, drawn independently: p(rank) ~ rank**-alpha.

    Without chains, sessions or trends, only how often a block was used says anything
    about its future: LFU's home ground.

    Args:
        requests: requests of the trace.
        seed: of all random draws; the same arguments give the same trace.
        n_blocks: blocks that a request is drawn from.
        alpha: exponent of the popularity; 0 = all alike, web caches show 0.6 to 1.
        requests_per_s: mean rate of the Poisson arrivals.
        block_tokens: tokens of a block, and of every prompt.

    Returns:
        The trace, each request a session of its own.

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    source = describe(zipf, locals())
    at_least(0, requests=requests, seed=seed, alpha=alpha)
    at_least(1, n_blocks=n_blocks, block_tokens=block_tokens)
    positive(requests_per_s=requests_per_s)
    rng = np.random.default_rng(seed)
    columns = Columns(
        arrival_s=draw_poisson_arrivals(rng, requests_per_s, requests),
        input_tokens=np.full(requests, block_tokens),
        output_tokens=np.ones(requests, np.int64),
        ids=draw_ranks(rng, zipf_shares(alpha, n_blocks), requests),
        lengths=np.ones(requests, np.int64),
        session=np.arange(requests),
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)
