"""Random replacement: the baseline that any rule should beat."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import UINT32_MAX, check_whole
from perc.leaves import NO, Leaves, add, drop_last, no_leaves, swap, tip
from perc.lists import when
from perc.types import Access, Listed, OnlinePolicy


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
    check_whole("random", "seed", seed, 0, UINT32_MAX)
    rule = Listed(_init, _hit, _evict, _insert, root_first=True)
    return OnlinePolicy({"seed": jnp.uint32(seed)}, rule, "random")


class _Forest(NamedTuple):
    leaves: Leaves
    victims: jax.Array  # i32[], so far


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Forest:
    return _Forest(no_leaves(n_blocks), jnp.int32(0))


def _hit(params: dict, s: _Forest, access: Access) -> _Forest:
    return s


def _evict(params: dict, s: _Forest, access: Access) -> tuple[_Forest, jax.Array]:
    # The running request: of its blocks only the last one stored can be a leaf.
    leaves, spared, lost = tip(s.leaves, access.parent)
    others = leaves.size - jnp.where(spared == NO, 0, 1)
    at = draw(params["seed"], s.victims, others)
    at = at + ((spared != NO) & (at >= spared))
    return when(
        ~lost & (others > 0),
        lambda carry: _remove(carry[0], at),
        (s._replace(leaves=leaves), access.block),
    )


def _remove(s: _Forest, at: jax.Array) -> tuple[_Forest, jax.Array]:
    leaves = swap(s.leaves, at, s.leaves.size - 1)
    leaves, victim, _, _ = drop_last(leaves)
    return _Forest(leaves, s.victims + 1), victim


def _insert(params: dict, s: _Forest, access: Access) -> _Forest:
    leaves, _ = add(s.leaves, access.block, access.parent)
    return s._replace(leaves=leaves)


def draw(seed: jax.Array, turn: jax.Array, count: jax.Array) -> jax.Array:
    """A number below `count`, or 0 if that is 0, from a seed and a turn."""
    word = _mix(_mix(jnp.uint32(turn)) ^ _mix(~seed))
    return jnp.int32(word % jnp.uint32(jnp.maximum(count, 1)))


def _mix(word: jax.Array) -> jax.Array:
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
