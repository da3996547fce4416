"""Random unmarked leaves: phases, chance and the promise of marking."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.online import replay_online
from perc.policies.rlt import rlt
from tests.oracles import listed
from tests.oracles.rlt import Rlt
from tests.strategies import rows_of, traces
from tests.test_step import trace_of


def test_what_was_used_in_the_phase_is_safe():
    """Two of four blocks are used anew, so two newcomers leave them alone."""
    requests = [[0], [1], [2], [3], [4], [0], [5], [0], [4]]
    for seed in range(20):
        hits = replay_online(trace_of(requests), rlt(seed=seed), [4]).blocks[0]
        if hits[5]:  # 0 has survived 4, and is marked now
            assert hits[7:].tolist() == [1, 1]


def test_every_unmarked_leaf_is_as_likely():
    victims = Counter()
    for seed in range(2000):
        _, gone = listed.simulate([[0], [1], [2], [3], [4]], Rlt(4, seed))
        victims.update(gone[-1])
    assert sorted(victims) == [0, 1, 2, 3]
    assert all(abs(count - 500) < 100 for count in victims.values())


def test_a_phase_ends_when_one_more_would_mark_all():
    """A loop of five over four slots, by seed: the oracle counts the same."""
    ids = list(range(5)) * 80
    trace = trace_of([[b] for b in ids])
    for seed in range(4):
        hits, _ = listed.simulate([[b] for b in ids], Rlt(4, seed), root_first=True)
        found = replay_online(trace, rlt(seed=seed), [4]).blocks[0]
        assert found.tolist() == hits


def test_a_loop_does_not_fool_it():
    """Five blocks, four slots: LRU hits none of 400, marking about half at least."""
    ids = list(range(5)) * 80
    hits = replay_online(trace_of([[b] for b in ids]), rlt(), [4]).blocks.sum()
    assert hits > 150


@settings(deadline=None, max_examples=60)
@given(trace=traces(max_requests=60), capacity=st.integers(1, 8))
def test_no_marked_victim_no_running_victim_no_hole(trace, capacity):
    cache = Rlt(capacity, 3)
    for blocks in rows_of(trace, trace.block):
        marks = set(cache.marks)
        _, (victims,) = listed.simulate([blocks], cache, root_first=True)
        resident = [b for b in blocks if b in cache]
        assert resident == blocks[: min(len(blocks), capacity)]
        assert set(victims).isdisjoint(resident)
        assert all(p is None or p in cache for p in cache.parent.values())
        assert set(resident) <= cache.marks <= set(cache.parent)
        assert len(cache.marks) <= capacity
        if marks <= cache.marks:  # no new phase
            assert set(victims).isdisjoint(marks)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(InputError, match=f"rlt: seed is {seed}, must be"):
        rlt(seed=seed)
