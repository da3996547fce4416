"""ARC: recency and frequency share the cache, and ghosts move the border."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.lists import NOWHERE, Lists, empty_lists, entry, move, oldest, when
from perc.types import Access, Listed, OnlinePolicy

SEEN_ONCE, SEEN_AGAIN, GHOST_ONCE, GHOST_AGAIN = range(4)  # the paper's T1 T2 B1 B2


def arc() -> OnlinePolicy:
    """Two LRU lists, of blocks seen once and seen again, whose sizes adapt.

    Ids of what left each list stay in a ghost list of its own. A miss that finds its id
    there shows which list was too small, and moves the target size of the first one.

    Needs no parameter. Hits more than LRU on small and middle caches, of conversations
    and of agents, and a little less on large ones. The running request's blocks may be
    victims, and a parent may leave before its child.

    Example:
        >>> arc().name
        'arc'

    References:
        Megiddo and Modha 2003, "ARC: a self-tuning, low overhead replacement cache"
        (FAST), figure 4. The ratios are real numbers. vLLM's CPU tier has a policy of
        this name with other rules: `arc_vllm`.
    """
    return OnlinePolicy((), Listed(_init, _hit, _evict, _insert), "arc", bypass=True)


class _Arc(NamedTuple):
    lists: Lists
    capacity: jax.Array  # i32[]
    target: jax.Array  # f32[], of the list of blocks seen once; the paper's p


def _init(params: tuple, capacity: jax.Array, n_blocks: int) -> _Arc:
    return _Arc(empty_lists(4, n_blocks), capacity, jnp.float32(0))


def _hit(params: tuple, s: _Arc, access: Access) -> _Arc:
    return s._replace(lists=move(s.lists, access.block, SEEN_AGAIN))


def _evict(params: tuple, s: _Arc, access: Access) -> tuple[_Arc, jax.Array]:
    lists, found = entry(s.lists, access.block)
    once, again, ghost_once, ghost_again = lists.sizes
    target = _adapt(s, found.list)
    new = found.list == NOWHERE
    # A newcomer must not let the first list and its ghosts exceed the capacity, nor
    # all four lists twice the capacity.
    full = new & (once + ghost_once == s.capacity)
    outright = full & (once == s.capacity)
    total = once + again + ghost_once + ghost_again
    crowded = (full & ~outright) | (new & ~full & (total >= 2 * s.capacity))
    ghosts = jnp.where(full, GHOST_ONCE, GHOST_AGAIN)
    lists = when(crowded, lambda lists: _drop(lists, ghosts), lists)
    over = (once > target) | ((found.list == GHOST_AGAIN) & (once == target))
    source = jnp.where(((once > 0) & over) | (again == 0), SEEN_ONCE, SEEN_AGAIN)
    source = jnp.where(outright, SEEN_ONCE, source)
    lists, victim = oldest(lists, source)
    lists = move(lists, victim, jnp.where(outright, NOWHERE, source + GHOST_ONCE))
    return s._replace(lists=lists, target=target), victim


def _adapt(s: _Arc, ghost: jax.Array) -> jax.Array:
    """The target after a miss whose id is in this list."""
    once, again = jnp.float32(s.lists.sizes[2]), jnp.float32(s.lists.sizes[3])
    up = jnp.maximum(1, again / jnp.maximum(once, 1))
    down = jnp.maximum(1, once / jnp.maximum(again, 1))
    target = s.target + jnp.where(ghost == GHOST_ONCE, up, 0)
    target = target - jnp.where(ghost == GHOST_AGAIN, down, 0)
    return jnp.clip(target, 0, s.capacity)


def _drop(lists: Lists, ghosts: jax.Array) -> Lists:
    lists, block = oldest(lists, ghosts)
    return move(lists, block, NOWHERE)


def _insert(params: tuple, s: _Arc, access: Access) -> _Arc:
    lists, found = entry(s.lists, access.block)
    to = jnp.where(found.list == NOWHERE, SEEN_ONCE, SEEN_AGAIN)
    return s._replace(lists=move(lists, access.block, to))


def arc_vllm() -> OnlinePolicy:
    """ARC as the CPU offload tier of vLLM has it, which differs from the paper.

        returns     a block found in a ghost list enters the list of blocks seen once
        ghosts      each ghost list holds up to the capacity, whatever the others hold
        victim      of the first list if it has at least int(target) blocks
        target      moves at the look-up; the ghost then becomes the newest of its list

    So what returns must hit once more before it counts as seen again, and the ghosts
    remember up to twice the capacity. On conversations it hits less than `arc` where
    caches are small, and less than LRU on most sizes. The running request's blocks may
    be victims, and a parent may leave before its child. Blocks are served one by one
    here; vLLM moves the target for a whole request first, and spares it when it evicts.

    Example:
        >>> arc_vllm().name
        'arc_vllm'

    References:
        vLLM, `vllm/v1/kv_offload/cpu/policies/arc.py`.
    """
    rule = Listed(_init, _hit, _evict_vllm, _insert_vllm, _note_vllm)
    return OnlinePolicy((), rule, "arc_vllm", bypass=True)


def _note_vllm(params: tuple, s: _Arc, access: Access) -> _Arc:
    lists, found = entry(s.lists, access.block)
    target = _adapt(s, found.list)
    ghost = found.list >= GHOST_ONCE
    lists = when(ghost, lambda lists: move(lists, access.block, found.list), lists)
    return s._replace(lists=lists, target=target)


def _evict_vllm(params: tuple, s: _Arc, access: Access) -> tuple[_Arc, jax.Array]:
    once, again, _, _ = s.lists.sizes
    first = (once > 0) & ((once >= jnp.int32(s.target)) | (again == 0))
    source = jnp.where(first, SEEN_ONCE, SEEN_AGAIN)
    lists, victim = oldest(s.lists, source)
    ghosts = source + GHOST_ONCE
    lists = move(lists, victim, ghosts)
    over = jnp.where(first, lists.sizes[GHOST_ONCE], lists.sizes[GHOST_AGAIN])
    lists = when(over > s.capacity, lambda lists: _drop(lists, ghosts), lists)
    return s._replace(lists=lists), victim


def _insert_vllm(params: tuple, s: _Arc, access: Access) -> _Arc:
    return s._replace(lists=move(s.lists, access.block, SEEN_ONCE))
