"""Segmented LRU, and its unsegmented relative: what was used again is protected."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import INT32_MAX, check_number, check_whole
from perc.lists import NOWHERE, Lists, empty_lists, move, oldest, when
from perc.types import Access, Features, Listed, Memory, OnlinePolicy, Scored

PROBATION, PROTECTED = range(2)


def slru(*, protected: float = 0.5) -> OnlinePolicy:
    """Two LRU lists: a new block is on probation, one that hits is protected.

    When the protected list exceeds its share of the cache, its least recent block goes
    back to the newest end of probation. Victims come from probation while there is one.

    Resists scans, since one-off blocks pass through probation only. Loses to LRU on
    conversations, the more the larger the protected share: a next turn comes after
    minutes, and its blocks have left probation by then. The running request's blocks
    may be victims, and a parent may leave before its child.

    Args:
        protected: share of the cache that the protected list may take.

    Raises:
        InputError: unless the share is above 0 and at most 1.

    Example:
        >>> slru(protected=0.8).name
        'slru'

    References:
        Karedla, Love and Wherry 1994, "Caching strategies to improve disk system
        performance".
    """
    check_number("slru", "protected", protected, above=True, high=1.0)
    params = {"protected": jnp.float32(protected)}
    rule = Listed(_init, _hit, _evict, _insert)
    return OnlinePolicy(params, rule, "slru", bypass=True)


class _Segments(NamedTuple):
    lists: Lists
    most: jax.Array  # i32[], blocks that may be protected


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Segments:
    most = jnp.floor(params["protected"] * capacity)
    return _Segments(empty_lists(2, n_blocks), jnp.int32(most))


def _hit(params: dict, s: _Segments, access: Access) -> _Segments:
    lists = move(s.lists, access.block, PROTECTED)
    lists = when(lists.sizes[PROTECTED] > s.most, _demote, lists)
    return s._replace(lists=lists)


def _demote(lists: Lists) -> Lists:
    lists, block = oldest(lists, PROTECTED)
    return move(lists, block, PROBATION)


def _evict(params: dict, s: _Segments, access: Access) -> tuple[_Segments, jax.Array]:
    empty = s.lists.sizes[PROBATION] == 0
    lists, victim = oldest(s.lists, jnp.where(empty, PROTECTED, PROBATION))
    return s._replace(lists=move(lists, victim, NOWHERE)), victim


def _insert(params: dict, s: _Segments, access: Access) -> _Segments:
    return s._replace(lists=move(s.lists, access.block, PROBATION))


def slru_threshold(*, uses: int = 2) -> OnlinePolicy:
    """One list in two classes: blocks with enough uses outlive all with fewer.

    key = 1 if the block was used `uses` times since it entered, else 0

    LRU inside a class. The upper class has no limit, so the rule freezes as in-cache
    LFU does: once it fills the cache, newcomers only push each other out.

    Args:
        uses: requests that make a block worth protecting.

    Raises:
        InputError: if it is below 1.

    Example:
        >>> slru_threshold(uses=3).rule.width
        1

    References:
        SGLang, `evict_policy.py`, "slru".
    """
    check_whole("slru_threshold", "uses", uses, 1, INT32_MAX)
    params = {"uses": jnp.float32(uses)}
    return OnlinePolicy(params, Scored(_class, width=1), "slru_threshold")


def _class(params: dict, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    uses = m.own + 1
    return jnp.float32(uses[0] >= params["uses"]), uses
