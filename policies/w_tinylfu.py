"""W-TinyLFU: a small LRU window before a segmented LRU that counts decide about."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import InputError, check_number
from perc.lists import NOWHERE, Lists, empty_lists, entry, move, oldest, when
from perc.policies.tinylfu import Counts, count, no_counts, uses_of
from perc.types import Access, Listed, OnlinePolicy

WINDOW, PROBATION, PROTECTED = range(3)


def w_tinylfu(
    *, window: float = 0.01, protected: float = 0.8, halve: float = 10.0
) -> OnlinePolicy:
    """New blocks pass a window; its oldest block then competes with main's victim.

    The one of the two that was used more often stays, main's at equal counts. Main is
    a segmented LRU: what enters it is on probation, a hit there protects, and what the
    protected segment has no room for goes back to probation. Counts cover all blocks
    and are halved after every `halve` * capacity accesses; here they are exact.

    The window forgives what `tinylfu` refuses at the door: a burst of new blocks may
    hit before it must have a history. On conversations it lies between `tinylfu` and
    LRU: more hits than LRU where the cache is far too small, far fewer where it is not,
    since the next turn comes long after the window has passed. A window of half the
    cache loses less. The running request's blocks may be victims or refused, and a
    child may be in the cache without its parent.

    Args:
        window: share of the cache that is the window, at least one block.
        protected: share of main that the protected segment may take.
        halve: accesses between halvings, in capacities.

    Raises:
        InputError: if a share is not above 0 and at most 1, or `halve` not positive.

    Example:
        >>> w_tinylfu(window=0.2).bypass
        True

    References:
        Einziger, Friedman and Manes 2017, "TinyLFU: a highly efficient cache admission
        policy" (ACM Transactions on Storage), section 4; Caffeine, `WTinyLfu`.
    """
    params = {"window": window, "protected": protected, "halve": halve}
    for name, value in params.items():
        check_number("w_tinylfu", name, value, above=True)
    for name, value in (("window", window), ("protected", protected)):
        if value > 1:
            raise InputError(f"w_tinylfu: {name} is {value}, must be at most 1.")
    rule = Listed(_init, _hit, _evict, _insert, _note)
    return OnlinePolicy(
        {name: jnp.float32(value) for name, value in params.items()},
        rule,
        "w_tinylfu",
        bypass=True,
    )


class _State(NamedTuple):
    lists: Lists
    counts: Counts
    window: jax.Array  # i32[], blocks of the window
    protected: jax.Array  # i32[], blocks that may be protected


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _State:
    window = jnp.int32(jnp.maximum(jnp.floor(params["window"] * capacity), 1))
    protected = jnp.int32(jnp.floor(params["protected"] * (capacity - window)))
    counts = no_counts(params["halve"], capacity, n_blocks)
    return _State(empty_lists(3, n_blocks), counts, window, protected)


def _note(params: dict, s: _State, access: Access) -> _State:
    return s._replace(counts=count(s.counts, access.block))


def _hit(params: dict, s: _State, access: Access) -> _State:
    lists, found = entry(s.lists, access.block)
    to = jnp.where(found.list == WINDOW, WINDOW, PROTECTED)
    lists = move(lists, access.block, to)
    lists = when(lists.sizes[PROTECTED] > s.protected, _demote, lists)
    return s._replace(lists=lists)


def _demote(lists: Lists) -> Lists:
    lists, block = oldest(lists, PROTECTED)
    return move(lists, block, PROBATION)


def _evict(params: dict, s: _State, access: Access) -> tuple[_State, jax.Array]:
    """The cache is full, so the window and main are: one of their victims goes."""
    lists, candidate = oldest(s.lists, WINDOW)
    on_probation, protected = lists.sizes[PROBATION], lists.sizes[PROTECTED]
    segment = jnp.where(on_probation > 0, PROBATION, PROTECTED)
    lists, rival = oldest(lists, segment)
    empty = on_probation + protected == 0  # main has no room at all
    rival = jnp.where(empty, candidate, rival)
    counts, asked = uses_of(s.counts, candidate)
    counts, held = uses_of(counts, rival)
    wins = asked > held
    lists = move(lists, candidate, jnp.where(wins, PROBATION, NOWHERE))
    lists = when(wins, lambda lists: move(lists, rival, NOWHERE), lists)
    victim = jnp.where(wins, rival, candidate)
    return s._replace(lists=lists, counts=counts), victim


def _insert(params: dict, s: _State, access: Access) -> _State:
    """Into the window; while main has room, the window's oldest moves on."""
    full = s.lists.sizes[WINDOW] >= s.window
    lists = when(full, _pass_on, s.lists)
    return s._replace(lists=move(lists, access.block, WINDOW))


def _pass_on(lists: Lists) -> Lists:
    lists, block = oldest(lists, WINDOW)
    return move(lists, block, PROBATION)
