"""RLT: random leaves, but none that was used in the current phase."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import UINT32_MAX, check_whole
from perc.leaves import NO, Leaves, add, drop_last, no_leaves, place_of, swap, tip
from perc.lists import read, when, write
from perc.policies.random import draw
from perc.types import Access, Listed, OnlinePolicy


def rlt(*, seed: int = 0) -> OnlinePolicy:
    """Evicts an unmarked leaf at random; a use marks a block, phases clear the marks.

    A leaf is a block without a resident child. When one more block would fill the cache
    with marked ones, a new phase starts, in which only the running request's blocks are
    marked. Marked blocks are no victims, so what was used in this phase is safe, and
    what was not leaves in random order: no sequence of requests can fool it for long.

    Among randomised rules its misses are within O(log n) of the optimum in the paper's
    model; a deterministic rule can be n times worse. On conversations it mostly
    lies between `random` and LRU. The running request is never a victim, no child
    outlives its parent. The paper drops single tokens; here the unit is a block.

    Args:
        seed: names the sequence; the same seed gives the same victims.

    Raises:
        InputError: if the seed does not fit into 32 bits.

    Example:
        >>> rlt(seed=7).name
        'rlt'

    References:
        arXiv 2601.18999 (ICLR 2026), randomised leaf token eviction; its code:
        fzwark/KVRouting on GitHub. Marking: Fiat et al. 1991, "Competitive paging
        algorithms".
    """
    check_whole("rlt", "seed", seed, 0, UINT32_MAX)
    rule = Listed(_init, _hit, _evict, _insert, root_first=True)
    params = {"seed": jnp.uint32(seed)}
    return OnlinePolicy(params, rule, "rlt", uses=("step", "depth"))


class _Forest(NamedTuple):
    leaves: Leaves  # unmarked ones first
    free: jax.Array  # i32[], unmarked leaves
    used: jax.Array  # i32[M + 1], request that used the block last; a mark if >= phase
    marked: jax.Array  # i32[], marked blocks
    phase: jax.Array  # i32[], request that started it
    victims: jax.Array  # i32[], so far
    capacity: jax.Array  # i32[]


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Forest:
    zero = jnp.int32(0)
    used = jnp.zeros(n_blocks + 1, jnp.int32)
    return _Forest(no_leaves(n_blocks), zero, used, zero, zero, zero, capacity)


def _hit(params: dict, s: _Forest, access: Access) -> _Forest:
    used, then = read(s.used, access.block)
    leaves, at = place_of(s.leaves, access.block)
    fresh = then < s.phase
    s = s._replace(
        leaves=leaves,
        used=write(used, access.block, access.features.step),
        marked=s.marked + fresh,
    )
    return when(fresh & (at != NO), lambda s: _close(s, at), s)


def _evict(params: dict, s: _Forest, access: Access) -> tuple[_Forest, jax.Array]:
    leaves, above, lost = tip(s.leaves, access.parent)
    s = s._replace(leaves=leaves)
    ends = ~lost & (s.marked + 1 >= s.capacity)
    s = when(ends, lambda s: _new_phase(s, above, access), s)
    at = draw(params["seed"], s.victims, s.free)
    return when(
        ~lost & (s.free > 0), lambda carry: _remove(carry[0], at), (s, access.block)
    )


def _new_phase(s: _Forest, above: jax.Array, access: Access) -> _Forest:
    """Only the blocks above this one, which the same request has used, stay marked."""
    s = s._replace(
        free=s.leaves.size,
        marked=access.features.depth,
        phase=access.features.step,
    )
    return when(above != NO, lambda s: _close(s, above), s)


def _close(s: _Forest, at: jax.Array) -> _Forest:
    """The unmarked leaf at a place joins the marked ones."""
    free = s.free - 1
    return s._replace(leaves=swap(s.leaves, at, free), free=free)


def _remove(s: _Forest, at: jax.Array) -> tuple[_Forest, jax.Array]:
    """Drops the unmarked leaf at a place; a parent that becomes one is sorted in."""
    s = _close(s, at)
    leaves = swap(s.leaves, s.free, s.leaves.size - 1)
    leaves, victim, parent, bare = drop_last(leaves)
    used, then = read(s.used, parent)
    s = s._replace(leaves=leaves, used=used, victims=s.victims + 1)
    return when(bare & (then < s.phase), _open, s), victim


def _open(s: _Forest) -> _Forest:
    """The last leaf joins the unmarked ones."""
    leaves = swap(s.leaves, s.leaves.size - 1, s.free)
    return s._replace(leaves=leaves, free=s.free + 1)


def _insert(params: dict, s: _Forest, access: Access) -> _Forest:
    """A new block is marked, as is its parent if that was a leaf."""
    leaves, _ = add(s.leaves, access.block, access.parent)
    used = write(s.used, access.block, access.features.step)
    return s._replace(leaves=leaves, used=used, marked=s.marked + 1)
