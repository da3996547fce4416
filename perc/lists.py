"""Doubly linked lists of blocks inside one array, for `Listed` rules.

Every block is in one list or in none, and carries a number, its *mark*. A list runs
from its oldest to its newest member; its two ends hang on a row of their own behind
those of the blocks, so that no case is special. A block in no list hangs on itself.

XLA compiles loops over these functions to code that updates the array in place. It
copies the whole array instead, at every step, if a value is read that no later write
depends on. So what reads here gives the array back as well: carry on with that one.
The same holds for arrays of a policy's own, which `read` reads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write

NOWHERE = -1  # the list of a block that is in none


class Lists(NamedTuple):
    """Lists 0..l-1 over blocks 0..M-1."""

    rows: jax.Array  # i32[M + l, 4], see `Entry`
    sizes: jax.Array  # i32[l], members


class Entry(NamedTuple):
    """A block's row. A neighbour of M or more is the end of the list."""

    older: jax.Array  # i32[]
    newer: jax.Array  # i32[]
    list: jax.Array  # i32[], or NOWHERE
    mark: jax.Array  # i32[]


def empty_lists(n_lists: int, n_blocks: int) -> Lists:
    """`n_lists` empty lists over `n_blocks` blocks."""
    index = jnp.arange(n_blocks + n_lists, dtype=jnp.int32)
    none = jnp.full_like(index, NOWHERE)
    rows = jnp.stack([index, index, none, jnp.zeros_like(index)], axis=1)
    return Lists(rows, jnp.zeros(n_lists, jnp.int32))


def read(array: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`array[i]` of a policy's own array, after the array to carry on with."""
    value = peek(array, i)
    return write(array, i, value), value


def entry(lists: Lists, block: jax.Array) -> tuple[Lists, Entry]:
    """Where a block is."""
    rows, row = read(lists.rows, block)
    return lists._replace(rows=rows), Entry(*row)


def oldest(lists: Lists, of: Any) -> tuple[Lists, jax.Array]:
    """The member of list `of` that joined first; M or more if there is none."""
    lists, end = entry(lists, _end(lists, of))
    return lists, end.newer


def move(lists: Lists, block: jax.Array, to: Any, mark: Any = 0) -> Lists:
    """Takes a block from where it is to the newest end of list `to`, or to NOWHERE."""
    rows, sizes = lists
    older, newer, source, _ = peek(rows, block)
    rows = _link(_link(rows, older, 1, newer), newer, 0, older)
    end = jnp.where(to == NOWHERE, block, _end(lists, to))
    newest = jnp.where(to == NOWHERE, block, peek(rows, end)[0])
    rows = _link(_link(rows, newest, 1, block), end, 0, block)
    row = jnp.stack([jnp.int32(x) for x in (newest, end, to, mark)])
    index = jnp.arange(len(sizes))
    sizes = sizes + jnp.where(index == to, 1, 0) - jnp.where(index == source, 1, 0)
    return Lists(write(rows, block, row), sizes)


def set_mark(lists: Lists, block: jax.Array, mark: Any) -> Lists:
    """Writes a block's mark."""
    return lists._replace(rows=_link(lists.rows, block, 3, mark))


def when(condition: Any, function: Callable[[Any], Any], state: Any) -> Any:
    """`function(state)` if the condition holds, else `state`.

    A loop of one turn: `lax.cond` would copy the arrays that it hands on. It counts in
    i32, since a byte that was just stored is slow to load in the width that LLVM picks.
    """

    def turn(carry):
        return jnp.int32(0), function(carry[1])

    carry = (jnp.int32(condition), state)
    return lax.while_loop(lambda carry: carry[0] > 0, turn, carry)[1]


def _link(rows: jax.Array, row, column: int, value) -> jax.Array:
    value = jnp.asarray(value, jnp.int32).reshape(1, 1)
    return lax.dynamic_update_slice(rows, value, (row, column))


def _end(lists: Lists, of: Any) -> jax.Array:
    """The row on which a list hangs; XLA must not see that the index is a constant."""
    n_lists = lists.sizes.shape[0]
    end = lists.rows.shape[0] - n_lists + jnp.asarray(of, jnp.int32)
    return jnp.where(lists.sizes[0] >= 0, end, -1)
