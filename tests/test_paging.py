"""The block pool against a plain one, step by step, and its rules one by one."""

import re
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from perc import paging
from perc.errors import InputError
from tests.oracles import pool as oracle

DOCUMENT = Path(__file__).parents[1] / "docs" / "blocks.md"
BLOCKS, PINNED, LENGTH = 7, 1, 4
IS_FREE = jax.jit(paging.is_free)
KEYS = st.lists(st.integers(0, 2), min_size=1, max_size=LENGTH)
SCORES = st.lists(st.sampled_from([0.0, 1.0]), min_size=BLOCKS, max_size=BLOCKS)


def padded(values) -> jnp.ndarray:
    return jnp.asarray(np.array([*values, *[-1] * (LENGTH - len(values))], np.int32))


def real(array) -> list[int]:
    return [x for x in np.asarray(array).tolist() if x >= 0]


class PoolMachine(RuleBasedStateMachine):
    """Both pools see the same events; holders are sequences of blocks.

    They begin with two copies of one key and of another, all free: what random events
    seldom come to.
    """

    def __init__(self):
        super().__init__()
        self.pool = paging.empty_pool(BLOCKS, pinned_blocks=PINNED)
        self.plain = oracle.Pool(BLOCKS, PINNED)
        self.holders: list[list[int]] = []

    @initialize(keys=st.permutations([0, 0, 1, 1]), order=st.permutations(range(2)))
    def begin(self, keys, order):
        for half in (keys[:2], keys[2:]):
            self.allocate(2, [0.0] * BLOCKS, False)
            self.give_names(self.holders[-1], half)
        for at in order:
            self.release(self.holders[at])
        self.holders.clear()

    def compare(self, before, given, expected):
        assert bool(given.sufficient) == (expected is not None)
        if expected is None:
            chex.assert_trees_all_equal(self.pool, before)
            assert real(given.blocks) == real(given.removed) == []
            return
        blocks, removed = expected
        assert real(given.blocks) == blocks
        assert sorted(real(given.removed)) == sorted(removed)

    @rule(n=st.integers(0, LENGTH), score=SCORES, by_score=st.booleans())
    def allocate(self, n, score, by_score):
        before = self.pool
        worth = jnp.asarray(np.array(score, np.float32))
        self.pool, given = paging.allocate(self.pool, n, worth if by_score else None)
        expected = self.plain.allocate(n, score if by_score else [0] * BLOCKS)
        self.compare(before, given, expected)
        if expected and n:
            self.holders.append(expected[0])

    @rule(n=st.integers(0, 3), score=SCORES)
    def evict(self, n, score):
        before = self.pool
        worth = jnp.asarray(np.array(score, np.float32))
        self.pool, given = paging.evict(self.pool, n, worth)
        self.compare(before, given, self.plain.evict(n, score))

    @rule(keys=KEYS)
    def look_up_and_hold(self, keys):
        found = paging.look_up(self.pool, padded(keys))
        expected = self.plain.look_up(keys)
        assert found.tolist() == padded(expected).tolist()
        self.pool = paging.hold(self.pool, found)
        self.plain.hold(expected)
        if expected:
            self.holders.append(expected)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), keys=KEYS)
    def name(self, data, keys):
        self.give_names(data.draw(st.sampled_from(self.holders)), keys)

    def give_names(self, mine, keys):
        pairs = list(zip(mine, keys, strict=False))
        blocks = padded([block for block, _ in pairs])
        self.pool, stored = paging.name(self.pool, blocks, padded(keys[: len(pairs)]))
        named: set[int] = set()
        expected = []
        for block, key in pairs:
            if self.plain.key[block] is None and block not in named:
                expected += [key] if self.plain.name(block, key) else []
                named.add(block)
        assert real(stored) == expected

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def end(self, data):
        at = data.draw(st.integers(0, len(self.holders) - 1))
        self.release(self.holders.pop(at))

    def release(self, blocks):
        self.pool = paging.release(self.pool, padded(blocks))
        self.plain.release(blocks)

    @invariant()
    def same_state(self):
        assert self.pool.refs.tolist() == self.plain.refs
        keys = [-1 if key is None else key for key in self.plain.key]
        assert self.pool.key.tolist() == keys
        assert int(self.pool.evicted) == self.plain.evicted
        stamps = self.pool.stamp.tolist()
        free = np.flatnonzero(IS_FREE(self.pool))
        order = sorted(free, key=lambda b: (keys[b] >= 0, stamps[b]))
        assert order == self.plain.keyless + self.plain.cached

    @invariant()
    def blocks_are_conserved(self):
        count: Any = paging.census(self.pool)
        free, used, pinned = map(int, count[:3])
        assert free + used + pinned == BLOCKS and pinned == PINNED
        assert used == len({block for blocks in self.holders for block in blocks})
        held = [block for blocks in self.holders for block in blocks]
        assert sum(self.plain.refs) == len(held)
        assert int(count.cached) == len(self.plain.cached)
        known = [key for key in self.plain.key if key is not None]
        assert int(count.keyed) == len(known)
        assert int(count.keys) == len(set(known))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(deadline=None, max_examples=25, stateful_step_count=20)


def test_released_without_a_key_is_reused_before_what_was_never_used():
    pool, given = paging.allocate(paging.empty_pool(6), 3)
    assert real(given.blocks) == [0, 1, 2]
    pool = paging.release(pool, padded([0]))
    pool = paging.release(pool, padded([1, 2]))
    pool, given = paging.allocate(pool, 4)
    assert real(given.blocks) == [2, 1, 0, 3]  # the tail of the last release first


def test_what_makes_no_sense_is_passed_over():
    before, given = paging.allocate(paging.empty_pool(3, pinned_blocks=1), 1)
    assert real(given.blocks) == [1]
    for blocks in ([-1], [0], [2], [3], [99]):  # padding, pinned, free, beyond
        at = jnp.array(blocks)
        for after in (
            paging.hold(before, at),
            paging.release(before, at),
            paging.name(before, at, jnp.array([7]))[0],
        ):
            chex.assert_trees_all_equal(after._replace(clock=before.clock), before)
    named, stored = paging.name(before, jnp.array([1]), jnp.array([7]))
    again, silent = paging.name(named, jnp.array([1]), jnp.array([8]))
    assert (real(stored), real(silent), again.key[1]) == ([7], [], 7)


def test_a_block_released_twice_at_once_is_freed_once():
    pool, _ = paging.allocate(paging.empty_pool(2), 1)
    pool = paging.release(pool, jnp.array([0, 0]))
    assert pool.refs.tolist() == [0, 0]
    assert int(pool.clock) == 1
    _, given = paging.allocate(pool, 2)
    assert real(given.blocks) == [0, 1]


def test_a_pool_is_made_of_blocks():
    for arguments in ((0, 0), (-1, 0), (3, 4), (3, -1)):
        with pytest.raises(InputError, match="give one block or more"):
            paging.empty_pool(arguments[0], pinned_blocks=arguments[1])


def test_cover_takes_no_more_than_it_must():
    size = jnp.array([3, 5, 4, 9])
    allowed = jnp.array([True, True, True, False])
    for asked in range(-1, 14):
        found = paging.cover(asked, size, allowed, (jnp.arange(4),))
        victims = real(found.entries)
        assert bool(found.sufficient) == (asked <= 12)
        assert victims == [0, 1, 2][: len(victims)]
        assert int(found.freed) == sum(size[v].item() for v in victims)
        if found.sufficient and asked > 0:
            assert found.freed >= asked
            assert found.freed - size[victims[-1]] < asked
        else:
            assert victims == []


def test_cover_asks_the_last_order_first():
    key, tie = jnp.array([2, 1, 1]), jnp.array([0, 5, 4])
    found = paging.cover(3, jnp.ones(3, jnp.int32), tie >= 0, (tie, key))
    assert found.entries.tolist() == [2, 1, 0]


def test_a_look_up_prefers_the_copy_that_is_in_use():
    """Holding it takes no second block from the free ones."""
    pool, given = paging.allocate(paging.empty_pool(4), 3)
    pool, _ = paging.name(pool, given.blocks[:3], jnp.array([7, 7, 7]))
    pool = paging.release(pool, jnp.array([0]))
    assert paging.look_up(pool, jnp.array([7])).tolist() == [1]
    pool = paging.hold(pool, jnp.array([2]))
    assert paging.look_up(pool, jnp.array([7])).tolist() == [1]
    pool = paging.release(pool, jnp.array([1]))
    assert paging.look_up(pool, jnp.array([7])).tolist() == [2]


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_example_of_the_document_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    exec(compile(code, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out == "[0 1 2 3]\nFalse 4\n"
