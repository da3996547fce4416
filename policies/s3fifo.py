"""S3-FIFO: three queues, of which a small one filters what is used once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import InputError, check_number
from perc.lists import NOWHERE, Lists, empty_lists, entry, move, oldest, set_mark, when
from perc.types import Access, Listed, OnlinePolicy

SMALL, MAIN, GHOST = range(3)
MOST_USES = 3  # that a block can carry back into the main queue


def s3fifo(
    *, small: float = 0.1, ghost: float = 0.9, threshold: int = 2
) -> OnlinePolicy:
    """New blocks pass a small queue; only those used again there enter the main one.

    A block that left the small queue leaves its id in a ghost queue; if it returns in
    time, it enters the main queue at once. In the main queue a block that was used goes
    around again, once for every use up to 3. Before the first eviction, newcomers that
    find the small queue full enter the main one.

    Made for key-value and block caches, where most objects are used once. On
    conversations it hits more than LRU on small caches and clearly less from a tenth of
    the working set on. The running request's blocks may be victims, and a parent may
    leave before its child.

    Args:
        small: share of the cache that is the small queue.
        ghost: ids in the ghost queue, as a share of the cache's blocks.
        threshold: uses after the insertion that carry a block into the main queue.

    Raises:
        InputError: if a share is out of range or the threshold below 1.

    Example:
        >>> s3fifo().bypass
        True

    References:
        Yang et al. 2023, "FIFO queues are all you need for cache eviction" (SOSP).
        The rules are those that libCacheSim 0.3.5 was found to follow.
    """
    check_number("s3fifo", "small", small, above=True)
    check_number("s3fifo", "ghost", ghost)
    if small >= 1:
        raise InputError(f"s3fifo: small is {small}, must be below 1.")
    if threshold < 1:
        raise InputError(f"s3fifo: threshold is {threshold}, must be 1 or more.")
    params = {
        "small": jnp.float32(small),
        "ghost": jnp.float32(ghost),
        "threshold": jnp.int32(threshold),
    }
    return OnlinePolicy(params, _RULE, "s3fifo", bypass=True)


class _Queues(NamedTuple):
    lists: Lists  # the mark of a block counts its uses
    small: jax.Array  # i32[], size of the small queue
    main: jax.Array  # i32[]
    ghost: jax.Array  # i32[]
    returns: jax.Array  # bool[], the accessed block was a ghost
    warm: jax.Array  # bool[], something has been evicted


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Queues:
    small = jnp.int32(jnp.floor(params["small"] * capacity))
    ghost = jnp.int32(jnp.floor(params["ghost"] * capacity))
    lists = empty_lists(3, n_blocks)
    no = jnp.bool_(False)
    return _Queues(lists, small, capacity - small, ghost, no, no)


def _note(params: dict, q: _Queues, access: Access) -> _Queues:
    lists, found = entry(q.lists, access.block)
    returns = found.list == GHOST
    lists = when(returns, lambda x: move(x, access.block, NOWHERE), lists)
    return q._replace(lists=lists, returns=returns)


def _hit(params: dict, q: _Queues, access: Access) -> _Queues:
    lists, found = entry(q.lists, access.block)
    return q._replace(lists=set_mark(lists, access.block, found.mark + 1))


def _insert(params: dict, q: _Queues, access: Access) -> _Queues:
    early = ~q.warm & (q.lists.sizes[SMALL] >= q.small)
    to = jnp.where(q.returns | early, MAIN, SMALL)
    return q._replace(lists=move(q.lists, access.block, to))


def _evict(params: dict, q: _Queues, access: Access) -> tuple[_Queues, jax.Array]:
    """Looks at the oldest of one queue until one of them may leave."""

    def look(carry):
        lists, queue, _, _ = carry
        queue = jnp.where(lists.sizes[SMALL] == 0, MAIN, queue)
        lists, block = oldest(lists, queue)
        lists, found = entry(lists, block)
        uses, in_main = found.mark, queue == MAIN
        stays = uses >= jnp.where(in_main, 1, params["threshold"])
        left = jnp.where(in_main, jnp.minimum(uses, MOST_USES) - 1, 0)
        to = jnp.where(stays, MAIN, jnp.where(in_main, NOWHERE, GHOST))
        return move(lists, block, to, jnp.where(stays, left, 0)), queue, block, ~stays

    queue = jnp.where(q.lists.sizes[MAIN] > q.main, MAIN, SMALL)
    carry = (q.lists, queue, access.block, jnp.bool_(False))
    lists, _, victim, _ = jax.lax.while_loop(lambda carry: ~carry[3], look, carry)
    lists = when(lists.sizes[GHOST] > q.ghost, _forget, lists)
    return q._replace(lists=lists, warm=jnp.bool_(True)), victim


def _forget(lists: Lists) -> Lists:
    lists, block = oldest(lists, GHOST)
    return move(lists, block, NOWHERE)


_RULE = Listed(_init, _hit, _evict, _insert, _note)
