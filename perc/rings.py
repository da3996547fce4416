"""First-in-first-out queues of blocks as rings in one array, for `Listed` rules.

A ring knows where its oldest and its newest member stand and needs no links, so a push
is one write, where a list (`perc/lists.py`) takes five. Only the oldest can leave. A
policy that drops another member notes so, and skips the gap when that comes up:
`next_slot` names the slot of what is pushed next, and no two entries share one.

The functions keep to the contract of `perc.lists`: carry on with what they give back.

>>> rings = empty_rings(2, n_blocks=8)
>>> for block in (5, 3):
...     rings = push(rings, 1, block)
>>> rings, oldest = pop(rings, 1)
>>> int(oldest), int(length(rings, 0)), int(length(rings, 1))
(5, 0, 1)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from perc.bitset import write
from perc.lists import read
from perc.shapes import bucket


class Rings(NamedTuple):
    """Rings 0..q-1, each with room for twice the M blocks: for as many gaps."""

    slots: jax.Array  # i32[q * S], ring after ring; S is a power of two, at least 2M
    popped: jax.Array  # i32[q], how many so far
    pushed: jax.Array  # i32[q]


def empty_rings(n_rings: int, n_blocks: int) -> Rings:
    """`n_rings` empty rings over `n_blocks` blocks."""
    none = jnp.zeros(n_rings, jnp.int32)
    return Rings(jnp.zeros(n_rings * bucket(2 * n_blocks), jnp.int32), none, none)


def room(rings: Rings) -> int:
    """S, the slots of a ring."""
    return rings.slots.shape[0] // rings.popped.shape[0]


def length(rings: Rings, of: int) -> jax.Array:
    """Members and gaps of ring `of`, i32[]."""
    return rings.pushed[of] - rings.popped[of]


def push(rings: Rings, to: Any, block: jax.Array, wanted: Any = True) -> Rings:
    """Makes a block the newest of ring `to`, which has room; or not, if not wanted."""
    slots = write(rings.slots, next_slot(rings, to), block)
    return rings._replace(slots=slots, pushed=_count(rings.pushed, to, wanted))


def pop(rings: Rings, of: Any) -> tuple[Rings, jax.Array]:
    """Takes out the oldest of ring `of`, which must not be empty."""
    slots, block = read(rings.slots, oldest_slot(rings, of))
    popped = _count(rings.popped, of, True)
    return rings._replace(slots=slots, popped=popped), block


def oldest_slot(rings: Rings, of: Any) -> jax.Array:
    """The slot from which `pop` takes, i32[]."""
    return _slot(rings, rings.popped, of)


def next_slot(rings: Rings, to: Any) -> jax.Array:
    """The slot to which `push` writes, i32[]."""
    return _slot(rings, rings.pushed, to)


def _slot(rings: Rings, counts: jax.Array, of: Any) -> jax.Array:
    count = jnp.sum(jnp.where(_is(counts, of), counts, 0))
    return of * room(rings) + (count & (room(rings) - 1))


def _count(counts: jax.Array, of: Any, wanted: Any) -> jax.Array:
    return counts + (_is(counts, of) & wanted)


def _is(counts: jax.Array, of: Any) -> jax.Array:
    """A mask, since XLA indexes small arrays more slowly."""
    return jnp.arange(counts.shape[0]) == of
