"""SIEVE: one queue, one bit a block, and a hand that spares what was visited."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.lists import NOWHERE, Lists, empty_lists, entry, move, oldest, set_mark
from perc.types import Access, Listed, OnlinePolicy

UNSET = -1  # of the hand, which then starts at the oldest block


def sieve() -> OnlinePolicy:
    """Evicts the first unvisited block that a hand meets on its way to the newest.

    A hit sets the block's bit and moves nothing. The hand clears the bit of each block
    that it spares, wraps around, and rests where it found its victim.

    Made for web caches, where popularity lasts. On prompts the first conversations that
    came back fill the cache and stay visited, as in LFU: it hits as much as in-cache
    LFU, and next to nothing on sessions of coding agents. The running request's blocks
    may be victims, and a parent may leave before its child.

    Example:
        >>> sieve().name
        'sieve'

    References:
        Zhang et al. 2024, "SIEVE is simpler than LRU: an efficient turn-key eviction
        algorithm for web caches" (NSDI).
    """
    return OnlinePolicy((), Listed(_init, _hit, _evict, _insert), "sieve", bypass=True)


class _Queue(NamedTuple):
    lists: Lists  # one list; the mark of a block is 1 if it was visited
    hand: jax.Array  # i32[], a block or UNSET


def _init(params: tuple, capacity: jax.Array, n_blocks: int) -> _Queue:
    return _Queue(empty_lists(1, n_blocks), jnp.int32(UNSET))


def _hit(params: tuple, q: _Queue, access: Access) -> _Queue:
    return q._replace(lists=set_mark(q.lists, access.block, 1))


def _evict(params: tuple, q: _Queue, access: Access) -> tuple[_Queue, jax.Array]:
    def step(carry):
        lists, hand, _, _ = carry
        lists, first = oldest(lists, 0)
        block = jnp.where(hand == UNSET, first, hand)
        lists, found = entry(lists, block)
        visited = found.mark == 1
        lists = set_mark(lists, block, 0)
        at_newest = found.newer >= lists.rows.shape[0] - 1
        return lists, jnp.where(at_newest, UNSET, found.newer), block, ~visited

    carry = (q.lists, q.hand, access.block, jnp.bool_(False))
    lists, hand, victim, _ = jax.lax.while_loop(lambda carry: ~carry[3], step, carry)
    return _Queue(move(lists, victim, NOWHERE), hand), victim


def _insert(params: tuple, q: _Queue, access: Access) -> _Queue:
    return q._replace(lists=move(q.lists, access.block, 0))
