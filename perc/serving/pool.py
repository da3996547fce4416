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

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import BitSet, add, bit_of, peek, pop_lowest, remove, write
from perc.floats import Array
from perc.serving.free import (
    Free,
    Lines,
    into_line,
    out_of_line,
    pinned,
    unpinned,
    used_now,
)

PINS, RANK, READY, SHIELDS, USED = range(5)  # columns of `Pool.rows`


class Accesses(NamedTuple):
    """What the pool reads of a trace; padded, and never written."""

    block: jax.Array  # i32[N]
    rank: jax.Array  # i32[N]
    refresh: jax.Array  # bool[], a hit sets the rank again
    lines: Lines | None = None  # None: the order never changes


class Pool(NamedTuple):
    """Which blocks are where."""

    cached: BitSet  # ranks of cached blocks
    rows: jax.Array  # i32[M, 4]: pins, rank (-1 = none), content (0 = never computed,
    # -1 = lost), shields and, with `free`, when it was used last, `free.used_now`
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


def look_up(pool: Pool, c: Accesses, start, stop) -> tuple[jax.Array, ...]:
    """Leading blocks that are there, those that ever were, and all unpinned, i32[]."""

    def look(i, carry):
        hit, known, unpinned = carry
        row = peek(pool.rows, c.block[i])
        free = row[PINS] == 0
        hit = jnp.where(is_there(pool, row) & (hit == i - start), hit + 1, hit)
        known = jnp.where((row[READY] != 0) & (known == i - start), known + 1, known)
        return hit, known, unpinned + jnp.where(free, 1, 0).astype(jnp.int32)

    return lax.fori_loop(start, stop, look, (jnp.int32(0),) * 3)


def is_there(pool: Pool, row: jax.Array) -> jax.Array:
    """Whether the content of a block is there, bool[]; `row` is its row."""
    return jnp.where(row[PINS] == 0, _is_cached(pool, row[RANK]), row[READY] > 0)


def hold(pool: Pool, c: Accesses, start, stop) -> Pool:
    """Pins the blocks of accesses start..stop-1; what is new has yet to be computed."""

    def pin(i, carry):
        words, rows, size, held, safe, lines = carry
        row = peek(rows, c.block[i])
        free = row[PINS] == 0
        words, plain = remove(words, jnp.where(free, row[RANK], -1))
        cached = plain
        if safe is not None:
            shields, count = safe
            shields, kept = remove(shields, jnp.where(free, row[RANK], -1))
            safe, cached = (shields, count - _one(kept)), plain | kept
        known = cached | ~free
        rank = jnp.where(c.refresh | ~known, c.rank[i], row[RANK])
        lost = free & ~cached  # that it was computed stays known
        ready = jnp.where(lost, -jnp.abs(row[READY]), row[READY])
        new = [row[PINS] + 1, rank, ready, row[SHIELDS]]
        if lines is not None and c.lines is not None:
            lines = pinned(lines, c.lines, c.block[i], row[RANK], plain, ~known)
            new.append(used_now(lines))
        rows = write(rows, c.block[i], jnp.stack(new))
        return words, rows, size - _one(cached), held + _one(free), safe, lines

    safe = None if pool.shielded is None else (pool.shielded.words, pool.kept)
    carry = (pool.cached.words, pool.rows, pool.size, pool.pinned, safe, pool.free)
    words, rows, size, held, safe, lines = lax.fori_loop(start, stop, pin, carry)
    cached = pool.cached._replace(words=words)
    pool = pool._replace(cached=cached, rows=rows, size=size, pinned=held, free=lines)
    if safe is None or pool.shielded is None:
        return pool
    words, kept = safe
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
        cached, rows, size, held, safe, lines = carry
        i = start + stop - 1 - j  # the deepest first
        row = peek(rows, c.block[i])
        free = row[PINS] == 1
        keep = free & (row[READY] > 0)
        plain = keep
        if safe is not None:
            shields, count = safe
            shield = keep & (row[SHIELDS] > 0)
            plain = keep & ~shield
            shields = add(shields, jnp.maximum(row[RANK], 0), shield)
            safe = (shields, count + _one(shield))
        cached = add(cached, jnp.maximum(row[RANK], 0), plain)
        if lines is not None and c.lines is not None:
            lost = free & ~keep
            lines = unpinned(lines, c.lines, c.block[i], row[RANK], plain, lost)
        rank = jnp.where(free & ~keep, -1, row[RANK])
        rest = [row[column] for column in range(READY, rows.shape[1])]
        rows = write(rows, c.block[i], jnp.stack([row[PINS] - 1, rank, *rest]))
        return cached, rows, size + _one(keep), held - _one(free), safe, lines

    safe = None if pool.shielded is None else (pool.shielded, pool.kept)
    carry = (pool.cached, pool.rows, pool.size, pool.pinned, safe, pool.free)
    cached, rows, size, held, safe, lines = lax.fori_loop(start, stop, unpin, carry)
    pool = pool._replace(cached=cached, rows=rows, size=size, pinned=held, free=lines)
    if safe is None:
        return pool
    return pool._replace(shielded=safe[0], kept=safe[1])


def shield(pool: Pool, c: Accesses, start, stop, wanted: Array) -> Pool:
    """The blocks of accesses start..stop-1 are shielded once more, if wanted."""
    return _move(pool, c, start, jnp.where(wanted, stop, start), 1)


def unshield(pool: Pool, c: Accesses, start, stop, wanted: Array) -> Pool:
    """And once less."""
    return _move(pool, c, start, jnp.where(wanted, stop, start), -1)


def _move(pool: Pool, c: Accesses, start, stop, by: int) -> Pool:
    """Counts shields, and moves the blocks that get their first or lose their last."""

    def move(i, carry):
        cached, safe, rows, kept, lines = carry
        row = peek(rows, c.block[i])
        before, after = row[SHIELDS], row[SHIELDS] + by
        turns = (row[PINS] == 0) & ((before == 0) | (after == 0))
        rank = jnp.where(turns, row[RANK], -1)
        into, out = (safe, cached) if by > 0 else (cached, safe)
        words, was = remove(out.words, rank)
        out = out._replace(words=words)
        into = add(into, jnp.maximum(rank, 0), was)
        cached, safe = (out, into) if by > 0 else (into, out)
        if lines is not None and c.lines is not None:
            if by > 0:
                lines = out_of_line(lines, c.lines, rank, was)
            else:
                lines = into_line(lines, c.lines, c.block[i], rank, was)
        rows = write(rows, c.block[i], row.at[SHIELDS].set(after))
        return cached, safe, rows, kept + by * _one(was), lines

    carry = (pool.cached, pool.shielded, pool.rows, pool.kept, pool.free)
    cached, safe, rows, kept, lines = lax.fori_loop(start, stop, move, carry)
    return pool._replace(cached=cached, shielded=safe, rows=rows, kept=kept, free=lines)


def hold_computed(pool: Pool, c: Accesses, start, stop) -> Pool:
    """Pins computed blocks that nobody asked for yet, such as those of an answer."""
    return computed(hold(pool, c, start, stop), c, start, stop)


def room(pool: Pool, capacity: jax.Array) -> jax.Array:
    """Blocks i32[] that are free or cached."""
    return capacity - pool.pinned - pool.private


def goal(pool: Pool, capacity: jax.Array) -> jax.Array:
    """How many blocks i32[] may stay cached: what fits, and all that are shielded."""
    most = room(pool, capacity)
    return most if pool.kept is None else jnp.maximum(most, pool.kept)


def evict(
    pool: Pool, capacity: jax.Array, below: Any, leave: Callable[[Any, Any], Any]
) -> tuple[Pool, Any]:
    """Drops the lowest ranks until all blocks fit, or only shielded ones are left.

    Args:
        pool: the blocks.
        capacity: i32[], blocks.
        below: what `leave` carries from victim to victim.
        leave: told of every rank that leaves.
    """
    most = goal(pool, capacity)

    def drop(carry):
        cached, size, below = carry
        cached, rank = pop_lowest(cached)
        return cached, size - _one(rank >= 0), leave(below, rank)

    cached, size, below = lax.while_loop(
        lambda carry: carry[1] > most, drop, (pool.cached, pool.size, below)
    )
    gone = pool.size - size
    pool = pool._replace(cached=cached, size=size, evictions=pool.evictions + gone)
    return pool, below


def _is_cached(pool: Pool, rank: jax.Array) -> jax.Array:
    words = pool.cached.words
    at = jnp.where(rank >= 0, rank >> 5, words.shape[0] - 1)
    word = peek(words, at)
    if pool.shielded is not None:
        word = word | peek(pool.shielded.words, at)
    return (rank >= 0) & ((word & bit_of(jnp.maximum(rank, 0))) != 0)


def _one(flag: jax.Array) -> jax.Array:
    return flag.astype(jnp.int32)
