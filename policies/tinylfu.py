"""TinyLFU: LRU behind a door that compares newcomers with whom they would replace."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import check_number
from perc.lists import NOWHERE, Lists, empty_lists, move, oldest, read, write
from perc.types import Access, Listed, OnlinePolicy

MOST_WINDOW = 2**30  # accesses


def tinylfu(*, window: float = 10.0) -> OnlinePolicy:
    """A new block is stored only if it was used more often than LRU's victim.

    Counts cover all blocks, in the cache or not, and are halved after every `window` *
    capacity accesses, so that old fame fades. Counts are exact here; the paper keeps
    them in a sketch, which errs on the high side.

    Stores nothing that was used once while the cache is full of what was used before,
    which also saves writes to an offload tier. On conversations it hits about twice as
    much as LRU where the cache is far too small, and far less where it is not, since a
    next turn misses all that was refused. The running request's blocks may be victims
    or refused, and a child may be in the cache without its parent.

    Args:
        window: accesses between halvings, in capacities.

    Raises:
        InputError: if the window is not positive.

    Example:
        >>> tinylfu(window=4).bypass
        True

    References:
        Einziger, Friedman and Manes 2017, "TinyLFU: a highly efficient cache admission
        policy" (ACM Transactions on Storage).
    """
    check_number("tinylfu", "window", window, above=True)
    params = {"window": jnp.float32(window)}
    rule = Listed(_init, _hit, _evict, _insert, _note)
    return OnlinePolicy(params, rule, "tinylfu", bypass=True)


class Counts(NamedTuple):
    """Uses of every block, in the cache or not, that are halved from time to time."""

    rows: jax.Array  # i32[M, 2], uses as of a halving, and of which one
    halvings: jax.Array  # i32[]
    accesses: jax.Array  # i32[], since the last halving
    window: jax.Array  # i32[], accesses between halvings
    latest: jax.Array  # i32[], uses of the block that was counted last


def no_counts(window: jax.Array, capacity: jax.Array, n_blocks: int) -> Counts:
    """Nothing used yet; `window` in capacities."""
    accesses = jnp.clip(jnp.floor(window * capacity), 1, MOST_WINDOW)
    zero = jnp.int32(0)
    rows = jnp.zeros((n_blocks, 2), jnp.int32)
    return Counts(rows, zero, zero, jnp.int32(accesses), zero)


def count(c: Counts, block: jax.Array) -> Counts:
    """One use more of a block."""
    c, uses = uses_of(c, block)
    halve = c.accesses + 1 >= c.window
    return c._replace(
        rows=write(c.rows, block, jnp.stack([uses + 1, c.halvings])),
        halvings=c.halvings + halve,
        accesses=jnp.where(halve, 0, c.accesses + 1),
        latest=jnp.where(halve, (uses + 1) >> 1, uses + 1),
    )


def uses_of(c: Counts, block: jax.Array) -> tuple[Counts, jax.Array]:
    """How often a block was used, after all halvings so far."""
    rows, (uses, then) = read(c.rows, block)
    return c._replace(rows=rows), uses >> jnp.minimum(c.halvings - then, 31)


class _Door(NamedTuple):
    lists: Lists  # one list
    counts: Counts


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Door:
    counts = no_counts(params["window"], capacity, n_blocks)
    return _Door(empty_lists(1, n_blocks), counts)


def _note(params: dict, s: _Door, access: Access) -> _Door:
    return s._replace(counts=count(s.counts, access.block))


def _hit(params: dict, s: _Door, access: Access) -> _Door:
    return s._replace(lists=move(s.lists, access.block, 0))


def _evict(params: dict, s: _Door, access: Access) -> tuple[_Door, jax.Array]:
    lists, block = oldest(s.lists, 0)
    counts, uses = uses_of(s.counts, block)
    victim = jnp.where(counts.latest > uses, block, access.block)
    return _Door(move(lists, victim, NOWHERE), counts), victim


def _insert(params: dict, s: _Door, access: Access) -> _Door:
    return s._replace(lists=move(s.lists, access.block, 0))
