"""Requests that overlap: each holds its blocks in place while it runs.

`perc.replay` serves one request after the other. In a server they overlap, and the
blocks of a running request are no victims, whatever their rank. Here every request
holds its stored blocks from its arrival for a given time (open loop: a slow cache does
not delay the next arrival). Held blocks leave the set of ranks and come back when the
last request that holds them ends.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import BitSet, add, empty, peek, pop_lowest, remove
from perc.replay import Columns, checked_ranks, engine_columns
from perc.shapes import pad
from perc.types import Hits, Trace


class _Cache(NamedTuple):
    ranks: BitSet  # of resident blocks that no request holds
    size: jax.Array  # i32[], how many those are
    held: jax.Array  # i32[], resident blocks that some request holds
    pins: jax.Array  # i32[M], requests that hold the block
    current: jax.Array  # i32[M], rank of the block as last set
    holds: jax.Array  # i32[N], 1 = the request of this access holds the block


def replay_held(
    trace: Trace,
    ranks: np.ndarray,
    capacities: Sequence[int],
    duration_s: np.ndarray | float,
    *,
    refresh: bool = True,
) -> Hits:
    """Counts hits while requests hold their blocks for their duration.

    What does not fit beside the held blocks is not stored: a request keeps its first
    blocks for which there is room.

    Args:
        trace: N accesses of R requests.
        ranks: i32[N], from `perc.ranks`.
        capacities: K sizes in blocks.
        duration_s: f64[R] or one number, seconds from arrival to the end of each
            request. One that ends when another arrives has let go of its blocks.
        refresh: a hit sets the block's rank again.

    Returns:
        Hits: blocks i32[K, R] and evictions i32[K]; blocks that are not stored for want
        of room count as evictions.

    Raises:
        ValueError: for a negative or missing duration or capacity.
    """
    duration = np.broadcast_to(np.asarray(duration_s, np.float64), trace.n_requests)
    if not (duration >= 0).all():
        raise ValueError("a duration is negative or missing; give seconds, 0 or more")
    if any(capacity < 0 for capacity in capacities):
        raise ValueError(f"negative capacity in {list(capacities)}; give 0 or more")
    shape = (len(capacities), trace.n_requests)
    hits, evictions = np.zeros(shape, np.int32), np.zeros(len(capacities), np.int32)
    if trace.n_accesses:
        columns = engine_columns(trace, checked_ranks(np.asarray(ranks)), refresh=False)
        ending, before = releases(trace, duration)
        schedule = jnp.asarray(pad(ending, 0)), jnp.asarray(pad(before, 2**31 - 1))
        for k, capacity in enumerate(capacities):
            size = min(int(capacity), trace.n_accesses)
            leading, evictions[k] = _replay_one(columns, *schedule, size, refresh)
            hits[k] = leading[: trace.n_requests]
    return Hits(hits, evictions)


def releases(trace: Trace, duration_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order in which requests end.

    Returns:
        Requests i32[R] by end, and the request i32[R] before whose arrival each ends.
    """
    end = trace.arrival_s + duration_s
    before = np.searchsorted(trace.arrival_s, end, side="left")
    before = np.maximum(before, np.arange(trace.n_requests) + 1)  # after its own start
    order = np.lexsort((end, before))
    return order.astype(np.int32), before[order].astype(np.int32)


@functools.partial(jax.jit, static_argnames="refresh")
def _replay_one(c: Columns, ending, before, capacity, refresh):
    n_accesses, n_requests = c.rank.shape[0], c.start.shape[0]
    none = jnp.zeros(n_accesses, jnp.int32)
    cache = _Cache(empty(n_accesses), jnp.int32(0), jnp.int32(0), none, none - 1, none)

    def serve(r, carry):
        cache, ended, hits, evictions = carry
        cache, ended = _let_go(cache, c, ending, before, ended, r)
        first, last = c.start[r], c.stop[r]
        cache, hit, own = _look_up(cache, c, first, c.seen_stop[r])
        room = capacity - cache.held
        wanted = last - first - own
        stored = jnp.minimum(wanted, room)
        outside = cache.size
        cache = _evict_down_to(cache, room - stored)
        gone = outside - cache.size + wanted - stored
        cache = _store(cache, c, r, stored, refresh)
        return cache, ended, hits.at[r].set(hit), evictions + gone

    carry = (cache, jnp.int32(0), jnp.zeros(n_requests, jnp.int32), jnp.int32(0))
    _, _, hits, evictions = lax.fori_loop(0, n_requests, serve, carry)
    return hits, evictions


def _let_go(cache, c, ending, before, ended, r):
    """Ends the requests that are over before request r arrives."""

    def end_one(carry):
        cache, e = carry
        done = ending[e]

        def let_go(i, cache):
            holding = peek(cache.holds, i)
            block = c.block[i]
            pins = peek(cache.pins, block) - holding
            rank = peek(cache.current, block)
            free = (holding > 0) & (pins == 0)
            ranks = add(cache.ranks, jnp.maximum(rank, 0), free)
            moved = jnp.where(free, 1, 0)
            return cache._replace(
                ranks=ranks,
                size=cache.size + moved,
                held=cache.held - moved,
                pins=cache.pins.at[block].set(pins),
                current=cache.current.at[block].set(rank),
            )

        return lax.fori_loop(c.start[done], c.stop[done], let_go, cache), e + 1

    return lax.while_loop(lambda carry: before[carry[1]] <= r, end_one, (cache, ended))


def _look_up(cache, c, first, last):
    """The leading resident run, and how many own blocks others hold.

    Unheld blocks of the request leave the set of ranks, safe from eviction. What is
    not resident loses its rank.
    """

    def look(i, carry):
        words, pins, current, hit, own, size = carry
        block = c.block[i]
        count, rank = peek(pins, block), peek(current, block)
        words, listed = remove(words, jnp.where(count > 0, -1, rank))
        resident = listed | (count > 0)
        hit = jnp.where(resident & (hit == i - first), hit + 1, hit)
        return (
            words,
            pins.at[block].set(count),
            current.at[block].set(jnp.where(resident, rank, -1)),
            hit,
            own + jnp.where(count > 0, 1, 0),
            size - jnp.where(listed, 1, 0),
        )

    words, pins, current, hit, own, size = lax.fori_loop(
        first,
        last,
        look,
        (
            cache.ranks.words,
            cache.pins,
            cache.current,
            jnp.int32(0),
            jnp.int32(0),
            cache.size,
        ),
    )
    cache = cache._replace(
        ranks=cache.ranks._replace(words=words),
        pins=pins,
        current=current,
        size=size,
    )
    return cache, hit, own


def _evict_down_to(cache, most):
    def evict(carry):
        ranks, size = carry
        ranks, rank = pop_lowest(ranks)
        return ranks, size - jnp.where(rank >= 0, 1, 0)

    ranks, size = lax.while_loop(
        lambda carry: carry[1] > most, evict, (cache.ranks, cache.size)
    )
    return cache._replace(ranks=ranks, size=size)


def _store(cache, c, r, stored, refresh):
    """Holds the first `stored` blocks that nobody holds, and all that others hold."""

    def store(i, carry):
        pins, current, holds, left = carry
        block = c.block[i]
        count, rank = peek(pins, block), peek(current, block)
        takes = (count == 0) & (left > 0)
        keeps = takes | (count > 0)
        fresh = refresh | (rank < 0)
        new = jnp.where(keeps & fresh, c.rank[i], jnp.where(keeps, rank, -1))
        return (
            pins.at[block].set(count + jnp.where(keeps, 1, 0)),
            current.at[block].set(new),
            holds.at[i].set(jnp.where(keeps, 1, 0)),
            left - jnp.where(takes, 1, 0),
        )

    pins, current, holds, _ = lax.fori_loop(
        c.start[r],
        c.stop[r],
        store,
        (cache.pins, cache.current, cache.holds, stored),
    )
    held = cache.held + stored
    return cache._replace(pins=pins, current=current, holds=holds, held=held)
