"""sglang#18843, sglang-omni#1724: a count that never rises, a heap that is stale."""

import jax.numpy as jnp

from perc import paging
from tests.public_reports.traffic import hits_of, trace_of


def test_a_counter_that_counts():
    """sglang#18843. Equal hits of both policies would mean that it does not."""
    trace = trace_of([["AABC".index(x)] for x in "AAABCA"])
    assert hits_of("lfu_in_cache", trace, 2) == [0, 1, 1, 0, 0, 1]
    assert hits_of("lru", trace, 2) == [0, 1, 1, 0, 0, 0]


def test_a_key_that_falls():
    """sgl-project/sglang-omni#1724. Touching A makes it mru's victim, not B's."""
    a, b, new = [0], [1], [2]
    assert hits_of("mru", trace_of([a, b, a, new, b]), 2)[-1] == 1
    assert hits_of("mru", trace_of([a, b, a, new, a]), 2)[-1] == 0


def test_a_key_that_falls_in_a_pool():
    """sgl-project/sglang-omni#1724. Keys are compared when asked, not remembered."""
    pool, given = paging.allocate(paging.empty_pool(2), 2)
    pool, _ = paging.name(pool, given.blocks, jnp.arange(2))
    pool = paging.release(pool, given.blocks)
    _, gone = paging.evict(pool, 1, -jnp.array([3.0, 2.0]))  # last used at 3 and 2
    assert gone.blocks.tolist() == [0, -1]
