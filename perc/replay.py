"""The fast engine: a whole trace through a cache that is one bit set over ranks.

When every access has a rank, a cache is the set of ranks of the blocks that it holds.
A block is resident if the bit of its last access is set; the victim is the lowest set
bit. No block table, no floats, the same small program for every policy. `perc.bitset`
says what keeps that program fast.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc import levels
from perc.bitset import BitSet, add, empty, peek, pop_lowest, remove
from perc.shapes import pad
from perc.types import Hits, Trace


class Columns(NamedTuple):
    """What the compiled engine reads, padded to a power of two."""

    before: jax.Array  # i32[N], rank of the block's access before, -1 = none
    rank: jax.Array  # i32[N], rank of this access
    block: jax.Array  # i32[N]
    size: jax.Array  # i32[N], size of the block by access, or [1] if all count 1
    size_of_rank: jax.Array  # i32[N], size of the block by rank, or [1]
    start: jax.Array  # i32[R]
    stop: jax.Array  # i32[R]
    seen_stop: jax.Array  # i32[R], accesses from here on are first ones: no hits
    live_stop: jax.Array  # i32[R], accesses from here on rank below all others


class _Cache(NamedTuple):
    ranks: BitSet
    size: jax.Array  # i32[], what the resident ranks take
    dead: jax.Array  # i32[], what resident blocks take that rank below all others
    held: jax.Array  # i32[M], rank by block, where a hit does not set it again


def replay(
    trace: Trace,
    ranks: np.ndarray,
    capacities: Sequence[int],
    *,
    bypass: bool = False,
    refresh: bool = True,
    sizes: np.ndarray | None = None,
) -> Hits:
    """Counts what a cache hits, request by request.

    The semantics are those of `perc.step`, to which it is tested equal.

    Args:
        trace: N accesses of R requests, M distinct blocks.
        ranks: i32[N] or i32[P, N], from `perc.ranks`: the lowest rank leaves first.
        capacities: K sizes, 0 or more, in blocks or in the unit of `sizes`.
        bypass: the running request's blocks may be victims.
        refresh: a hit sets the block's rank again; False keeps that of its insertion.
        sizes: i32[M], what each block takes, 1 or more; None: every block takes 1.
            Victims leave until the request fits; one that is too large for the cache
            keeps the first blocks that fit.

    Returns:
        Hits: blocks i32[K, R] and evictions i32[K], or [P, K, R] and [P, K]. With
        `sizes`, `evictions` sums the sizes of what left.

    Raises:
        ValueError: for a capacity that is negative or no whole number, ranks that do
            not number the accesses, or sizes that are not positive or do not fit into
            32 bits.
    """
    ranks = np.asarray(ranks)
    if ranks.shape[-1:] != (trace.n_accesses,):
        raise ValueError(
            f"ranks of shape {ranks.shape} for {trace.n_accesses} accesses; "
            "take them from perc.ranks of the same trace"
        )
    for capacity in capacities:
        if capacity != int(capacity) or capacity < 0:
            raise ValueError(
                f"capacity {capacity}; give a whole number of blocks, 0 or more"
            )
    if ranks.ndim > 1:
        one = functools.partial(replay, bypass=bypass, refresh=refresh, sizes=sizes)
        rows = [one(trace, row, capacities) for row in ranks]
        return Hits(*(np.stack(column) for column in zip(*rows, strict=True)))
    shape = (len(capacities), trace.n_requests)
    hits, evictions = np.zeros(shape, np.int32), np.zeros(len(capacities), np.int32)
    if not trace.n_accesses:
        return Hits(hits, evictions)
    ranks = checked_ranks(ranks)
    if refresh and sizes is None and len(set(capacities)) > 1:
        return _replay_levels(trace, ranks, capacities, bypass)
    columns = engine_columns(trace, ranks, refresh=refresh, sizes=sizes)
    everything = trace.n_accesses if sizes is None else int(sizes.sum())
    for k, capacity in enumerate(capacities):
        size = min(int(capacity), everything)
        leading, evictions[k] = replay_one(columns, size, bypass, refresh)
        hits[k] = leading[: trace.n_requests]
    return Hits(hits, evictions)


def checked_ranks(ranks: np.ndarray) -> np.ndarray:
    """Ranks as i32[N], which must number the accesses: the engines rest on it.

    Raises:
        ValueError: if they are no permutation of 0..N-1, such as scores.
    """
    whole = ranks.dtype.kind in "iu"
    if not whole or ranks.min() < 0 or ranks.max() >= len(ranks):
        ordered = False
    else:
        ordered = bool((np.bincount(ranks, minlength=len(ranks)) == 1).all())
    if not ordered:
        raise ValueError(
            "ranks that do not number the accesses from 0, each once; scores become "
            "ranks by perc.ranks(trace, scores)"
        )
    return ranks.astype(np.int32)


def _replay_levels(trace, ranks, capacities, bypass) -> Hits:
    """Several capacities of an order that does not depend on them, in a few passes."""
    rising = sorted(set(map(int, capacities)))
    columns = levels.order_columns(trace, ranks)
    requests = levels.requests_of(trace)
    found = [
        levels.replay_levels(*columns, requests, group, bypass=bypass)
        for group in levels.passes(rising, trace.n_accesses)
    ]
    hits, evictions = (np.concatenate(parts) for parts in zip(*found, strict=True))
    at = np.searchsorted(rising, capacities)
    return Hits(hits[at, : trace.n_requests], evictions[at])


def engine_columns(
    trace: Trace,
    ranks: np.ndarray,
    *,
    refresh: bool = True,
    sizes: np.ndarray | None = None,
) -> Columns:
    """Lays a trace out for `replay_one`, with what never matters left out.

    Padding adds accesses that no request makes, and requests without accesses. The
    blocks of a request that were seen before form a leading run, and so do those that
    will be used again, since a use of a block is a use of its parents. Where an order
    ranks blocks that are never used again below all others, as the clairvoyant bound
    does, the engine need only count them.
    """
    seen = np.bincount(trace.request[trace.prev >= 0], minlength=trace.n_requests)
    live_stop, dead = trace.stop, trace.next < 0
    plain = refresh and sizes is None
    if plain and ranks[dead].max() < np.count_nonzero(dead):
        live = np.bincount(trace.request[trace.next >= 0], minlength=trace.n_requests)
        live_stop = trace.start + live
    size = size_of_rank = jnp.ones(1, jnp.int32)
    if sizes is not None:
        by_access = _checked_sizes(sizes, trace.n_blocks)[trace.block]
        by_rank = np.empty_like(by_access)
        by_rank[ranks] = by_access
        size, size_of_rank = _lay_out(by_access), _lay_out(by_rank)
    return Columns(
        before=_lay_out(np.where(trace.prev >= 0, ranks[trace.prev], -1)),
        rank=_lay_out(ranks),
        block=_lay_out(trace.block),
        size=size,
        size_of_rank=size_of_rank,
        start=_lay_out(trace.start),
        stop=_lay_out(trace.stop),
        seen_stop=_lay_out(trace.start + seen),
        live_stop=_lay_out(live_stop),
    )


def _lay_out(column: np.ndarray) -> jax.Array:
    return jnp.asarray(pad(column.astype(np.int32), 0))


def _checked_sizes(sizes: np.ndarray, n_blocks: int) -> np.ndarray:
    sizes = np.asarray(sizes)
    if sizes.shape != (n_blocks,):
        raise ValueError(f"sizes of shape {sizes.shape} for {n_blocks} blocks")
    if n_blocks and (sizes.min() < 1 or sizes.sum(dtype=np.int64) >= 2**31):
        raise ValueError(
            "sizes must be 1 or more and sum to less than 2**31; use a larger unit"
        )
    return sizes.astype(np.int32)


@functools.partial(jax.jit, static_argnames=("bypass", "refresh"))
def replay_one(
    c: Columns, capacity: jax.Array, bypass: bool = False, refresh: bool = True
) -> tuple[jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R], and evictions i32[].

    Under `jax.vmap` it runs one configuration after the other: batched loops would
    copy the state at every step.
    """
    return _mapped(bypass, refresh)(c, jnp.asarray(capacity))


@functools.cache
def _mapped(bypass: bool, refresh: bool):
    """The engine with `vmap` taken to mean `lax.map`."""
    engine = jax.custom_batching.custom_vmap(
        functools.partial(_replay_one, bypass=bypass, refresh=refresh)
    )

    @engine.def_vmap
    def one_by_one(axis_size, in_batched, *arguments):
        leaves, tree = jax.tree.flatten(arguments)
        batched = jax.tree.leaves(in_batched)

        def one(rows):
            rows = iter(rows)
            full = [
                next(rows) if b else leaf
                for leaf, b in zip(leaves, batched, strict=True)
            ]
            return engine(*jax.tree.unflatten(tree, full))

        rows = [leaf for leaf, b in zip(leaves, batched, strict=True) if b]
        return lax.map(one, rows), (True, True)

    return engine


def _replay_one(c: Columns, capacity, bypass, refresh):
    n_accesses, n_requests = c.rank.shape[0], c.start.shape[0]
    cache = _Cache(
        empty(n_accesses),
        jnp.int32(0),
        jnp.int32(0),
        jnp.full(1 if refresh else n_accesses, -1, jnp.int32),
    )

    def serve(r, carry):
        cache, hits, evictions = carry
        first, last, live = c.start[r], c.stop[r], c.live_stop[r]
        cache, hit = _take_out(cache, c, first, c.seen_stop[r], refresh)
        outside = cache.size + cache.dead
        if bypass:
            cache, put = _put_in(cache, c, first, live, refresh)
            dead = cache.dead + _size_between(c, live, last)
            cache = _evict_down_to(cache, c, capacity)
            dead = jnp.minimum(dead, capacity - cache.size)
            gone = outside + put + _size_between(c, live, last) - cache.size - dead
        else:
            stop, kept = _fitting(c, first, last, capacity)
            cache = _evict_down_to(cache, c, capacity - kept)
            dead = jnp.minimum(cache.dead, capacity - kept - cache.size)
            gone = outside - cache.size - dead
            gone = gone + _size_between(c, stop, last)
            cache, put = _put_in(cache, c, first, jnp.minimum(stop, live), refresh)
            dead = dead + kept - put
        return cache._replace(dead=dead), hits.at[r].set(hit), evictions + gone

    carry = (cache, jnp.zeros(n_requests, jnp.int32), jnp.int32(0))
    _, hits, evictions = lax.fori_loop(0, n_requests, serve, carry)
    return hits, evictions


def _take_out(cache, c, first, last, refresh):
    """Looks the request up and takes its blocks out of the set, safe from eviction."""

    def take(i, carry):
        words, held, found, hit = carry
        old = c.before[i] if refresh else peek(held, c.block[i])
        words, resident = remove(words, old)
        if not refresh:
            held = held.at[c.block[i]].set(jnp.where(resident, old, -1))
        hit = jnp.where(resident & (hit == i - first), hit + 1, hit)
        return words, held, found + jnp.where(resident, _size(c, i), 0), hit

    words, held, found, hit = lax.fori_loop(
        first, last, take, (cache.ranks.words, cache.held, jnp.int32(0), jnp.int32(0))
    )
    ranks = cache.ranks._replace(words=words)
    return cache._replace(ranks=ranks, size=cache.size - found, held=held), hit


def _put_in(cache, c, first, last, refresh):
    """Puts the blocks of accesses first..last-1 into the set; says what they take."""

    def put(i, carry):
        ranks, held, size = carry
        rank = c.rank[i]
        if not refresh:
            old = peek(held, c.block[i])
            rank = jnp.where(old >= 0, old, rank)
            held = held.at[c.block[i]].set(rank)
        return add(ranks, rank), held, size + _size(c, i)

    ranks, held, size = lax.fori_loop(
        first, last, put, (cache.ranks, cache.held, jnp.int32(0))
    )
    return cache._replace(ranks=ranks, held=held, size=cache.size + size), size


def _evict_down_to(cache, c, most):
    """Drops the lowest ranks until the rest takes at most `most`."""

    def evict(carry):
        ranks, size = carry
        ranks, rank = pop_lowest(ranks)
        one = 1 if c.size.shape[0] == 1 else c.size_of_rank[jnp.maximum(rank, 0)]
        return ranks, size - jnp.where(rank >= 0, one, 0)

    ranks, size = lax.while_loop(
        lambda carry: carry[1] > most, evict, (cache.ranks, cache.size)
    )
    return cache._replace(ranks=ranks, size=size)


def _size(c, i):
    return 1 if c.size.shape[0] == 1 else c.size[i]


def _size_between(c, first, last):
    """What the blocks of accesses first..last-1 take."""
    if c.size.shape[0] == 1:
        return last - first
    return lax.fori_loop(first, last, lambda i, total: total + c.size[i], jnp.int32(0))


def _fitting(c, first, last, capacity):
    """The end of the longest run of first blocks that fits, and what it takes."""
    if c.size.shape[0] == 1:
        kept = jnp.minimum(last - first, capacity)
        return first + kept, kept

    def fits(carry):
        i, kept = carry
        return (i < last) & (kept + c.size[jnp.minimum(i, last - 1)] <= capacity)

    return lax.while_loop(
        fits, lambda carry: (carry[0] + 1, carry[1] + c.size[carry[0]]), (first, 0)
    )
