"""Rings against deques."""

from collections import deque as Deque

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
from tests.test_replay_hlo import state_copies

BLOCKS = 40  # a ring has room for 128
moves = st.tuples(st.integers(0, 2), st.integers(0, BLOCKS - 1), st.booleans())


def step(rings: Rings, move) -> tuple[Rings, tuple]:
    """Pushes to a ring where that is wanted, and otherwise pops if there is one."""
    of, block, pushes = move
    lengths = jnp.stack([length(rings, k) for k in range(3)])
    empty = lengths[of] == 0
    slots = jnp.where(pushes, next_slot(rings, of), oldest_slot(rings, of))
    popped, oldest = pop(rings, of)
    kept = push(rings, of, block, pushes)
    leaves = ~pushes & ~empty
    rings = jax.tree.map(lambda a, b: jnp.where(leaves, a, b), popped, kept)
    return rings, (jnp.where(leaves, oldest, -1), slots, lengths)


run = jax.jit(lambda moves: jax.lax.scan(step, empty_rings(3, BLOCKS), moves)[1])


@settings(deadline=None, max_examples=30)
@given(st.lists(moves, min_size=300, max_size=300))
def test_rings_equal_deques(moves):
    columns = tuple(map(np.array, zip(*moves, strict=True)))
    popped, slots, lengths = map(np.asarray, run(columns))
    queues = [Deque() for _ in range(3)]
    where = [Deque() for _ in range(3)]
    for i, (of, block, pushes) in enumerate(moves):
        assert lengths[i].tolist() == [len(queue) for queue in queues]
        if pushes:
            queues[of].append(block)
            assert all(slots[i] not in taken for taken in where)
            where[of].append(slots[i])
            continue
        assert popped[i] == (queues[of].popleft() if queues[of] else -1)
        assert not where[of] or where[of].popleft() == slots[i]


def test_a_ring_wraps():
    rings = empty_rings(1, 64)
    turn = jax.jit(lambda rings: pop(push(rings, 0, rings.pushed[0]), 0))
    assert room(rings) == 128
    for i in range(300):
        rings, block = turn(rings)
        assert int(block) == i


def test_rings_are_updated_in_place():
    """A queue that goes around, and another one that takes every third of it."""

    def turn(i, rings):
        rings, block = pop(rings, 0)
        return push(push(rings, 0, block), 1, block, i % 3 == 0)

    def loop(rings):
        rings = push(rings, 0, jnp.int32(1))
        return jax.lax.fori_loop(0, 5, turn, rings)

    rings = empty_rings(2, 2048)
    text = jax.jit(loop, donate_argnums=0).lower(rings).compile().as_text() or ""
    assert state_copies(text, set(rings.slots.shape)) == []
