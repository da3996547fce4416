"""L9: the clairvoyant rule is optimal for unit hits, and only a bound for weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.policies.registry import registry
from tests.strategies import rows_of, traces
from tests.test_step import trace_of
from tests.theory.brute import most_hits

small = traces(max_requests=6, max_depth=3, branching=2)
many = settings(deadline=None, max_examples=40)


def belady_hits(trace, capacity, *, bypass):
    """Leading resident blocks of each request."""
    policy = registry["belady_bypass" if bypass else "belady"]()
    ranks = perc.ranks(trace, perc.scores(policy, trace))
    return perc.replay(trace, ranks, [capacity], bypass=bypass).blocks[0]


def weighted(requests, hits, weight):
    return sum(
        weight[b] for row, h in zip(requests, hits, strict=True) for b in row[:h]
    )


@pytest.mark.parametrize("bypass", [False, True])
@many
@given(small, st.integers(1, 4))
def test_optimal_for_hits_of_equal_blocks(bypass, trace, capacity):
    requests = rows_of(trace, trace.block)
    unit = np.ones(trace.n_blocks, int)
    hits = int(belady_hits(trace, capacity, bypass=bypass).sum())
    assert hits == most_hits(requests, capacity, unit, bypass=bypass)
    if bypass or trace.longest_request <= capacity:
        # Closure costs nothing: whoever may keep children without parents gains none.
        assert hits == most_hits(requests, capacity, unit, bypass=bypass, chained=False)


@many
@given(small, st.integers(1, 4), st.data())
def test_weights_leave_it_below_two_bounds(trace, capacity, data):
    requests = rows_of(trace, trace.block)
    n = trace.n_blocks
    weight = data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    found = weighted(requests, belady_hits(trace, capacity, bypass=True), weight)
    best = most_hits(requests, capacity, weight, bypass=True)
    free = most_hits(requests, capacity, weight, bypass=True, chained=False)
    assert found <= best <= free


def test_not_optimal_for_weights_that_grow_with_depth():
    requests = [[2], [0, 1], [2], [0, 1]]
    weight = {0: 1, 1: 2, 2: 1}
    hits = belady_hits(trace_of(requests), 2, bypass=True)
    assert weighted(requests, hits, weight) == 2
    assert most_hits(requests, 2, weight, bypass=True) == 3


def test_without_the_chain_condition_the_optimum_is_only_a_bound():
    requests = [[0, 2], [0, 2], [0]]
    weight = {0: 1, 2: 2}
    assert most_hits(requests, 1, weight, bypass=True) == 2
    assert most_hits(requests, 1, weight, bypass=True, chained=False) == 3
