"""Runs of blocks that live and die together: what lets a replay skip single blocks.

A *segment* is a run of blocks of one request and one class, cut where the tree of
prefixes branches. Its blocks have one age and one worth, so they leave from the deep
end, and one entry stands for all. What another block hangs on is always the end of a
segment, since a block with two children ends one.

When a request arrives, its blocks are taken over from the segments that used them last,
in *runs*, from the root on: each takes the leading part of what is left of a segment.

Segments are numbered by (class, request, deepest first), the order in which those of a
class grow old.
"""

from typing import Any, NamedTuple

import numpy as np

from perc.shapes import bucket, pad, parents
from perc.types import Trace


class Segments(NamedTuple):
    """A trace in segments; padded. `S` segments, `U` runs."""

    # One entry a segment, by number.
    cls: Any  # i32[S], its class
    time_s: Any  # f32[S], arrival of its request
    tie: Any  # i32[S], place in the order of ties: oldest, then deepest first
    # One entry a segment, by request, root first.
    number: Any  # i32[S]
    low: Any  # i32[S], depth of its first block
    high: Any  # i32[S], depth after its last block
    above: Any  # i32[S], the block that it hangs on, M = none
    end: Any  # i32[S], its last block
    # One entry a run, by request, root first.
    source: Any  # i32[U], segment that used its blocks last
    begin: Any  # i32[U], depth of its first block
    stop: Any  # i32[U], depth after its last block
    over: Any  # i32[U], the block above the first one, M = none
    last: Any  # i32[U], its last block
    # One entry a request.
    first_segment: Any  # i32[R + 1]
    first_run: Any  # i32[R + 1]
    length: Any  # i32[R], blocks
    arrival_s: Any  # f32[R]


def cut(trace: Trace, cls: np.ndarray) -> Segments:
    """Cuts a trace into segments.

    Args:
        trace: N accesses of R requests, M distinct blocks.
        cls: i32[N], the class of each access.
    """
    depth, block = trace.depth, trace.block
    parent = parents(trace)
    above = parent[block]
    branches = np.bincount(parent, minlength=len(parent) + 1)[above] > 1
    starts = (depth == 0) | (cls != _before(cls, -1)) | branches
    segment = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    stop = np.append(first[1:], trace.n_accesses)
    request, low = trace.request[first], depth[first]
    order = np.lexsort((-low, request, cls[first]))
    number = np.empty(len(first), np.int32)
    number[order] = np.arange(len(first), dtype=np.int32)
    tie = np.empty(len(first), np.int32)
    tie[np.lexsort((-low, request))] = np.arange(len(first), dtype=np.int32)
    arrival_s = trace.arrival_s.astype(np.float32)
    everyone = np.arange(bucket(trace.n_requests) + 1)
    used = np.where(trace.prev >= 0, segment[trace.prev], -1)
    change = np.flatnonzero((depth == 0) | (used != _before(used, -2)))
    ends = np.append(change[1:], trace.n_accesses)
    ends, change = ends[used[change] >= 0], change[used[change] >= 0]
    columns = Segments(
        cls=cls[first][order],
        time_s=arrival_s[request][order],
        tie=tie[order],
        number=number,
        low=low,
        high=low + (stop - first),
        above=above[first],
        end=block[stop - 1],
        source=number[used[change]],
        begin=depth[change],
        stop=depth[change] + (ends - change),
        over=above[change],
        last=block[ends - 1],
        first_segment=np.searchsorted(request, everyone),
        first_run=np.searchsorted(trace.request[change], everyone),
        length=trace.stop - trace.start,
        arrival_s=arrival_s,
    )
    whole = ("first_segment", "first_run")
    return Segments(
        **{
            name: _narrow(column) if name in whole else pad(_narrow(column), 0)
            for name, column in columns._asdict().items()
        }
    )


def _narrow(column: np.ndarray) -> np.ndarray:
    return column if column.dtype == np.float32 else column.astype(np.int32)


def _before(column: np.ndarray, fill: int) -> np.ndarray:
    """The entry before each."""
    return np.concatenate([np.full(1, fill, column.dtype), column[:-1]])
