"""The blocks of the prefix cache: cached, or pinned by requests that run.

    capacity = cached + pinned + private + free

A block that some request runs on is pinned: no victim, whatever its rank. When the last
of them lets go, the block is cached under its rank, if its content was computed, and
lost otherwise. Private blocks hold answers, which only their own request reads.

Cached blocks are a set of ranks (`perc.bitset`): a block is cached if the bit of its
rank is set, and the lowest rank leaves first. `perc.held` does the same for requests
whose durations are given. Under retention those that some ended turn shields are in a
second set, from which none leaves (`retained`). Where the order of victims changes
while blocks idle, ranks only number the uses, and `free` says who may leave
(`victims`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import BitSet, add, bit_of, peek, pop_lowest, remove, write
from perc.floats import Array
from perc.serving.free import Free, Lines, pinned, unpinned, used_now

PINS, RANK, READY, SHIELDS = range(4)  # columns of `Pool.rows`
USED = SHIELDS  # with `Pool.free`, which has no shields: `free.used_now`


class Accesses(NamedTuple):
    """What the pool reads of a trace; padded, and never written."""

    block: jax.Array  # i32[N]
    rank: jax.Array  # i32[N]
    refresh: jax.Array  # bool[], a hit sets the rank again
    lines: Lines | None = None  # None: the order never changes


class Pool(NamedTuple):
    """Which blocks are where."""

    cached: BitSet  # ranks of cached blocks
    rows: jax.Array  # i32[M, 4]: pins, rank (-1 = none), content was computed, shields
    # or, with `free`, when it was used last
    size: jax.Array  # i32[], cached blocks, shielded or not
    pinned: jax.Array  # i32[]
    private: jax.Array  # i32[]
    evictions: jax.Array  # i32[]
    shielded: BitSet | None = None  # ranks of shielded blocks; None: no retention
    kept: jax.Array | None = None  # i32[], how many
    free: Free | None = None  # None: ranks are the order of victims


def at_time(pool: Pool, now, latest) -> Pool:
    """The pool at a later moment, when a request of that number has been admitted."""
    if pool.free is None:
        return pool
    latest = jnp.maximum(pool.free.latest, latest)
    free = pool.free._replace(now_s=now.astype(jnp.float32), latest=latest)
    return pool._replace(free=free)


def look_up(pool: Pool, c: Accesses, start, stop) -> tuple[jax.Array, jax.Array]:
    """The leading blocks whose content is there, and those that nobody pins, i32[]."""

    def look(i, carry):
        hit, unpinned = carry
        row = peek(pool.rows, c.block[i])
        free = row[PINS] == 0
        hit = jnp.where(is_there(pool, row) & (hit == i - start), hit + 1, hit)
        return hit, unpinned + jnp.where(free, 1, 0).astype(jnp.int32)

    return lax.fori_loop(start, stop, look, (jnp.int32(0), jnp.int32(0)))


def is_there(pool: Pool, row: jax.Array) -> jax.Array:
    """Whether the content of a block is there, bool[]; `row` is its row."""
    return jnp.where(row[PINS] == 0, _is_cached(pool, row[RANK]), row[READY] > 0)


def hold(pool: Pool, c: Accesses, start, stop) -> Pool:
    """Pins the blocks of accesses start..stop-1; what is new has yet to be computed."""

    def pin(i, carry):
        words, rows, size, held, shielded, lines = carry
        row = peek(rows, c.block[i])
        free = row[PINS] == 0
        words, cached = remove(words, jnp.where(free, row[RANK], -1))
        if shielded is not None:
            shields, count = shielded
            shields, kept = remove(shields, jnp.where(free, row[RANK], -1))
            shielded, cached = (shields, count - _one(kept)), cached | kept
        known = cached | ~free
        rank = jnp.where(c.refresh | ~known, c.rank[i], row[RANK])
        ready = jnp.where(free, cached.astype(jnp.int32), row[READY])
        last = row[SHIELDS]
        if lines is not None and c.lines is not None:
            lines = pinned(lines, c.lines, c.block[i], row[RANK], cached, ~known)
            last = used_now(lines)
        new = jnp.stack([row[PINS] + 1, rank, ready, last])
        rows = write(rows, c.block[i], new)
        return words, rows, size - _one(cached), held + _one(free), shielded, lines

    shielded = None if pool.shielded is None else (pool.shielded.words, pool.kept)
    carry = (pool.cached.words, pool.rows, pool.size, pool.pinned, shielded, pool.free)
    words, rows, size, held, shielded, lines = lax.fori_loop(start, stop, pin, carry)
    cached = pool.cached._replace(words=words)
    pool = pool._replace(cached=cached, rows=rows, size=size, pinned=held, free=lines)
    if shielded is None or pool.shielded is None:
        return pool
    words, kept = shielded
    return pool._replace(shielded=pool.shielded._replace(words=words), kept=kept)


def computed(pool: Pool, c: Accesses, start, stop) -> Pool:
    """The content of the blocks of accesses start..stop-1 is there from now on."""

    def mark(i, rows):
        row = peek(rows, c.block[i])
        return write(rows, c.block[i], row.at[READY].set(1))

    return pool._replace(rows=lax.fori_loop(start, stop, mark, pool.rows))


def let_go(pool: Pool, c: Accesses, start, stop) -> Pool:
    """A request ends: what nobody else pins is cached, or lost if never computed."""

    def unpin(j, carry):
        cached, rows, size, held, shielded, lines = carry
        i = start + stop - 1 - j  # the deepest first
        row = peek(rows, c.block[i])
        free = row[PINS] == 1
        keep = free & (row[READY] > 0)
        plain = keep
        if shielded is not None:
            shields, count = shielded
            shield = keep & (row[SHIELDS] > 0)
            plain = keep & ~shield
            shields = add(shields, jnp.maximum(row[RANK], 0), shield)
            shielded = (shields, count + _one(shield))
        cached = add(cached, jnp.maximum(row[RANK], 0), plain)
        if lines is not None and c.lines is not None:
            lost = free & ~keep
            lines = unpinned(lines, c.lines, c.block[i], row[RANK], keep, lost)
        rank = jnp.where(free & ~keep, -1, row[RANK])
        new = jnp.stack([row[PINS] - 1, rank, row[READY], row[SHIELDS]])
        rows = write(rows, c.block[i], new)
        return cached, rows, size + _one(keep), held - _one(free), shielded, lines

    shielded = None if pool.shielded is None else (pool.shielded, pool.kept)
    carry = (pool.cached, pool.rows, pool.size, pool.pinned, shielded, pool.free)
    cached, rows, size, held, shielded, lines = lax.fori_loop(start, stop, unpin, carry)
    pool = pool._replace(cached=cached, rows=rows, size=size, pinned=held, free=lines)
    if shielded is None:
        return pool
    return pool._replace(shielded=shielded[0], kept=shielded[1])


def shield(pool: Pool, c: Accesses, start, stop, wanted: Array) -> Pool:
    """The blocks of accesses start..stop-1 are shielded once more, if wanted."""
    return _move(pool, c, start, jnp.where(wanted, stop, start), 1)


def unshield(pool: Pool, c: Accesses, start, stop, wanted: Array) -> Pool:
    """And once less."""
    return _move(pool, c, start, jnp.where(wanted, stop, start), -1)


def _move(pool: Pool, c: Accesses, start, stop, by: int) -> Pool:
    """Counts shields, and moves the blocks that get their first or lose their last."""

    def move(i, carry):
        cached, shielded, rows, kept = carry
        row = peek(rows, c.block[i])
        before, after = row[SHIELDS], row[SHIELDS] + by
        turns = (row[PINS] == 0) & ((before == 0) | (after == 0))
        rank = jnp.where(turns, row[RANK], -1)
        into, out = (shielded, cached) if by > 0 else (cached, shielded)
        words, was = remove(out.words, rank)
        out = out._replace(words=words)
        into = add(into, jnp.maximum(rank, 0), was)
        cached, shielded = (out, into) if by > 0 else (into, out)
        rows = write(rows, c.block[i], row.at[SHIELDS].set(after))
        return cached, shielded, rows, kept + by * _one(was)

    carry = (pool.cached, pool.shielded, pool.rows, pool.kept)
    cached, shielded, rows, kept = lax.fori_loop(start, stop, move, carry)
    return pool._replace(cached=cached, shielded=shielded, rows=rows, kept=kept)


def hold_computed(pool: Pool, c: Accesses, start, stop) -> Pool:
    """Pins computed blocks that nobody asked for yet, such as those of an answer."""
    return computed(hold(pool, c, start, stop), c, start, stop)


def room(pool: Pool, capacity: jax.Array) -> jax.Array:
    """Blocks i32[] that are free or cached."""
    return capacity - pool.pinned - pool.private


def evict(pool: Pool, capacity: jax.Array) -> Pool:
    """Drops the lowest ranks until all blocks fit, or only shielded ones are left."""
    most = room(pool, capacity)
    if pool.kept is not None:
        most = jnp.maximum(most, pool.kept)

    def drop(carry):
        cached, size = carry
        cached, rank = pop_lowest(cached)
        return cached, size - _one(rank >= 0)

    cached, size = lax.while_loop(
        lambda carry: carry[1] > most, drop, (pool.cached, pool.size)
    )
    gone = pool.size - size
    return pool._replace(cached=cached, size=size, evictions=pool.evictions + gone)


def _is_cached(pool: Pool, rank: jax.Array) -> jax.Array:
    words = pool.cached.words
    at = jnp.where(rank >= 0, rank >> 5, words.shape[0] - 1)
    word = peek(words, at)
    if pool.shielded is not None:
        word = word | peek(pool.shielded.words, at)
    return (rank >= 0) & ((word & bit_of(jnp.maximum(rank, 0))) != 0)


def _one(flag: jax.Array) -> jax.Array:
    return flag.astype(jnp.int32)
