"""The blocks of answers, where the trace lets one name them.

The next turn of a session repeats prompt and answer. If its blocks begin with the full
blocks of the turn before, then those that follow, up to the end of the answer, are the
answer's. They become accesses of the request that made them, so that every policy
scores them like any other use.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from perc.serving.arrivals import next_turns
from perc.traces.build import factorize, link_accesses
from perc.types import Trace


class Named(NamedTuple):
    """A trace whose requests also access the blocks that they produce."""

    trace: Trace
    prompt_stop: np.ndarray  # i32[R], end of each prompt's accesses


def without_outputs(trace: Trace) -> Named:
    """The trace as it is."""
    return Named(trace, trace.stop)


def with_outputs(trace: Trace) -> Named:
    """Adds to each request the accesses of its answer's full blocks, where named."""
    first, many = _answers(trace)
    length = (trace.stop - trace.start).astype(np.int64)
    stop = np.cumsum(length + many)
    start = stop - length - many
    request = np.repeat(np.arange(trace.n_requests), length + many)
    at = np.arange(len(request)) - start[request]  # place among the accesses
    own = at < length[request]
    source = np.where(own, trace.start[request] + at, 0)
    source = np.where(own, source, first[request] + at - length[request])
    block = factorize(trace.block[source]).astype(np.int32)
    before, after = link_accesses(block)
    grown = dataclasses.replace(
        trace,
        block=block,
        request=request.astype(np.int32),
        depth=trace.depth[source],
        tokens=np.where(own, trace.tokens[source], trace.block_tokens).astype(np.int32),
        prev=before,
        next=after,
        start=start.astype(np.int32),
        stop=stop.astype(np.int32),
    )
    return Named(grown, (start + length).astype(np.int32))


def _answers(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """The access i64[R] at which each answer's blocks begin, and how many i64[R]."""
    follower = next_turns(trace)
    there = follower >= 0
    full = trace.input_tokens.astype(np.int64) // trace.block_tokens
    # The last token of an answer is never computed, so its block is not full.
    tokens = trace.input_tokens.astype(np.int64) + trace.output_tokens - 1
    length = (trace.stop - trace.start).astype(np.int64)
    end = np.minimum(tokens // trace.block_tokens, length[follower])
    known = (length >= full) & (length[follower] >= full) & there
    last = np.maximum(full - 1, 0)
    if trace.n_accesses:
        limit = trace.n_accesses - 1
        mine = trace.block[np.minimum(trace.start + last, limit)]
        theirs = trace.block[np.minimum(trace.start[follower] + last, limit)]
        # A block stands for all before it, so one comparison is enough.
        known &= (full == 0) | (mine == theirs)
    many = np.where(known, np.maximum(end - full, 0), 0)
    return trace.start[follower].astype(np.int64) + full, many
