"""vllm#42656: partial blocks, which nobody can find, evicted cached ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc import paging

CHAIN = jnp.arange(4)
SHORT_REQUESTS = 2000


def cached_chain(n_blocks):
    pool, given = paging.allocate(paging.empty_pool(n_blocks), 4)
    pool, _ = paging.name(pool, given.blocks[:4], CHAIN)
    return paging.release(pool, given.blocks)


def hits(pool):
    return int((paging.look_up(pool, CHAIN) >= 0).sum())


@pytest.mark.parametrize(
    ("n_blocks", "expected_hits", "evictions"), [(8, 4, 0), (4, 3, 1)]
)
def test_short_requests_reuse_one_slot(n_blocks, expected_hits, evictions):
    """vllm#42656. With four slots to spare nothing is evicted; without, one block is,
    the chain's deepest, and the other 1,999 requests reuse its slot."""

    def serve(pool, _):
        pool, given = paging.allocate(pool, 1)
        pool = paging.release(pool, given.blocks[:1])
        return pool, (given.blocks[0], pool.evicted)

    pool = cached_chain(n_blocks)
    assert hits(pool) == 4
    pool, (slots, evicted) = jax.lax.scan(serve, pool, length=SHORT_REQUESTS)
    assert set(evicted.tolist()) == {evictions}
    assert hits(pool) == expected_hits
    assert len(set(slots.tolist())) == 1


def test_all_slots_without_a_key_go_first():
    """vllm#42656."""
    pool, given = paging.allocate(cached_chain(8), 4)
    taken = np.asarray(given.blocks)
    assert sorted(taken[taken >= 0].tolist()) == [4, 5, 6, 7]
    assert int(pool.evicted) == 0 and hits(pool) == 4
