"""sglang#28468, Mooncake#4239: a block evicted while it is copied."""

import jax.numpy as jnp
import numpy as np
import pytest

from perc import paging

A, B, C = 0, 1, 2


@pytest.fixture
def pool():
    """Three cached blocks, a, b and c."""
    pool, given = paging.allocate(paging.empty_pool(3), 3)
    pool, _ = paging.name(pool, given.blocks, jnp.arange(3))
    return paging.release(pool, given.blocks)


@pytest.mark.parametrize("score_of_a", [0.0, -1e30])
def test_a_block_that_is_copied_stays(pool, score_of_a):
    """sglang#28468. Evicted are b, then, when the copy is over, a."""
    score = jnp.array([score_of_a, 1.0, 2.0])
    copied = jnp.array([A])
    pool = paging.hold(pool, copied)
    pool, gone = paging.evict(pool, 1, score)
    assert gone.blocks.tolist() == [B, -1, -1]
    pool = paging.release(pool, copied)
    pool, gone = paging.evict(pool, 1, score)
    assert gone.blocks.tolist() == [A, -1, -1]


def test_with_all_in_use_nothing_changes(pool):
    """Mooncake#4239. Lowering a score makes no victim."""
    pool = paging.hold(pool, jnp.array([A, B, C]))
    for score in (jnp.array([0.0, 1.0, 2.0]), jnp.array([-1e30, 1.0, 2.0])):
        for take in (paging.evict, paging.allocate):
            after, gone = take(pool, 1, score)
            assert not gone.sufficient and gone.blocks.tolist() == [-1] * 3
            for before, now in zip(pool, after, strict=True):
                np.testing.assert_array_equal(before, now)
