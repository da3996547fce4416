"""A log of questions as a trace: every policy can be tried on it, and the bound.

A question is a request of one block, named by its digest: exact hits, no time to live.
`perc.compare(trace, policies, capacities)` then counts answers; its seconds and tokens
mean nothing here.
"""

from collections.abc import Sequence

import numpy as np

from perc.errors import InputError
from perc.responses.queries import Query
from perc.traces.build import Columns, build_trace
from perc.types import Trace


def trace_of_queries(
    questions: Sequence[Query],
    *,
    arrival_s: Sequence[float] | None = None,
    source: str = "questions",
) -> Trace:
    """One block a question.

    Args:
        questions: R of them, in their order.
        arrival_s: [R]; None: one a second.
        source: name of the trace.

    Raises:
        InputError: if the columns differ in length, or a time is out of range.

    Example:
        >>> from perc.responses.queries import query
        >>> trace_of_queries([query("a"), query("b"), query("a")]).block.tolist()
        [0, 1, 0]
    """
    n = len(questions)
    times = np.arange(n) if arrival_s is None else np.asarray(arrival_s)
    if len(times) != n:
        raise InputError(f"{source}: {len(times)} times for {n} questions.")
    number: dict[bytes, int] = {}
    ids = [number.setdefault(q.digest.tobytes(), len(number)) for q in questions]
    columns = Columns(
        arrival_s=times.astype(np.float64),
        input_tokens=np.ones(n, np.int64),
        output_tokens=np.zeros(n, np.int64),
        ids=np.array(ids, np.int64),
        lengths=np.ones(n, np.int64),
        session=[None] * n,
    )
    return build_trace(columns, block_tokens=1, source=source)
