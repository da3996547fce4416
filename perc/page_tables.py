"""Block tables: which physical blocks a sequence reads, forks, and copy-on-write.

A sequence of t tokens reads the first ceil(t / block_tokens) blocks of its row. Rows
may share blocks: a fork shares all of them, a prompt with a cached prefix those of the
prefix. Only the last, partial block is ever written again, so it is copied first if
another sequence reads it or a look-up could find it. `perc.paging` counts references.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.errors import InputError
from perc.paging import BlockPool, allocate, empty_pool, hold, look_up, release


class PagedCache(NamedTuple):
    """S sequences of at most L blocks over one pool."""

    pool: BlockPool
    table: jax.Array  # i32[S, L], physical blocks, root first, then -1
    tokens: jax.Array  # i32[S], length of each sequence, 0 = row not in use


class Written(NamedTuple):
    """What `append` did. The caller moves the data: `copied_from` to `copied_to`."""

    sufficient: jax.Array  # bool[], False: nothing changed
    new_blocks: jax.Array  # i32[], taken from the pool, the copy included
    copied_from: jax.Array  # i32[], block to copy before the write, -1 = none
    copied_to: jax.Array  # i32[]
    removed: jax.Array  # i32[C], keys that no look-up finds any more, among -1


def empty_tables(
    n_blocks: int, *, sequences: int, blocks_per_sequence: int, pinned_blocks: int = 0
) -> PagedCache:
    """A pool, and rows without content.

    Raises:
        InputError: for a pool as in `empty_pool`, or without rows or columns.

    Example:
        >>> cache = empty_tables(8, sequences=2, blocks_per_sequence=4)
        >>> cache, _ = append(cache, 0, 6, block_tokens=4)
        >>> cache, _ = fork(cache, 0, 1)
        >>> cache.table[:, :2].tolist()
        [[0, 1], [0, 1]]
        >>> cache, written = append(cache, 1, 1, block_tokens=4)
        >>> int(written.copied_from), int(written.copied_to), int(written.new_blocks)
        (1, 2, 1)
    """
    if sequences < 1 or blocks_per_sequence < 1:
        raise InputError(
            f"{sequences} sequences of {blocks_per_sequence} blocks; give 1 or more."
        )
    return PagedCache(
        pool=empty_pool(n_blocks, pinned_blocks=pinned_blocks),
        table=jnp.full((sequences, blocks_per_sequence), -1, jnp.int32),
        tokens=jnp.zeros(sequences, jnp.int32),
    )


@functools.partial(jax.jit, static_argnames="block_tokens")
def append(
    cache: PagedCache, sequence: ArrayLike, tokens: ArrayLike, *, block_tokens: int
) -> tuple[PagedCache, Written]:
    """Makes room for `tokens` more tokens of a sequence.

    Args:
        cache: the pool and S rows of L blocks.
        sequence: i32[], its row.
        tokens: i32[], 0 or more.
        block_tokens: of every block.

    Returns:
        The cache, and what was done. Where the pool or the row has no room for all of
        it nothing changes.
    """
    pool, row, before = cache.pool, cache.table[sequence], cache.tokens[sequence]
    have = -(-before // block_tokens)
    more = -(-(before + tokens) // block_tokens) - have
    last = row[jnp.maximum(have - 1, 0)]
    in_place = (pool.refs[last] == 1) & (pool.key[last] < 0)
    copying = (before % block_tokens > 0) & (jnp.asarray(tokens) > 0) & ~in_place
    taken, given = allocate(pool, more + copying)
    fits = given.sufficient & (have + more <= len(row))

    place = jnp.arange(len(row)) - have + copying
    new = given.blocks[jnp.clip(place, 0, len(given.blocks) - 1)]
    written = (place >= 0) & (place < more + copying)
    after = PagedCache(
        pool=release(taken, jnp.where(copying, last, -1)[None]),
        table=cache.table.at[sequence].set(jnp.where(written, new, row)),
        tokens=cache.tokens.at[sequence].add(tokens),
    )
    cache = _either(fits, after, cache)
    return cache, Written(
        sufficient=fits,
        new_blocks=jnp.where(fits, more + copying, 0),
        copied_from=jnp.where(fits & copying, last, -1),
        copied_to=jnp.where(fits & copying, given.blocks[0], -1),
        removed=jnp.where(fits, given.removed, -1),
    )


@jax.jit
def fork(
    cache: PagedCache, parent: ArrayLike, child: ArrayLike
) -> tuple[PagedCache, jax.Array]:
    """A second sequence that reads the parent's blocks; nothing is copied.

    Returns:
        The cache, and whether the child's row was free; if not, nothing changes.
    """
    row = cache.table[parent]
    after = PagedCache(
        pool=hold(cache.pool, row),
        table=cache.table.at[child].set(row),
        tokens=cache.tokens.at[child].set(cache.tokens[parent]),
    )
    free = cache.tokens[child] == 0
    return _either(free, after, cache), free


@functools.partial(jax.jit, static_argnames="block_tokens")
def begin(
    cache: PagedCache, sequence: ArrayLike, keys: ArrayLike, *, block_tokens: int
) -> tuple[PagedCache, jax.Array]:
    """Lets an empty sequence read the longest cached prefix of a prompt.

    Args:
        cache: the pool and S rows of L blocks.
        sequence: i32[], its row.
        keys: i32[...] of the prompt's full blocks, root first, padded with -1; those
            beyond L are not asked for.
        block_tokens: of every block.

    Returns:
        The cache, and the blocks found, 0 where the row is in use.
    """
    row = cache.table[sequence]
    keys = jnp.asarray(keys)[: len(row)]
    blocks = jnp.full(len(row), -1).at[: len(keys)].set(look_up(cache.pool, keys))
    blocks = jnp.where(cache.tokens[sequence] == 0, blocks, -1)
    found = (blocks >= 0).sum()
    row = jnp.where(blocks >= 0, blocks, row)
    return PagedCache(
        pool=hold(cache.pool, blocks),
        table=cache.table.at[sequence].set(row),
        tokens=cache.tokens.at[sequence].add(found * block_tokens),
    ), found


@jax.jit
def end(cache: PagedCache, sequence: ArrayLike) -> PagedCache:
    """Releases a sequence's blocks, the tail to be reused first, and frees its row."""
    return PagedCache(
        pool=release(cache.pool, cache.table[sequence]),
        table=cache.table.at[sequence].set(-1),
        tokens=cache.tokens.at[sequence].set(0),
    )


def _either(condition: jax.Array, yes: PagedCache, no: PagedCache) -> PagedCache:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
