"""vllm#48435: round-robin clients, one block more than fits, and no hit at all."""

import perc
from tests.public_reports.traffic import hits_of, trace_of

CYCLE = [[i % 5] for i in range(100)]


def test_lru_hits_nothing_and_the_bound_72():
    """vllm#48435. LRU's zero is right; mru reaches the bound."""
    trace = trace_of(CYCLE)
    found = {
        name: hits_of(name, trace, 4)
        for name in ("lru", "lfu_in_cache", "slru_threshold", "mru", "belady")
    }
    assert {name: sum(hits) for name, hits in found.items()} == {
        "lru": 0,
        "lfu_in_cache": 0,
        "slru_threshold": 0,
        "mru": 72,
        "belady": 72,
    }
    assert found["mru"][:10] == [0, 0, 0, 0, 0, 1, 1, 1, 0, 1]


def test_the_optimum_of_the_first_thirty_is_19():
    """vllm#48435."""
    trace = trace_of(CYCLE[:30])
    assert sum(hits_of("belady", trace, 4)) == 19
    assert sum(hits_of("lru", trace, 4)) == 0


def test_the_report_shows_the_gap():
    """vllm#48435. The gap to the oracle is 72 hits, and LRU closes none of it."""
    trace = trace_of(CYCLE)
    lru, mru, oracle = perc.compare(trace, ["lru", "mru", "belady"], [4]).rows
    assert (lru.block_hit_ratio, lru.gap_closed) == (0.0, 0.0)
    assert (mru.block_hit_ratio, mru.gap_closed) == (0.72, 1.0)
    assert (oracle.block_hit_ratio, oracle.gap_closed) == (0.72, 1.0)
    (why,) = perc.attribute(trace, "lru", 4).rows
    missed = {cause: miss.blocks for cause, miss in why.misses.items() if miss.blocks}
    assert missed == {"policy": 72, "capacity": 23, "cold": 5}
