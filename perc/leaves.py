"""The leaves of a forest of resident blocks in one array, for `Listed` rules.

A leaf is a block without a resident child. While leaves alone leave, and blocks come
after their parents (`Listed.root_first`), no prefix gets a hole. The array lets a rule
pick a leaf by its place: at random, or by a look at all of them.

The functions keep to the contract of `perc.lists`: carry on with what they give back.

>>> leaves = no_leaves(3)
>>> for block, parent in ((0, 3), (1, 0), (2, 0)):  # block 0 has no parent
...     leaves, _ = add(leaves, block, parent)
>>> leaves.block[: leaves.size].tolist()
[1, 2]
>>> leaves, victim, parent, bare = drop_last(leaves)
>>> int(victim), int(parent), bool(bare)
(2, 0, False)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.lists import read, write

NO = -1  # place of a block that is no leaf


class Leaves(NamedTuple):
    """Which resident blocks are leaves, over blocks 0..M-1; M is nobody."""

    block: jax.Array  # i32[M], the leaves stand first
    place: jax.Array  # i32[M + 1], of a block in `block`, or NO
    kids: jax.Array  # i32[M + 1], resident children
    parent: jax.Array  # i32[M], of a resident block, M = it has none
    size: jax.Array  # i32[], leaves


def no_leaves(n_blocks: int) -> Leaves:
    """Nothing is resident."""
    return Leaves(
        block=jnp.zeros(n_blocks, jnp.int32),
        place=jnp.full(n_blocks + 1, NO),
        kids=jnp.zeros(n_blocks + 1, jnp.int32),
        parent=jnp.full(n_blocks, n_blocks),
        size=jnp.int32(0),
    )


def place_of(leaves: Leaves, block: jax.Array) -> tuple[Leaves, jax.Array]:
    """Where a block stands among the leaves, or NO."""
    place, at = read(leaves.place, block)
    return leaves._replace(place=place), at


def tip(leaves: Leaves, parent: jax.Array) -> tuple[Leaves, jax.Array, jax.Array]:
    """The running request, whose next block has this parent.

    Returns the place of the parent if it is a leaf, the only one of the request; and
    whether the parent is not resident, so that its children cannot be either.
    """
    leaves, at = place_of(leaves, parent)
    kids, children = read(leaves.kids, parent)
    nobody = leaves.parent.shape[0]
    lost = (parent != nobody) & (at == NO) & (children == 0)
    return leaves._replace(kids=kids), at, lost


def swap(leaves: Leaves, one: jax.Array, other: jax.Array) -> Leaves:
    """Two leaves change places."""
    block, first = read(leaves.block, one)
    block, second = read(block, other)
    return leaves._replace(
        block=write(write(block, one, second), other, first),
        place=write(write(leaves.place, second, one), first, other),
    )


def drop_last(leaves: Leaves) -> tuple[Leaves, jax.Array, jax.Array, jax.Array]:
    """The last leaf leaves; if its parent becomes a leaf, it takes the place.

    Returns the victim, its parent (M = none), and whether that has become a leaf.
    """
    end = leaves.size - 1
    block, victim = read(leaves.block, end)
    parents, parent = read(leaves.parent, victim)
    kids, left = read(leaves.kids, parent)
    bare = (parent < leaves.parent.shape[0]) & (left == 1)
    place, old = read(write(leaves.place, victim, NO), parent)
    leaves = Leaves(
        block=write(block, end, jnp.where(bare, parent, victim)),
        place=write(place, parent, jnp.where(bare, end, old)),
        kids=write(kids, parent, left - 1),
        parent=parents,
        size=end + bare,
    )
    return leaves, victim, parent, bare


def add(
    leaves: Leaves, block: jax.Array, parent: jax.Array
) -> tuple[Leaves, jax.Array]:
    """A block comes and is a leaf; if its parent was one, it takes its place.

    Returns the place.
    """
    place, at = read(leaves.place, parent)
    kids, children = read(leaves.kids, parent)
    new = at == NO
    at = jnp.where(new, leaves.size, at)
    leaves = Leaves(
        block=write(leaves.block, at, block),
        place=write(write(place, parent, NO), block, at),
        kids=write(write(kids, parent, children + 1), block, 0),
        parent=write(leaves.parent, block, parent),
        size=leaves.size + new,
    )
    return leaves, at
