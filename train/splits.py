"""Parts of a trace, so that what is learned is judged on what was not seen.

By time: `perc.tune_search.first_requests`, judged on the rest. By session: here. Across
traces: train on one, judge on another.
"""

from dataclasses import replace

import numpy as np

from perc.traces.build import factorize, link_accesses
from perc.types import Trace


def of_sessions(trace: Trace, chosen: np.ndarray) -> Trace:
    """The traffic of some sessions alone, as if the others had never come.

    Args:
        trace: R requests.
        chosen: bool[S], by session.
    """
    stays = chosen[trace.session]
    kept = stays[trace.request]
    lengths = (trace.stop - trace.start)[stays]
    stop = np.cumsum(lengths).astype(np.int32)
    block = factorize(trace.block[kept])
    prev, next_ = link_accesses(block)
    requests = ("arrival_s", "input_tokens", "output_tokens", "turn", "kind")
    requests += ("priority", "deadline_s")
    return replace(
        trace,
        **{name: getattr(trace, name)[stays] for name in requests},
        session=factorize(trace.session[stays]),
        block=block,
        request=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        depth=trace.depth[kept],
        tokens=trace.tokens[kept],
        prev=prev,
        next=next_,
        start=(stop - lengths).astype(np.int32),
        stop=stop,
        source=f"{trace.source}, {int(chosen.sum())} of {len(chosen)} sessions",
    )


def halves_by_session(trace: Trace, seed: int) -> tuple[Trace, Trace]:
    """Two parts with no session in common, drawn by the seed, of like size."""
    count = int(trace.session.max(initial=-1)) + 1
    first = np.zeros(count, bool)
    first[np.random.default_rng(seed).permutation(count)[: (count + 1) // 2]] = True
    return of_sessions(trace, first), of_sessions(trace, ~first)
