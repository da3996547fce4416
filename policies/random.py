"""Random replacement: the baseline that any rule should beat."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import InputError
from perc.lists import read, when, write
from perc.types import Access, Listed, OnlinePolicy

NO = -1  # place of a block that is no leaf


def random(*, seed: int = 0) -> OnlinePolicy:
    """Evicts a leaf at random: a block without a resident child, uniformly.

    The number of the leaf is a hash of the seed and of how many victims came before.
    The running request is never a victim, and no child outlives its parent, so all that
    is resident can be hit. On conversations it beats LRU where the cache is far too
    small, because something of each one survives; loses where recency tells more.

    Args:
        seed: names the sequence; the same seed gives the same victims.

    Raises:
        InputError: if the seed does not fit into 32 bits.

    Example:
        >>> random(seed=7).name
        'random'

    References:
        The mixing function is the finaliser of MurmurHash3 (Appleby, public domain).
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}; give 0 to {2**32 - 1}")
    rule = Listed(_init, _hit, _evict, _insert, root_first=True)
    return OnlinePolicy({"seed": jnp.uint32(seed)}, rule, "random")


class _Tree(NamedTuple):
    leaves: jax.Array  # i32[M], the leaves stand first
    place: jax.Array  # i32[M + 1], of a block in `leaves`; entry M is nobody's parent
    kids: jax.Array  # i32[M + 1], resident children
    parent: jax.Array  # i32[M], of a resident block, M = it has none
    n_leaves: jax.Array  # i32[]
    victims: jax.Array  # i32[], so far


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Tree:
    return _Tree(
        leaves=jnp.zeros(n_blocks, jnp.int32),
        place=jnp.full(n_blocks + 1, NO),
        kids=jnp.zeros(n_blocks + 1, jnp.int32),
        parent=jnp.full(n_blocks, n_blocks),
        n_leaves=jnp.int32(0),
        victims=jnp.int32(0),
    )


def _hit(params: dict, s: _Tree, access: Access) -> _Tree:
    return s


def _evict(params: dict, s: _Tree, access: Access) -> tuple[_Tree, jax.Array]:
    nobody = s.kids.shape[0] - 1
    # The running request: of its blocks only the last one stored can be a leaf.
    place, tip = read(s.place, access.parent)
    kids, children = read(s.kids, access.parent)
    lost = (access.parent != nobody) & (tip == NO) & (children == 0)  # was refused
    others = s.n_leaves - jnp.where(tip == NO, 0, 1)
    word = _mix(_mix(jnp.uint32(s.victims)) ^ _mix(~params["seed"]))
    at = jnp.int32(word % jnp.uint32(jnp.maximum(others, 1)))
    at = at + ((tip != NO) & (at >= tip))
    s = s._replace(place=place, kids=kids)
    return when(
        ~lost & (others > 0), lambda carry: _remove(carry[0], at), (s, access.block)
    )


def _remove(s: _Tree, at: jax.Array) -> tuple[_Tree, jax.Array]:
    """Takes the leaf at a place out; its parent may become one."""
    end = s.n_leaves - 1
    leaves, victim = read(s.leaves, at)
    leaves, moved = read(leaves, end)
    leaves = write(leaves, at, moved)
    place = write(write(s.place, moved, at), victim, NO)
    parents, parent = read(s.parent, victim)
    kids, left = read(s.kids, parent)
    bare = (parent < s.parent.shape[0]) & (left == 1)
    place, old = read(place, parent)
    return s._replace(
        leaves=write(leaves, end, jnp.where(bare, parent, victim)),
        place=write(place, parent, jnp.where(bare, end, old)),
        kids=write(kids, parent, left - 1),
        parent=parents,
        n_leaves=end + bare,
        victims=s.victims + 1,
    ), victim


def _insert(params: dict, s: _Tree, access: Access) -> _Tree:
    """The block is a leaf; if its parent was one, it takes its place."""
    place, tip = read(s.place, access.parent)
    kids, children = read(s.kids, access.parent)
    at = jnp.where(tip == NO, s.n_leaves, tip)
    place = write(write(place, access.parent, NO), access.block, at)
    kids = write(write(kids, access.parent, children + 1), access.block, 0)
    return s._replace(
        leaves=write(s.leaves, at, access.block),
        place=place,
        kids=kids,
        parent=write(s.parent, access.block, access.parent),
        n_leaves=s.n_leaves + (tip == NO),
    )


def _mix(word: jax.Array) -> jax.Array:
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
