"""A plain LRU over chains of blocks, slow and obvious, to check figures against."""

from collections import OrderedDict
from collections.abc import Iterator

from perc.types import Trace


def chains(trace: Trace) -> Iterator[list[int]]:
    """The blocks of each request, root first."""
    block = trace.block.tolist()
    for start, stop in zip(trace.start.tolist(), trace.stop.tolist(), strict=True):
        yield block[start:stop]


def lru_hit_ratio(trace: Trace, capacity: int) -> float:
    """Block hit ratio of LRU with `capacity` blocks, from a cold cache.

    A request is atomic: its hits are the leading run of resident blocks, then all its
    blocks are used from leaf to root, so that the leaf is the first of them to leave.
    The request's own blocks are never its victims; the trace must allow that.
    """
    cache: OrderedDict[int, None] = OrderedDict()  # least recent first
    hits = accesses = 0
    for chain in chains(trace):
        assert len(chain) <= capacity, "a request does not fit"
        hits += next((i for i, b in enumerate(chain) if b not in cache), len(chain))
        accesses += len(chain)
        for block in reversed(chain):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:  # this request's blocks are the most recent
            cache.popitem(last=False)
    return hits / max(accesses, 1)
