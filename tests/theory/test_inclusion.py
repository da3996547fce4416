"""L13: for which policies a larger cache never misses more, and for which it may."""

import random

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.online import replay_online
from perc.policies.arc import arc
from perc.policies.fifo import fifo
from perc.policies.gdsf import gdsf
from perc.policies.lfu_in_cache import lfu_in_cache
from perc.policies.lru import lru
from perc.policies.lru_k import lru_k
from perc.policies.s3fifo import s3fifo
from perc.policies.sieve import sieve
from perc.policies.slru import slru, slru_threshold
from perc.types import OnlinePolicy, Policy
from tests.strategies import chains, replay_each, traces
from tests.test_online_vectors import PRICED, one_block
from tests.test_step import trace_of

CAPACITIES = range(1, 7)
many = settings(deadline=None, max_examples=30)

ANOMALIES = {
    "fifo": (fifo(), [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 3, [9, 10]),
    "gdsf": (gdsf(evict_first=True), [1, 2, 2, 1, 4, 3, 4], 2, [4, 5]),
    "sieve": (sieve(), [1, 3, 3, 1, 4, 2, 4], 2, [4, 5]),
    "arc": (arc(), [1, 0, 3, 3, 2, 1, 0, 3], 2, [6, 7]),
    "lfu_in_cache": (lfu_in_cache(), [3, 1, 0, 1, 3, 0, 2, 1, 2, 1], 2, [6, 7]),
    "slru_threshold": (slru_threshold(), [3, 1, 0, 1, 3, 0, 2, 1, 2, 1], 2, [6, 7]),
    "lru_2": (lru_k(), [1, 3, 4, 1, 3, 2, 4, 2, 4, 1, 0, 4, 0], 2, [9, 10]),
    "slru": (slru(protected=0.5), [0, 1, 0, 2, 1, 3, 2, 0, 3, 2, 0], 2, [8, 9]),
    "s3fifo": (
        s3fifo(small=0.25, ghost=0.75, threshold=2),
        [5, 4, 2, 0, 3, 5, 1, 5, 1],
        4,
        [7, 8],
    ),
}


def hits_of(policy, trace, sizes):
    if isinstance(policy, OnlinePolicy):
        return replay_online(trace, policy, sizes).blocks
    order = perc.ranks(trace, perc.scores(policy, trace))
    return replay_each(
        trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh
    ).blocks


@pytest.mark.parametrize("name", ANOMALIES)
def test_one_more_slot_and_one_more_miss(name):
    policy, ids, k, misses = ANOMALIES[name]
    hits = hits_of(policy, one_block(ids), [k, k + 1])
    assert (len(ids) - hits.sum(axis=1)).tolist() == misses


def test_greedy_dual_with_one_more_slot_pays_more():
    cost, ids = {0: 4, 1: 3, 2: 1, 3: 2}, [1, 0, 2, 3, 2]
    paid = np.array([cost[b] for b in ids])
    trace = trace_of([[b] for b in ids], priority=paid)
    hits = hits_of(PRICED, trace, [2, 3])
    assert ((1 - hits) @ paid).tolist() == [10, 11]


def _newest_first(params, f):
    return -jnp.asarray(f.step, jnp.float32)


# Those whose score depends on the trace alone: tests/policies/test_conformity.py.
INCLUSIVE = {
    "mru": Policy((), _newest_first, "mru", ("step",)),
    "lru_2 retained": lru_k(retained=True),
}


@pytest.mark.parametrize("name", INCLUSIVE)
@many
@given(traces(max_requests=25, max_depth=4))
def test_a_larger_cache_never_misses_more(name, trace):
    sizes = [size for size in CAPACITIES if size >= trace.longest_request]
    total = hits_of(INCLUSIVE[name], trace, sizes).sum(axis=1)
    assert (np.diff(total) >= 0).all()


@many
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.data())
def test_lru_of_objects_that_fit_the_smaller_cache(ids, data):
    trace = one_block(ids)
    n = trace.n_blocks
    size = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
    order = perc.ranks(trace, perc.scores(lru(), trace))
    hits = perc.replay(trace, order, range(int(size.max()), 12), sizes=size).blocks
    assert (np.diff(hits.sum(axis=1)) >= 0).all()


def test_lru_of_an_object_that_fits_the_larger_cache_only():
    """A (1), B (2), A: the smaller cache never takes B, and keeps A."""
    trace = one_block([0, 1, 0])
    order = perc.ranks(trace, perc.scores(lru(), trace))
    hits = perc.replay(trace, order, [1, 2], sizes=np.array([1, 2])).blocks
    assert (3 - hits.sum(axis=1)).tolist() == [2, 3]


def rescored(requests, score, capacity, *, leaf=False, highest=False, bypass=False):
    """Hits of a cache whose keys change with time, in plain Python.

    A block belongs to the last request that used it; `score[owner][now]` is its key,
    the newer owner and the parent stay on ties. `leaf`: no victim has a resident child.
    `highest`: a block has the highest key of all its descendants seen so far.
    """
    cache, owner, parent, depth, hits = set(), {}, {}, {}, 0

    def line(block):
        while block is not None:
            yield block
            block = parent[block]

    def key(block, now):
        below = [b for b in owner if block in line(b)] if highest else [block]
        return max((score[owner[b]][now], owner[b]) for b in below), -depth[block]

    for now, row in enumerate(requests):
        hits += next((i for i, b in enumerate(row) if b not in cache), len(row))
        for d, (block, up) in enumerate(zip(row, [None, *row], strict=False)):
            owner[block], parent[block], depth[block] = now, up, d
        cache |= set(row)
        while len(cache) > capacity:
            held = {parent[b] for b in cache} if leaf else set()
            free = [b for b in cache if b not in held and (bypass or b not in row)]
            cache.discard(min(free, key=lambda b, now=now: key(b, now)))
    return hits


def blocks_of(rows):
    """Edges from the root as blocks, which are named by their path."""
    return [[tuple(row[: i + 1]) for i in range(len(row))] for row in rows]


@settings(deadline=None, max_examples=60)
@given(
    chains(max_requests=10, max_depth=3, branching=2),
    st.booleans(),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_scores_that_change_with_time_keep_inclusion(rows, highest, bypass, draw):
    score = [[draw.randrange(5) for _ in rows] for _ in rows]
    sizes = range(max(map(len, rows), default=1), 9)
    found = [
        rescored(blocks_of(rows), score, size, highest=highest, bypass=bypass)
        for size in sizes
    ]
    assert found == sorted(found)


@pytest.mark.parametrize("bypass", [False, True])
def test_a_leaf_test_breaks_it_for_them(bypass):
    """A search over random traffic finds a larger cache that hits less."""
    draw = random.Random(0)
    for _ in range(2000):
        lengths = [draw.randint(1, 3) for _ in range(9)]
        rows = [[draw.randrange(2) for _ in range(length)] for length in lengths]
        score = [[draw.randrange(5) for _ in rows] for _ in rows]
        found = [
            rescored(blocks_of(rows), score, size, leaf=True, bypass=bypass)
            for size in (3, 4, 5)
        ]
        if found != sorted(found):
            return
    pytest.fail("no counter-example in 2,000 draws")
