"""Random traffic for Hypothesis: small prefix trees, ties, bursts, concurrency."""

import numpy as np
from hypothesis import strategies as st

import perc
from perc.traces.build import Columns, build_trace
from perc.types import Hits, Trace


@st.composite
def chains(draw, max_requests: int = 20, max_depth: int = 6, branching: int = 3):
    """Requests over a random prefix tree: lists of edges from the root."""
    edges = st.lists(st.integers(0, branching - 1), max_size=max_depth)
    return draw(st.lists(edges, max_size=max_requests))


@st.composite
def traces(draw, **kwargs) -> Trace:
    """Traces over random prefix trees, with sessions, priorities and equal times."""
    rows = draw(chains(**kwargs))
    n = len(rows)
    gaps = draw(st.lists(st.sampled_from([0.0, 1.0, 30.0]), min_size=n, max_size=n))
    partial = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    labels = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    block_tokens = 4
    lengths = np.array([len(row) for row in rows], np.int64)
    tokens = np.maximum(lengths * block_tokens - np.array(partial, np.int64), 0)
    columns = Columns(
        arrival_s=np.cumsum(np.array(gaps)),
        input_tokens=tokens,
        output_tokens=np.full(n, 5),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=lengths,
        session=draw(labels) if draw(st.booleans()) else None,
        kind=draw(labels),
        priority=np.array(draw(labels), np.int64),
    )
    return build_trace(
        columns, block_tokens=block_tokens, source="hypothesis", chained=False
    )


def rows_of(trace: Trace, values: np.ndarray) -> list[list]:
    """Splits an array [N] into one list a request, as the oracles want it."""
    return [values[a:b].tolist() for a, b in zip(trace.start, trace.stop, strict=True)]


def replay_each(trace: Trace, ranks: np.ndarray, sizes, **options) -> Hits:
    """`perc.replay` one capacity at a time, so that no capacity helps another."""
    found = [perc.replay(trace, ranks, [size], **options) for size in sizes]
    return Hits(*(np.concatenate(column) for column in zip(*found, strict=True)))
