"""sglang#4987: an eviction that does not count what it freed cannot end in time."""

import jax.numpy as jnp
import numpy as np

from perc import paging

LEAVES = jnp.array([3, 5, 4])  # tokens, in the order of LRU
ALL = jnp.array([True] * 3)


def test_two_leaves_go_and_eight_tokens_are_freed():
    """sglang#4987."""
    found = paging.cover(6, LEAVES, ALL, (jnp.arange(3),))
    assert found.entries.tolist() == [0, 1, -1]
    assert int(found.freed) == 8 >= 6
    assert int(found.freed) - 5 < 6  # without the last victim it is too little


def test_more_than_there_is_changes_nothing():
    """sglang#4987."""
    found = paging.cover(13, LEAVES, ALL, (jnp.arange(3),))
    assert not found.sufficient
    assert found.entries.tolist() == [-1] * 3 and int(found.freed) == 0


def test_a_pool_is_all_or_nothing_too():
    """sglang#4987."""
    pool, given = paging.allocate(paging.empty_pool(3), 3)
    pool, _ = paging.name(pool, given.blocks, jnp.arange(3))
    pool = paging.release(pool, given.blocks)
    after, gone = paging.evict(pool, 4)
    assert not gone.sufficient and int(after.evicted) == 0
    for before, now in zip(pool, after, strict=True):
        np.testing.assert_array_equal(before, now)
    after, gone = paging.evict(pool, 2)
    assert gone.sufficient and int(after.evicted) == 2
