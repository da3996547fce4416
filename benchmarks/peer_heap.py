"""A peer for `perc.replay`: the same cache as an indexed binary heap, in numba.

What one would write in C without the idea that a cache is a set of ranks: the resident
blocks lie in a heap, lowest key on top, and an array tells where each block is.
The running request's blocks are taken out while room is made, so they are safe.
"""

import numba  # pyright: ignore[reportMissingImports]
import numpy as np


@numba.njit
def replay_heap(block, rank, start, stop, n_blocks, capacity, refresh):
    """Leading resident blocks of each request, and how many blocks left.

    Args:
        block, rank: i32[N], the accessed block and the rank it gets, lowest leaves.
        start, stop: i32[R], accesses of each request.
        n_blocks: M.
        capacity: C, in blocks.
        refresh: a hit sets the rank again; False keeps that of the insertion.
    """
    keys = np.empty(capacity + 1, np.int32)
    items = np.empty(capacity + 1, np.int32)
    where = np.full(n_blocks, -1, np.int32)
    held = np.empty(1 if refresh else n_blocks, np.int32)
    hits = np.zeros(len(start), np.int32)
    size, evictions = 0, 0
    for r in range(len(start)):
        first, last = start[r], stop[r]
        for i in range(first, last):
            at = where[block[i]]
            if not refresh:
                held[block[i]] = keys[at] if at >= 0 else rank[i]
            if at >= 0:
                hits[r] += hits[r] == i - first
                size = _remove(keys, items, where, size, at)
        kept = min(last - first, capacity)
        while size > capacity - kept:
            size = _remove(keys, items, where, size, 0)
            evictions += 1
        for i in range(first, first + kept):
            key = rank[i] if refresh else held[block[i]]
            _sift_up(keys, items, where, size, key, block[i])
            size += 1
        evictions += last - first - kept
    return hits, evictions


@numba.njit
def _remove(keys, items, where, size, at):
    """Takes the entry at `at` out; the last entry fills the gap. Returns the size."""
    where[items[at]] = -1
    size -= 1
    if at < size:
        key, item = keys[size], items[size]
        if at > 0 and key < keys[(at - 1) >> 1]:
            _sift_up(keys, items, where, at, key, item)
        else:
            _sift_down(keys, items, where, size, at, key, item)
    return size


@numba.njit
def _sift_up(keys, items, where, at, key, item):
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        _put(keys, items, where, at, keys[above], items[above])
        at = above
    _put(keys, items, where, at, key, item)


@numba.njit
def _sift_down(keys, items, where, size, at, key, item):
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        _put(keys, items, where, at, keys[below], items[below])
        at = below
    _put(keys, items, where, at, key, item)


@numba.njit
def _put(keys, items, where, at, key, item):
    keys[at], items[at], where[item] = key, item, at
