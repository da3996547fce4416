"""Parts of a trace, so that what is learned is judged on what was not seen.

By time: `perc.tune_search.first_requests`, judged on the rest. By session: here. Across
traces: train on one, judge on another.
"""

from dataclasses import replace

import numpy as np

from perc.sampling import of_accesses
from perc.traces.build import factorize
from perc.types import Trace

BY_REQUEST = ("arrival_s", "input_tokens", "output_tokens", "turn", "kind")
BY_REQUEST += ("priority", "deadline_s", "start", "stop")


def of_sessions(trace: Trace, chosen: np.ndarray) -> Trace:
    """The traffic of some sessions alone, as if the others had never come.

    Args:
        trace: R requests.
        chosen: bool[S], by session.
    """
    stays = chosen[trace.session]
    part = of_accesses(trace, stays[trace.request])
    renumbered = np.cumsum(stays, dtype=np.int32) - 1
    return replace(
        part,
        **{name: getattr(part, name)[stays] for name in BY_REQUEST},
        session=factorize(trace.session[stays]),
        request=renumbered[part.request],
        source=f"{trace.source}, {int(chosen.sum())} of {len(chosen)} sessions",
    )


def halves_by_session(trace: Trace, seed: int) -> tuple[Trace, Trace]:
    """Two parts with no session in common, drawn by the seed, of like size."""
    count = int(trace.session.max(initial=-1)) + 1
    first = np.zeros(count, bool)
    first[np.random.default_rng(seed).permutation(count)[: (count + 1) // 2]] = True
    return of_sessions(trace, first), of_sessions(trace, ~first)
