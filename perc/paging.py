"""A pool of physical blocks: reference counts, the order of reuse, several copies.

`perc.step` counts which contents are resident. An engine also has to say *where*: two
requests may write the same content into two physical blocks, a block may hold content
that no look-up can find, and one in use may not be given out. A physical block is

    pinned   memory that is never given out, such as the weights', or
    used     by one or more sequences, which hold references to it, or
    free     held by nobody; *cached* if a look-up still finds it by its key

and free + used + pinned is the size of the pool, always. Free blocks are given out in
this order, so that what nobody can find never displaces what somebody could:

    1. without a key, the last released first; then those never used, lowest first
    2. cached, by (score, least recently released), the tail of a release first

Functions are pure: the pool before in, the pool after out. What cannot be met in full
changes nothing and says `sufficient=False`. Arrays of blocks and keys are padded with
-1; what they name is passed over where it makes no sense (a key for a free block).

References:
    vLLM, `v1/core/block_pool.py`, with the free order since vllm#42656.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.errors import InputError


class BlockPool(NamedTuple):
    """C physical blocks."""

    key: jax.Array  # i32[C], content that a look-up finds here, -1 = none
    refs: jax.Array  # i32[C], sequences that hold the block
    stamp: jax.Array  # i32[C], order among free blocks with, or without, a key
    pinned: jax.Array  # bool[C], never given out
    clock: jax.Array  # i32[], releases so far, to make stamps
    evicted: jax.Array  # i32[], cached blocks that lost their key so far


class Given(NamedTuple):
    """What `allocate` and `evict` took from the free blocks."""

    blocks: jax.Array  # i32[C], in the order of the pool, then -1
    sufficient: jax.Array  # bool[], False: nothing changed
    removed: jax.Array  # i32[C], keys that no look-up finds any more, among -1


class Census(NamedTuple):
    """How many blocks are what; free + used + pinned = C."""

    free: jax.Array  # i32[], cached ones included
    used: jax.Array  # i32[]
    pinned: jax.Array  # i32[]
    cached: jax.Array  # i32[], free ones with a key
    keyed: jax.Array  # i32[], blocks with a key, used or free
    keys: jax.Array  # i32[], distinct keys


class Cover(NamedTuple):
    """The entries that `cover` takes."""

    entries: jax.Array  # i32[n], first victim first, then -1
    freed: jax.Array  # i32[], the sum of their sizes
    sufficient: jax.Array  # bool[], False: no entry is taken, freed is 0


def empty_pool(n_blocks: int, *, pinned_blocks: int = 0) -> BlockPool:
    """A pool without content, its first blocks pinned.

    Raises:
        InputError: unless 0 <= pinned_blocks <= n_blocks, with one block or more.

    Example:
        >>> pool, given = allocate(empty_pool(4, pinned_blocks=1), 2)
        >>> given.blocks.tolist()
        [1, 2, -1, -1]
        >>> [int(count) for count in census(pool)[:3]]  # free, used, pinned
        [1, 2, 1]
    """
    if n_blocks < 1 or not 0 <= pinned_blocks <= n_blocks:
        raise InputError(
            f"a pool of {n_blocks} blocks, {pinned_blocks} of them pinned; give one "
            "block or more, and pin at most all."
        )
    index = jnp.arange(n_blocks, dtype=jnp.int32)
    return BlockPool(
        key=jnp.full(n_blocks, -1, jnp.int32),
        refs=jnp.zeros(n_blocks, jnp.int32),
        stamp=index,
        pinned=index < pinned_blocks,
        clock=jnp.int32(0),
        evicted=jnp.int32(0),
    )


@jax.jit
def look_up(pool: BlockPool, keys: ArrayLike) -> jax.Array:
    """Physical blocks i32[L] of the leading keys that are found, then -1.

    Of several copies one in use is preferred, then the lowest block. Nothing changes:
    `hold` what is to stay.
    """
    keys = jnp.asarray(keys)
    order = jnp.lexsort((pool.refs == 0, pool.key))
    ordered = pool.key[order]
    at = jnp.minimum(jnp.searchsorted(ordered, keys), len(order) - 1)
    found = (keys >= 0) & (ordered[at] == keys)
    return jnp.where(jnp.cumprod(found) > 0, order[at], -1).astype(jnp.int32)


@jax.jit
def hold(pool: BlockPool, blocks: ArrayLike) -> BlockPool:
    """One more reference to each block that is used or cached: i32[L]."""
    at = _known(pool, blocks)
    live = (pool.refs > 0) | (pool.key >= 0)
    return pool._replace(refs=pool.refs.at[at].add(live[at], mode="drop"))


@jax.jit
def allocate(
    pool: BlockPool, n: ArrayLike, score: jax.Array | None = None
) -> tuple[BlockPool, Given]:
    """Gives `n` free blocks out, each with one reference and no key.

    Args:
        pool: C blocks.
        n: i32[]; 0 or less gives none.
        score: f32[C], what the cached blocks are worth; the lowest leaves first.
            None: the least recently released leaves first.
    """
    keyed = pool.key >= 0
    worth = jnp.zeros(len(keyed)) if score is None else score
    order = (pool.stamp, jnp.where(keyed, worth, 0), keyed)
    pool, given = _strip(pool, n, is_free(pool), order)
    at = _or_beyond(given.blocks, len(keyed))
    return pool._replace(refs=pool.refs.at[at].set(1, mode="drop")), given


@jax.jit
def evict(
    pool: BlockPool, n: ArrayLike, score: jax.Array | None = None
) -> tuple[BlockPool, Given]:
    """Takes the keys of `n` cached blocks, which stay free; arguments of `allocate`."""
    cached = is_free(pool) & (pool.key >= 0)
    worth = jnp.zeros(len(cached)) if score is None else score
    pool, given = _strip(pool, n, cached, (pool.stamp, worth))
    return _stamp(pool, given.blocks), given


@jax.jit
def name(
    pool: BlockPool, blocks: ArrayLike, keys: ArrayLike
) -> tuple[BlockPool, jax.Array]:
    """Lets look-ups find used blocks i32[L] by their keys i32[L].

    A block that has a key keeps it. Two blocks may have the same one.

    Returns:
        The pool, and the keys i32[L] that no look-up found before, among -1.
    """
    keys = jnp.asarray(keys)
    at = _known(pool, blocks)
    fresh = _first_of_each(at) & (pool.refs[at] > 0) & (pool.key[at] < 0)
    at = jnp.where(fresh & (keys >= 0), at, len(pool.key))
    given = jnp.where(at < len(pool.key), keys, -1)
    new = _first_of_each(given) & ~jnp.isin(given, pool.key)
    named = pool._replace(key=pool.key.at[at].set(given, mode="drop"))
    return named, jnp.where(new, given, -1)


@jax.jit
def release(pool: BlockPool, blocks: ArrayLike) -> BlockPool:
    """One reference less to each block i32[L], root first; the tail is reused first.

    A block that is not held is passed over.
    """
    at = _known(pool, blocks)
    refs = jnp.maximum(pool.refs.at[at].add(-1, mode="drop"), 0)
    freed = (at < len(refs)) & (pool.refs[at] > 0) & (refs[at] == 0)
    freed &= _first_of_each(at)
    return _stamp(pool._replace(refs=refs), jnp.where(freed, at, -1)[::-1])


@jax.jit
def census(pool: BlockPool) -> Census:
    """Counts the blocks by what they are."""
    free, keyed = is_free(pool), pool.key >= 0
    return Census(
        free=free.sum(),
        used=(~pool.pinned & (pool.refs > 0)).sum(),
        pinned=pool.pinned.sum(),
        cached=(free & keyed).sum(),
        keyed=keyed.sum(),
        keys=(_first_of_each(pool.key) & keyed).sum(),
    )


def is_free(pool: BlockPool) -> jax.Array:
    """bool[C], blocks that may be given out."""
    return ~pool.pinned & (pool.refs == 0)


@jax.jit
def cover(
    asked: ArrayLike, size: jax.Array, allowed: jax.Array, order: tuple[jax.Array, ...]
) -> Cover:
    """The first entries of an order that free what is asked for, or none at all.

    What is not allowed is left out before the order is looked at, so no value of a key
    can make it a victim. `freed >= asked`, and without the last victim it is less.

    Args:
        asked: i32[], in the unit of `size`; 0 or less takes nothing.
        size: i32[n], 1 or more.
        allowed: bool[n].
        order: arrays [n], the last one decides first, as in `lexsort`; the rest, and
            then the index, break ties.

    Example:
        >>> leaves, last_use = jnp.array([3, 5, 4]), jnp.array([1, 2, 3])
        >>> found = cover(6, leaves, leaves > 0, (last_use,))
        >>> found.entries.tolist(), int(found.freed)
        ([0, 1, -1], 8)
        >>> bool(cover(13, leaves, leaves > 0, (last_use,)).sufficient)
        False
    """
    rank = jnp.lexsort((*order, ~allowed))
    sizes = jnp.where(allowed, size, 0)[rank]
    total = jnp.cumsum(sizes)
    sufficient = total[-1] >= asked
    taken = sufficient & allowed[rank] & (total - sizes < asked)
    return Cover(
        entries=jnp.where(taken, rank, -1).astype(jnp.int32),
        freed=jnp.where(taken, sizes, 0).sum(),
        sufficient=sufficient,
    )


def _strip(pool: BlockPool, n, allowed, order) -> tuple[BlockPool, Given]:
    """Takes the keys of the first `n` allowed blocks, if there are as many."""
    found = cover(n, jnp.ones_like(pool.refs), allowed, order)
    at = _or_beyond(found.entries, len(pool.key))
    lost = jnp.where(found.entries >= 0, pool.key[found.entries], -1)
    key = pool.key.at[at].set(-1, mode="drop")
    gone = (lost >= 0) & _first_of_each(lost) & ~jnp.isin(lost, key)
    evicted = pool.evicted + (lost >= 0).sum()
    removed = jnp.where(gone, lost, -1)
    return pool._replace(key=key, evicted=evicted), Given(
        found.entries, found.sufficient, removed
    )


def _stamp(pool: BlockPool, blocks: jax.Array) -> BlockPool:
    """Puts blocks that became free into their places, the first to be reused first.

    With a key they go behind all others of their class, without one before them.
    """
    real = blocks >= 0
    n, place = real.sum(), jnp.cumsum(real) - 1
    at = _or_beyond(blocks, len(pool.key))
    keyed = pool.key[at] >= 0
    stamp = jnp.where(keyed, pool.clock + place, place - pool.clock - n)
    return pool._replace(
        stamp=pool.stamp.at[at].set(stamp, mode="drop"), clock=pool.clock + n
    )


def _known(pool: BlockPool, blocks: ArrayLike) -> jax.Array:
    """Indices for a scatter: what is no block, or pinned, writes nowhere."""
    blocks, size = jnp.asarray(blocks), len(pool.key)
    usable = (blocks >= 0) & (blocks < size) & ~pool.pinned[blocks]
    return jnp.where(usable, blocks, size)


def _or_beyond(blocks: jax.Array, size: int) -> jax.Array:
    return jnp.where(blocks >= 0, blocks, size)


def _first_of_each(values: jax.Array) -> jax.Array:
    """bool[n], whether no earlier entry has the same value."""
    order = jnp.argsort(values, stable=True)
    ordered = values[order]
    first = jnp.append(True, ordered[1:] != ordered[:-1])
    return jnp.zeros(len(values), bool).at[order].set(first)
