"""Many capacities in one replay: a block has one level, the smallest cache it is in.

Where the order of the ranks is the same for all capacities, whatever a cache holds is
held by every larger one too (Mattson et al. 1970). It holds for whole requests as well:
of two full caches the smaller hits less, so it drops more of the lowest ranks. So K
caches of rising size are K *levels*: level k holds what is in cache k and in no smaller
one, and a block that leaves cache k falls to level k + 1.

    hit in cache k  <=>  level <= k          blocks of cache k = sum of levels 0..k

An access then costs one look-up and one insertion for all capacities together, and
evictions move up to 32 blocks at a time. Level K is outside of every cache.

A level is a bit set over ranks, as in `perc.bitset`, whose rules keep these loops free
of copies; the levels lie side by side, so that a word of all of them is one row. XLA
compiles a loop to native code only while its body touches little memory, in jax 0.10
less than in 0.12: hence `LANES`, and single numbers where vectors would be shorter.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import WORD, bit_of, lowest_bit, peek
from perc.shapes import bucket
from perc.types import Trace

LANES = 16  # capacities of one compiled replay
SMALLEST = 256  # accesses or requests of a compiled program


class Requests(NamedTuple):
    """Where the accesses of each request lie, padded with requests without any."""

    start: jax.Array  # i32[R]
    stop: jax.Array  # i32[R]
    seen_stop: jax.Array  # i32[R], accesses from here on are first ones: no hits


class _Levels(NamedTuple):
    words: jax.Array  # u32[(N/32 + 1) * (K + 1)], a bit a rank, level by level
    tops: jax.Array  # u32[(N/1024 + 1) * (K + 1)], bit = its word may be non-zero
    crowns: jax.Array  # u32[(N/32768 + 1) * (K + 1)], bit = its top may be non-zero
    lows: jax.Array  # i32[K + 1], no bit is set in `crowns` below this word
    counts: jax.Array  # i32[K + 1], blocks of the level


def order_columns(trace: Trace, ranks: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Ranks before and now of each access, padded as `replay_levels` reads them."""
    before = np.where(trace.prev >= 0, ranks[trace.prev], 0)
    return jnp.asarray(pad(before)), jnp.asarray(pad(ranks))


def requests_of(trace: Trace) -> Requests:
    """Lays the requests out. What was seen before is a leading run of each."""
    seen = np.bincount(trace.request[trace.prev >= 0], minlength=trace.n_requests)
    columns = (trace.start, trace.stop, trace.start + seen)
    return Requests(*(jnp.asarray(pad(column)) for column in columns))


def pad(column: np.ndarray) -> np.ndarray:
    """i32, lengthened with zeros by an eighth at most, so that similar traces share it.

    >>> [len(pad(np.zeros(n))) for n in (100, 1000, 10_000)]
    [256, 1024, 10240]
    """
    step = max(1 << max(len(column).bit_length() - 4, 0), SMALLEST)
    padded = np.zeros(max(-(-len(column) // step), 1) * step, np.int32)
    padded[: len(column)] = column
    return padded


def passes(capacities: Sequence[int], n_accesses: int) -> list[np.ndarray]:
    """Splits rising capacities into i32 groups of one size, for one program.

    The last group is filled with larger sizes, whose results are to be dropped. Sizes
    that hold everything anyway become smaller, and still rise.
    """
    sizes = [min(size, n_accesses + k) for k, size in enumerate(capacities)]
    count = max(-(-len(sizes) // LANES), 1)
    width = bucket(-(-len(sizes) // count), 2)  # few widths, few programs
    groups = [sizes[i : i + width] for i in range(0, len(sizes), width)]
    for k in range(width - len(groups[-1])):
        groups[-1].append(n_accesses + len(sizes) + k)
    return [np.asarray(group, np.int32) for group in groups]


@functools.partial(jax.jit, static_argnames="bypass")
def replay_levels(
    before: jax.Array,
    rank: jax.Array,
    requests: Requests,
    capacities: jax.Array,
    bypass: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """One order at K capacities, equal to `perc.replay` at each of them.

    Args:
        before: i32[N], rank of the block's access before; only read before `seen_stop`.
        rank: i32[N], a permutation; what no request accesses may hold anything.
        requests: R requests.
        capacities: i32[K], rising. Equal ones would break the loops' arithmetic.
        bypass: the running request's blocks may be victims.

    Returns:
        Leading resident blocks i32[K, R], and evictions i32[K].
    """
    n_lanes, n_requests = capacities.shape[0] + 1, requests.start.shape[0]

    def serve(r, carry):
        levels, reached, gone = carry
        first, last = requests.start[r], requests.stop[r]
        levels, reached = _take_out(
            levels, reached, before, first, requests.seen_stop[r], r * n_lanes
        )
        if bypass:
            levels = _put_in(levels, rank, first, last, None)
            levels, gone = _evict(levels, gone, capacities, 0, 0)
        else:
            levels, gone = _evict(levels, gone, capacities, last - first, last - first)
            levels = _put_in(levels, rank, first, last, capacities)
        return levels, reached, gone

    reached = jnp.zeros(n_requests * n_lanes, jnp.int32)
    carry = (_empty(rank.shape[0], n_lanes), reached, jnp.zeros(n_lanes, jnp.int32))
    _, reached, gone = lax.fori_loop(0, n_requests, serve, carry)
    hits = jnp.cumsum(reached.reshape(n_requests, n_lanes)[:, :-1], axis=1)
    return hits.T, gone[:-1]


def _empty(n: int, n_lanes: int) -> _Levels:
    sizes = []
    for _ in range(3):
        n = -(-n // WORD)
        sizes.append((n + 1) * n_lanes)  # the last row is scratch
    words, tops, crowns = (jnp.zeros(size, jnp.uint32) for size in sizes)
    small = jnp.zeros(n_lanes, jnp.int32)
    return _Levels(words, tops, crowns, small, small)


def _take_out(levels, reached, before, first, last, row):
    """Looks the request up and takes its blocks out of their levels.

    `reached[row + k]` counts the blocks whose prefix needs cache k or a larger one.
    """
    n_lanes = levels.counts.shape[0]

    def take(i, carry):
        words, counts, reached, deepest = carry
        at, bit = (before[i] >> 5) * n_lanes, bit_of(before[i])
        lanes = _slice(words, at, n_lanes)
        level = jnp.sum(jnp.where(lanes & bit != 0, jnp.arange(n_lanes), 0))
        words = lax.dynamic_update_slice(words, lanes & ~bit, (at,))
        deepest = jnp.maximum(deepest, level)
        return (
            words,
            _add_at(counts, level, -1),
            _add_at(reached, row + deepest, 1),
            deepest,
        )

    words, counts, reached, _ = lax.fori_loop(
        first, last, take, (levels.words, levels.counts, reached, jnp.int32(0))
    )
    return levels._replace(words=words, counts=counts), reached


def _put_in(levels, rank, first, last, capacities):
    """Puts the request in: into the smallest cache that has room for the block.

    That is the first level, but for blocks beyond the size of a cache, which keeps the
    first blocks only. With `capacities` None everything goes to the first level.
    """
    n_lanes = levels.counts.shape[0]

    def put(i, carry):
        (words, tops, crowns, lows, counts), level = carry
        if capacities is not None:
            full = capacities[jnp.minimum(level, n_lanes - 2)] <= i - first
            level = jnp.minimum(level + full, n_lanes - 1)
        word, top, crown = rank[i] >> 5, rank[i] >> 10, rank[i] >> 15
        words = _or_at(words, word * n_lanes + level, bit_of(rank[i]))
        tops = _or_at(tops, top * n_lanes + level, bit_of(word))
        crowns = _or_at(crowns, crown * n_lanes + level, bit_of(top))
        lows = lows.at[level].set(jnp.minimum(peek(lows, level), crown))
        return _Levels(words, tops, crowns, lows, _add_at(counts, level, 1)), level

    return lax.fori_loop(first, last, put, (levels, jnp.int32(0)))[0]


def _evict(levels, gone, capacities, asked, n_new):
    """Lets each cache drop its lowest ranks until `asked` blocks fit, or none is left.

    `gone` counts them, and those of `n_new` blocks that do not fit.
    """

    def level_down(k, carry):
        levels, gone, size = carry
        words, tops, crowns, lows, counts = levels
        size = size + peek(counts, k)
        kept = jnp.minimum(asked, capacities[k])
        surplus = jnp.maximum(size + kept - capacities[k], 0)
        low = _slice(lows, k, 2)
        words, tops, crowns, first, second, _ = lax.while_loop(
            lambda carry: carry[-1] > 0,
            lambda carry: _move(*carry, k, counts.shape[0]),
            (words, tops, crowns, low[0], low[1], surplus),
        )
        lows = _set_pair(lows, k, first, second)
        counts = _add_at(_add_at(counts, k, -surplus), k + 1, surplus)
        gone = _add_at(gone, k, surplus + n_new - kept)
        levels = _Levels(words, tops, crowns, lows, counts)
        return levels, gone, size - surplus

    carry = (levels, gone, jnp.int32(0))
    return lax.fori_loop(0, capacities.shape[0], level_down, carry)[:2]


def _move(words, tops, crowns, low, below, surplus, k, n_lanes):
    """Moves the lowest ranks of one word down a level, or comes one step closer."""
    scratch_top = tops.shape[0] // n_lanes - 1
    scratch_word = words.shape[0] // n_lanes - 1
    crown = _slice(crowns, low * n_lanes + k, 2)
    i = jnp.where(crown[0] != 0, low * WORD + lowest_bit(crown[0]), scratch_top)
    top = _slice(tops, i * n_lanes + k, 2)
    j = jnp.where(top[0] != 0, i * WORD + lowest_bit(top[0]), scratch_word)
    word = _slice(words, j * n_lanes + k, 2)
    moved = _lowest_bits(word[0], surplus)
    some = moved != 0
    rest = word[0] & ~moved
    words = _set_pair(words, j * n_lanes + k, rest, word[1] | moved)
    rest = jnp.where(rest == 0, _without_lowest(top[0]), top[0])
    other = top[1] | jnp.where(some, bit_of(j), jnp.uint32(0))
    tops = _set_pair(tops, i * n_lanes + k, rest, other)
    rest = jnp.where(rest == 0, _without_lowest(crown[0]), crown[0])
    other = crown[1] | jnp.where(some, bit_of(i), jnp.uint32(0))
    crowns = _set_pair(crowns, low * n_lanes + k, rest, other)
    below = jnp.where(some, jnp.minimum(below, low), below)
    low = low + jnp.where(crown[0] == 0, 1, 0)
    return words, tops, crowns, low, below, surplus - _population(moved)


def _lowest_bits(word: jax.Array, n: jax.Array) -> jax.Array:
    """The `n` lowest set bits of a word, or all if there are fewer."""
    at = jnp.int32(0)  # where the n-th is, by bisection
    for step in (16, 8, 4, 2, 1):
        under = word & ((jnp.uint32(1) << (at + step).astype(jnp.uint32)) - 1)
        at = jnp.where(_population(under) < n, at + step, at)
    return word & ((jnp.uint32(2) << at.astype(jnp.uint32)) - 1)


def _population(word: jax.Array) -> jax.Array:
    return lax.population_count(word).astype(jnp.int32)


def _without_lowest(word: jax.Array) -> jax.Array:
    return word & (word - jnp.uint32(1))


def _slice(array: jax.Array, i: jax.Array, n: int) -> jax.Array:
    """`peek` for `n` neighbours."""
    return lax.cond(
        i >= 0,
        lambda: lax.dynamic_slice(array, (jnp.maximum(i, 0),), (n,)),
        lambda: jnp.zeros(n, array.dtype),
    )


def _set_pair(array, i, one, other):
    return lax.dynamic_update_slice(array, jnp.stack([one, other]), (i,))


def _add_at(array, i, by):
    return array.at[i].set(peek(array, i) + by)


def _or_at(array, i, bits):
    return array.at[i].set(peek(array, i) | bits)
