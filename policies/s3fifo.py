"""S3-FIFO: three queues, of which a small one filters what is used once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.errors import INT32_MAX, InputError, check_number, check_whole
from perc.lists import when
from perc.rings import (
    Rings,
    empty_rings,
    length,
    next_slot,
    oldest_slot,
    pop,
    push,
    room,
)
from perc.types import Access, Listed, OnlinePolicy

SMALL, MAIN, GHOST, NOWHERE = range(4)
BITS = 2  # that say in which of these a block is
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
    conversations it hits more than LRU on small caches and clearly less from a few
    percent of the working set on. The running request's blocks may be victims, and a
    parent may leave before its child.

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
    check_whole("s3fifo", "threshold", threshold, 1, INT32_MAX)
    params = {
        "small": jnp.float32(small),
        "ghost": jnp.float32(ghost),
        "threshold": jnp.int32(threshold),
    }
    return OnlinePolicy(params, _RULE, "s3fifo", bypass=True)


class _Queues(NamedTuple):
    rows: jax.Array  # i32[M], where each block is, see `_row`
    rings: Rings  # SMALL, MAIN and GHOST; a ghost that returned leaves a gap
    ghosts: jax.Array  # i32[], ids in the ghost queue
    small: jax.Array  # i32[], size of the small queue
    main: jax.Array  # i32[]
    ghost: jax.Array  # i32[]
    returns: jax.Array  # bool[], the accessed block was a ghost
    warm: jax.Array  # bool[], something has been evicted


def _row(queue: Any, number: Any = 0) -> jax.Array:
    """A block's queue, and its uses there or, of a ghost, its slot: in one word."""
    return jnp.int32(queue) | jnp.int32(number) << BITS


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Queues:
    small = jnp.int32(jnp.floor(params["small"] * capacity))
    ghost = jnp.int32(jnp.floor(params["ghost"] * capacity))
    rows, rings = jnp.full(n_blocks, NOWHERE, jnp.int32), empty_rings(3, n_blocks)
    none, no = jnp.int32(0), jnp.bool_(False)
    return _Queues(rows, rings, none, small, capacity - small, ghost, no, no)


def _note(params: dict, q: _Queues, access: Access) -> _Queues:
    """Counts a use of a resident block. A ghost returns: it is none any more."""
    row = peek(q.rows, access.block)
    queue = row & NOWHERE
    returns = queue == GHOST
    row = jnp.where(queue < GHOST, row + _row(0, 1), NOWHERE)
    rows = write(q.rows, access.block, row)
    return q._replace(rows=rows, ghosts=q.ghosts - returns, returns=returns)


def _hit(params: dict, q: _Queues, access: Access) -> _Queues:
    """Moves nothing; `_note` has counted the use."""
    return q


def _insert(params: dict, q: _Queues, access: Access) -> _Queues:
    early = ~q.warm & (length(q.rings, SMALL) >= q.small)
    to = jnp.where(q.returns | early, MAIN, SMALL)
    rows = write(q.rows, access.block, _row(to))
    return q._replace(rows=rows, rings=push(q.rings, to, access.block))


def _evict(params: dict, q: _Queues, access: Access) -> tuple[_Queues, jax.Array]:
    """Looks at the oldest of one queue until one of them may leave."""

    def look(carry):
        q, queue, _, _ = carry
        queue = jnp.where(length(q.rings, SMALL) == 0, MAIN, queue)
        rings, block = pop(q.rings, queue)
        uses, in_main = peek(q.rows, block) >> BITS, queue == MAIN
        stays = uses >= jnp.where(in_main, 1, params["threshold"])
        left = jnp.where(in_main, jnp.minimum(uses, MOST_USES) - 1, 0)
        ghost = _row(GHOST, next_slot(rings, GHOST))
        leaves = jnp.where(in_main, NOWHERE, ghost)
        row = jnp.where(stays, _row(MAIN, left), leaves)
        to = jnp.where(stays, MAIN, GHOST)
        rings = push(rings, to, block, wanted=stays | ~in_main)
        q = q._replace(rows=write(q.rows, block, row), rings=rings)
        return q, queue, block, ~stays

    queue = jnp.where(length(q.rings, MAIN) > q.main, MAIN, SMALL)
    carry = (q, queue, access.block, jnp.bool_(False))
    q, queue, victim, _ = lax.while_loop(lambda carry: ~carry[3], look, carry)
    q = q._replace(ghosts=q.ghosts + (queue == SMALL), warm=jnp.bool_(True))
    q = lax.while_loop(lambda q: q.ghosts > q.ghost, _forget, q)
    return when(length(q.rings, GHOST) == room(q.rings), _close_gaps, q), victim


def _forget(q: _Queues) -> _Queues:
    """Drops the oldest ghost, or the gap that it left."""
    q, block, row, is_ghost = _pop_ghost(q)
    rows = write(q.rows, block, jnp.where(is_ghost, NOWHERE, row))
    return q._replace(rows=rows, ghosts=q.ghosts - is_ghost)


def _close_gaps(q: _Queues) -> _Queues:
    """Sends a full ring of ghosts around once, in which only ghosts rejoin."""

    def step(_, q: _Queues) -> _Queues:
        q, block, row, is_ghost = _pop_ghost(q)
        row = jnp.where(is_ghost, _row(GHOST, next_slot(q.rings, GHOST)), row)
        rings = push(q.rings, GHOST, block, wanted=is_ghost)
        return q._replace(rows=write(q.rows, block, row), rings=rings)

    return lax.fori_loop(0, room(q.rings), step, q)


def _pop_ghost(q: _Queues) -> tuple[_Queues, jax.Array, jax.Array, jax.Array]:
    """A block that became a ghost, its row, and whether it still is that ghost."""
    slot = oldest_slot(q.rings, GHOST)
    rings, block = pop(q.rings, GHOST)
    row = peek(q.rows, block)
    return q._replace(rings=rings), block, row, row == _row(GHOST, slot)


_RULE = Listed(_init, _hit, _evict, _insert, _note)
