"""The fast engine: a whole trace through a cache that is one bit set over ranks.

When every access has a rank, a cache is the set of ranks of the blocks that it holds.
A block is resident if the bit of its last access is set; the victim is the lowest set
bit. No block table, no floats, the same small program for every policy.

The loops below compile to native code that updates the state in place. That holds as
long as XLA inserts no copy of the state, which `tests/test_replay_hlo.py` asserts:
read only through `_peek`, and let every value read reach a write of the same array.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.shapes import pad
from perc.types import Hits, Trace

WORD = 32  # bits of a word; ranks >> 5 is its index


class _BitSet(NamedTuple):
    words: jax.Array  # u32[N/32 + 1], bit = a resident rank; the last word is scratch
    tops: jax.Array  # u32[N/1024 + 1], bit = its word may be non-zero (cleared lazily)
    low: jax.Array  # i32[], no bit is set in `tops` below this word
    size: jax.Array  # i32[], resident blocks


def replay(
    trace: Trace,
    ranks: np.ndarray,
    capacities: Sequence[int],
    *,
    bypass: bool = False,
    refresh: bool = True,
) -> Hits:
    """Counts what a cache hits, request by request.

    The semantics are those of `perc.step`, to which it is tested equal.

    Args:
        trace: N accesses of R requests.
        ranks: i32[N] or i32[P, N], from `perc.ranks`: the lowest rank leaves first.
        capacities: K sizes in blocks, 0 or more.
        bypass: the running request's blocks may be victims.
        refresh: a hit sets the block's rank again; False keeps that of its insertion.

    Returns:
        Hits: blocks i32[K, R] and evictions i32[K], or [P, K, R] and [P, K].

    Raises:
        ValueError: for a negative capacity or ranks of another trace.
    """
    ranks = np.asarray(ranks, np.int32)
    if ranks.shape[-1:] != (trace.n_accesses,):
        raise ValueError(
            f"ranks of shape {ranks.shape} for {trace.n_accesses} accesses; "
            "take them from perc.ranks of the same trace"
        )
    if any(capacity < 0 for capacity in capacities):
        raise ValueError(f"negative capacity in {list(capacities)}; give 0 or more")
    if ranks.ndim > 1:
        rows = [
            replay(trace, row, capacities, bypass=bypass, refresh=refresh)
            for row in ranks
        ]
        return Hits(*(np.stack(column) for column in zip(*rows, strict=True)))
    shape = (len(capacities), trace.n_requests)
    hits, evictions = np.zeros(shape, np.int32), np.zeros(len(capacities), np.int32)
    if trace.n_accesses:
        arrays = engine_arrays(trace, ranks)
        for k, capacity in enumerate(capacities):
            size = min(int(capacity), trace.n_accesses)
            leading, evictions[k] = replay_one(*arrays, size, bypass, refresh)
            hits[k] = leading[: trace.n_requests]
    return Hits(hits, evictions)


def engine_arrays(trace: Trace, ranks: np.ndarray) -> tuple[jax.Array, ...]:
    """What `replay_one` reads: rank before, rank now, block, start and stop.

    Padded with accesses that no request makes, and with requests without accesses.
    """
    before = np.where(trace.prev >= 0, ranks[trace.prev], -1).astype(np.int32)
    columns = (before, ranks, trace.block, trace.start, trace.stop)
    return tuple(jnp.asarray(pad(column, 0)) for column in columns)


@functools.partial(jax.jit, static_argnames=("bypass", "refresh"))
def replay_one(
    before: jax.Array,
    rank: jax.Array,
    block: jax.Array,
    start: jax.Array,
    stop: jax.Array,
    capacity: jax.Array,
    bypass: bool = False,
    refresh: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R], and evictions i32[]."""
    n_accesses, n_requests = rank.shape[0], start.shape[0]
    n_words = -(-n_accesses // WORD)
    cache = _BitSet(
        jnp.zeros(n_words + 1, jnp.uint32),
        jnp.zeros(-(-n_words // WORD) + 1, jnp.uint32),
        jnp.int32(0),
        jnp.int32(0),
    )
    # Without refresh a block keeps the rank of its insertion: remember it by block.
    held = jnp.full(1 if refresh else n_accesses, -1, jnp.int32)

    def serve(r, carry):
        cache, held, hits, evictions = carry
        first, last = start[r], stop[r]
        cache, held, found, hit = _take_out(
            cache, held, before, rank, block, first, last, refresh
        )
        outside = cache.size
        if bypass:
            cache, held = _put_in(cache, held, rank, block, first, last, refresh)
            cache = _evict_down_to(cache, capacity)
            gone = outside + (last - first) - cache.size
        else:
            kept = jnp.minimum(last - first, capacity)
            cache = _evict_down_to(cache, capacity - kept)
            gone = outside - cache.size + (last - first) - kept
            cache, held = _put_in(
                cache, held, rank, block, first, first + kept, refresh
            )
        return cache, held, hits.at[r].set(hit), evictions + gone

    carry = (cache, held, jnp.zeros(n_requests, jnp.int32), jnp.int32(0))
    _, _, hits, evictions = lax.fori_loop(0, n_requests, serve, carry)
    return hits, evictions


def _take_out(cache, held, before, rank, block, first, last, refresh):
    """Looks the request up and takes its blocks out of the set, safe from eviction."""

    def take(i, carry):
        words, held, found, hit = carry
        if refresh:
            old = before[i]
        else:
            old = _peek(held, block[i])
        word = jnp.where(old >= 0, old >> 5, words.shape[0] - 1)
        bit = jnp.where(old >= 0, _bit(old), jnp.uint32(0))
        value = _peek(words, word)
        resident = (value & bit) != 0
        words = words.at[word].set(value & ~bit)
        if not refresh:
            held = held.at[block[i]].set(jnp.where(resident, old, rank[i]))
        hit = jnp.where(resident & (hit == i - first), hit + 1, hit)
        return words, held, found + resident, hit

    words, held, found, hit = lax.fori_loop(
        first, last, take, (cache.words, held, jnp.int32(0), jnp.int32(0))
    )
    return cache._replace(words=words, size=cache.size - found), held, found, hit


def _put_in(cache, held, rank, block, first, last, refresh):
    """Puts the blocks of accesses first..last-1 into the set."""

    def put(i, carry):
        words, tops, low, held = carry
        if refresh:
            new = rank[i]
        else:
            new = _peek(held, block[i])
            held = held.at[block[i]].set(new)
        word, top = new >> 5, new >> 10
        words = words.at[word].set(_peek(words, word) | _bit(new))
        tops = tops.at[top].set(_peek(tops, top) | _bit(word))
        return words, tops, jnp.minimum(low, top), held

    words, tops, low, held = lax.fori_loop(
        first, last, put, (cache.words, cache.tops, cache.low, held)
    )
    return _BitSet(words, tops, low, cache.size + last - first), held


def _evict_down_to(cache: _BitSet, most: jax.Array) -> _BitSet:
    """Drops the lowest ranks until at most `most` are left."""

    def evict(cache: _BitSet) -> _BitSet:
        words, tops, low, size = cache
        top = _peek(tops, low)
        word = jnp.where(top != 0, low * WORD + _lowest(top), words.shape[0] - 1)
        value = _peek(words, word)
        rest = value & (value - jnp.uint32(1))
        gone = (top != 0) & (value != 0)
        words = words.at[word].set(jnp.where(gone, rest, value))
        tops = tops.at[low].set(jnp.where(rest == 0, top & (top - jnp.uint32(1)), top))
        return _BitSet(
            words, tops, low + jnp.where(top == 0, 1, 0), size - jnp.where(gone, 1, 0)
        )

    return lax.while_loop(lambda cache: cache.size > most, evict, cache)


def _peek(array: jax.Array, i: jax.Array) -> jax.Array:
    """Reads `array[i]` so that XLA cannot fuse the read with a later write.

    A plain read before a write in the same loop makes XLA copy the array each time.
    """
    return lax.cond(
        i >= 0,
        lambda: lax.dynamic_slice(array, (jnp.maximum(i, 0),), (1,))[0],
        lambda: jnp.zeros((), array.dtype),
    )


def _bit(rank: jax.Array) -> jax.Array:
    return jnp.uint32(1) << (rank & (WORD - 1)).astype(jnp.uint32)


def _lowest(word: jax.Array) -> jax.Array:
    """Index of the lowest set bit."""
    below = (word & (~word + jnp.uint32(1))) - jnp.uint32(1)
    return lax.population_count(below).astype(jnp.int32)
