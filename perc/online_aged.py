"""The cache of an `Aged` rule: segments in order of age, class by class.

All blocks of a class and an age are worth the same, and a class's worth rises with age
to one peak, then falls. So of each class only two blocks can be the least worth: the
oldest and the newest that may leave. A victim is found among those ends, and a whole
run of blocks goes with it, which makes a replay cost some nanoseconds an access.

A block whose child is resident is no victim. `hang` counts, by block, the segments that
hang on it; a segment may leave while none hangs on its end. Those that may are bits in
the order of `Segments`, where each class is one stretch.

The loops keep the in-place contract of `perc/replay.py`: XLA must not copy the state.
Arrays with one entry a class are small, and may be.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import WORD, peek
from perc.lines import join_line, leave_line
from perc.lists import when
from perc.reuse import bin_of
from perc.segments import Segments

LAST = np.iinfo(np.int32).max


class _Cache(NamedTuple):
    rows: jax.Array  # i32[S, 3], depth of a segment's first block, after its last, and
    # the block above it; depths are equal if nothing of it is resident
    hang: jax.Array  # i32[M + 1, 2], segments on a block, and the one that it ends
    free: jax.Array  # u32[S / 32], bit = the segment may leave
    ends: jax.Array  # i32[2, K], first and last free segment of a class; -1 = none
    size: jax.Array  # i32[], resident blocks


class _Offers(NamedTuple):
    """The ends of every class, oldest first, while a request needs room."""

    worth: jax.Array  # f32[2, K], +inf = there is none
    tie: jax.Array  # i32[2, K]
    segment: jax.Array  # i32[2, K]


class _Prices(NamedTuple):
    """What is known when a request needs room."""

    worth: jax.Array  # f32[K, A]
    now_s: jax.Array  # f32[]


@jax.jit
def one_peak(worth: jax.Array) -> jax.Array:
    """Makes f32[..., A] rise to its highest value and fall from there.

    Before the peak a value becomes the lowest from there to the peak, after it the
    highest from there on. So a block that must wait for its best time is not thrown
    away in a lull on the way down.
    """
    axis = worth.ndim - 1
    peak = jnp.argmax(worth, axis, keepdims=True)
    before = jnp.arange(worth.shape[axis]) <= peak
    rising = lax.cummin(jnp.where(before, worth, jnp.inf), axis, reverse=True)
    return jnp.where(before, rising, lax.cummax(worth, axis, reverse=True))


@functools.partial(jax.jit, static_argnames="n_blocks")
def replay_aged(
    worth: jax.Array,
    epoch: jax.Array,
    s: Segments,
    capacity: jax.Array,
    n_blocks: int,
) -> tuple[jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R] and evictions.

    Args:
        worth: f32[E, K, A], by epoch, class and bin of age; by age it has one peak.
        epoch: i32[R], which of E a request sees.
        s: the trace.
        capacity: blocks.
        n_blocks: M, or more.
    """

    n_requests = s.length.shape[0]

    def serve(r, carry):
        cache, hits, evictions = carry
        cache, hit, gone = _serve(cache, s, r, worth[epoch[r]], capacity)
        return cache, hits.at[r].set(hit), evictions + gone

    cache = _empty(s, worth.shape[1], n_blocks)
    carry = (cache, jnp.zeros(n_requests, jnp.int32), jnp.int32(0))
    return lax.fori_loop(0, n_requests, serve, carry)[1:]


class Watch(NamedTuple):
    """What a guarded replay knows of two caches beside it; see `perc.guard`."""

    owed: jax.Array  # i32[R], hits of LRU, less those that are forgiven
    gain: jax.Array  # i32[R], hits of the unguarded policy, less those of LRU
    slack: jax.Array  # i32[], hits that the cache may be behind before it falls back
    reach: (
        jax.Array
    )  # i32[R], the most that past gains and losses count; it never falls
    credit: jax.Array  # i32[], the policy's lead at the start


@functools.partial(jax.jit, static_argnames="n_blocks")
def replay_guarded(
    worth: jax.Array,
    epoch: jax.Array,
    s: Segments,
    capacity: jax.Array,
    n_blocks: int,
    watch: Watch,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Like `replay_aged`, in LRU's order where the guard does not trust the policy.

    Where all are worth the same the order is that of ties, which is LRU's.

    Returns:
        Leading resident blocks i32[R], evictions, and bool[R], requests served in the
        policy's order.
    """
    n_requests, n_epochs = s.length.shape[0], worth.shape[0]
    worth = jnp.concatenate([worth, jnp.zeros_like(worth[:1])])

    def serve(r, carry):
        cache, hits, evictions, trusted, behind, lead = carry
        trusts = (behind <= watch.slack) & (lead > 0)
        prices = worth[jnp.where(trusts, epoch[r], n_epochs)]
        cache, hit, gone = _serve(cache, s, r, prices, capacity)
        behind = jnp.maximum(behind + watch.owed[r] - hit, -watch.reach[r])
        lead = jnp.clip(lead + watch.gain[r], -watch.reach[r], watch.reach[r])
        hits, trusted = hits.at[r].set(hit), trusted.at[r].set(trusts)
        return cache, hits, evictions + gone, trusted, behind, lead

    cache, none = _empty(s, worth.shape[1], n_blocks), jnp.int32(0)
    found = jnp.zeros(n_requests, jnp.int32), none, jnp.zeros(n_requests, bool)
    carry = (cache, *found, none, watch.credit)
    return lax.fori_loop(0, n_requests, serve, carry)[1:4]


def _empty(s: Segments, n_classes: int, n_blocks: int) -> _Cache:
    n_segments = s.cls.shape[0]
    return _Cache(
        rows=jnp.zeros((n_segments, 3), jnp.int32),
        hang=jnp.zeros((n_blocks + 1, 2), jnp.int32),
        free=jnp.zeros(n_segments // WORD, jnp.uint32),
        ends=jnp.full((2, n_classes), -1),
        size=jnp.int32(0),
    )


def _serve(cache: _Cache, s: Segments, r, worth, capacity):
    """One request at prices f32[K, A]: the cache, its hits, and what has left."""
    before = cache.size
    cache, hit = _take(cache, s, r)
    kept = jnp.minimum(s.length[r], capacity)
    cache = _evict(cache, s, _Prices(worth, s.arrival_s[r]), capacity - kept)
    cache = _store(cache, s, r, kept)
    return cache, hit, before + s.length[r] - hit - cache.size


def _take(cache: _Cache, s: Segments, r) -> tuple[_Cache, jax.Array]:
    """Takes the request's resident blocks out of the segments that hold them.

    What a segment keeps, the deeper part, now hangs on the request's own blocks. No
    block is resident without its parent, so what is found is what leads.
    """

    def take(u, carry):
        cache, hit = carry
        segment, begin, stop = s.source[u], s.begin[u], s.stop[u]
        low, high, above = peek(cache.rows, segment)
        found = jnp.where(low < high, jnp.minimum(high, stop) - begin, 0)
        gone = (found > 0) & (high <= stop)
        stays = (found > 0) & (high > stop)
        row = jnp.where(
            gone,
            jnp.zeros(3, jnp.int32),
            jnp.where(stays, _row(stop, high, s.last[u]), _row(low, high, above)),
        )
        hang = _add(cache.hang, s.over[u], jnp.where(found > 0, -1, 0))
        cache = cache._replace(
            rows=cache.rows.at[segment].set(row),
            hang=_add(hang, s.last[u], jnp.where(stays, 1, 0)),
            size=cache.size - found,
        )
        return leave_line(cache, s.cls[segment], segment, gone), hit + found

    return lax.fori_loop(
        s.first_run[r], s.first_run[r + 1], take, (cache, jnp.int32(0))
    )


def _evict(cache: _Cache, s: Segments, prices: _Prices, most) -> _Cache:
    """Drops the least worth until at most `most` blocks are left."""

    def price(cls, carry):
        cache, offers = carry
        return cache, _price(offers, cache, cls, s, prices)

    def turn(carry):
        cache, offers = carry
        segment = _least(offers)
        low, high, above = peek(cache.rows, segment)
        left = high - jnp.minimum(cache.size - most, high - low)
        gone = left == low
        nobody = cache.hang.shape[0] - 1
        on, owner = peek(cache.hang, above)
        on = on - jnp.where(gone, 1, 0)
        rows = cache.rows.at[segment].set(_row(low, left, above))
        # Of the running request's blocks the segments are not stored yet: none wakes.
        its = peek(rows, owner)
        wakes = gone & (on == 0) & (above < nobody) & (its[0] < its[1])
        cls, above_cls = s.cls[segment], s.cls[owner]
        cache = cache._replace(
            rows=rows.at[owner].set(its),
            hang=cache.hang.at[above].set(jnp.stack([on, owner])),
            size=cache.size - (high - left),
        )
        cache = leave_line(cache, cls, segment, gone)
        cache = join_line(cache, above_cls, owner, wakes)
        return price(above_cls, price(cls, (cache, offers)))

    def evict(cache):
        shape = cache.ends.shape
        offers = _Offers(jnp.zeros(shape), jnp.zeros(shape, jnp.int32), cache.ends)
        carry = lax.fori_loop(0, shape[1], price, (cache, offers))
        return lax.while_loop(lambda carry: carry[0].size > most, turn, carry)[0]

    return when(cache.size > most, evict, cache)


def _store(cache: _Cache, s: Segments, r, kept) -> _Cache:
    """Stores the first `kept` blocks, the deepest segment first."""

    def store(i, cache):
        g = s.first_segment[r + 1] - 1 - (i - s.first_segment[r])
        segment, low, high = s.number[g], s.low[g], jnp.minimum(s.high[g], kept)
        stays = low < kept
        row = jnp.where(stays, _row(low, high, s.above[g]), 0)
        hang = _add(cache.hang, s.above[g], jnp.where(stays, 1, 0))
        on, owner = peek(hang, s.end[g])
        owner = jnp.where(stays, segment, owner)
        cache = cache._replace(
            rows=cache.rows.at[segment].set(row),
            hang=hang.at[s.end[g]].set(jnp.stack([on, owner])),
        )
        ends_here = (high < s.high[g]) | (on == 0)
        return join_line(cache, s.cls[segment], segment, stays & ends_here)

    cache = lax.fori_loop(s.first_segment[r], s.first_segment[r + 1], store, cache)
    return cache._replace(size=cache.size + kept)


def _least(offers: _Offers) -> jax.Array:
    """The segment of least worth; of equals the first in the order of ties."""
    equal = offers.worth == offers.worth.min()
    first = jnp.where(equal, offers.tie, LAST).min()
    return jnp.where(equal & (offers.tie == first), offers.segment, -1).max()


def _price(offers: _Offers, cache: _Cache, cls, s: Segments, prices: _Prices):
    """Writes what the two ends of a class are worth now."""
    n_ages = prices.worth.shape[1]
    for end in range(2):
        segment = cache.ends[end, cls]
        age = prices.now_s - s.time_s[jnp.maximum(segment, 0)]
        column = bin_of(lax.bitcast_convert_type(age, jnp.int32))
        worth = prices.worth[cls, jnp.minimum(column, n_ages - 1)]
        offer = (
            jnp.where(segment >= 0, worth, jnp.inf),
            s.tie[jnp.maximum(segment, 0)],
            segment,
        )
        offers = _Offers(
            *(old.at[end, cls].set(new) for old, new in zip(offers, offer, strict=True))
        )
    return offers


def _add(hang: jax.Array, block, change) -> jax.Array:
    on, owner = peek(hang, block)
    return hang.at[block].set(jnp.stack([on + change, owner]))


def _row(low, high, above) -> jax.Array:
    return jnp.stack([low, high, above])
