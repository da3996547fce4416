"""`mru`, `filo`, `shortest` and `largest`: rules that show what a trace is like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.compare import run
from perc.online import replay_online
from perc.policies.mru import mru
from perc.policies.registry import registry
from tests.oracles import cache as oracle
from tests.strategies import replay_each, rows_of, traces
from tests.test_step import trace_of

NAMES = ("mru", "belady", "lru")
CAPACITIES = (0, 1, 3, 5, 11)


def assert_equals_cache(policy, trace, scores, *, refresh=True):
    """Hits and evictions of a ranked policy are those of a cache with these scores."""
    order = perc.ranks(trace, perc.scores(policy, trace))
    found = replay_each(trace, order, CAPACITIES, refresh=policy.refresh)
    for k, capacity in enumerate(CAPACITIES):
        expected, victims = oracle.simulate(
            rows_of(trace, trace.block), scores, capacity, refresh=refresh
        )
        assert found.blocks[k].tolist() == expected
        assert int(found.evictions[k]) == sum(map(len, victims))


@settings(deadline=None, max_examples=20)
@given(trace=traces(max_requests=40))
def test_filo_evicts_what_was_inserted_last(trace):
    scores = rows_of(trace, -trace.request)
    assert_equals_cache(registry["filo"](), trace, scores, refresh=False)


@pytest.mark.parametrize(("name", "sign"), [("shortest", 1), ("largest", -1)])
@settings(deadline=None, max_examples=20)
@given(trace=traces(max_requests=40))
def test_length_ranks_by_the_extreme_of_all_users(name, sign, trace):
    blocks = rows_of(trace, trace.block)
    lengths = rows_of(trace, sign * trace.input_tokens[trace.request])
    scores = oracle.chain_worth(blocks, lengths)
    assert_equals_cache(registry[name](), trace, scores)


def test_by_length_by_hand():
    """A prompt of three blocks and one of one, then a newcomer of two; four slots."""
    trace = trace_of([[0, 1, 2], [3], [4, 5], [0, 1, 2], [3]])
    for name, expected in (
        ("shortest", [0, 0, 0, 2, 0]),
        ("largest", [0, 0, 0, 1, 1]),
        ("lru", [0, 0, 0, 1, 0]),
    ):
        assert run(registry[name](), trace, [4])[0].tolist() == expected


@pytest.mark.parametrize(
    ("name", "requests", "expected"),
    [
        ("shortest", [[0, 1, 2], [0], [3, 4], [0, 1, 2]], [0, 1, 0, 2]),
        ("largest", [[0, 1], [0, 1, 2, 3], [5, 6, 7], [8], [0]], [0, 2, 0, 0, 1]),
    ],
)
def test_the_extreme_user_counts_not_the_last(name, requests, expected):
    """A root that a short prompt used last, and one that a long prompt used last."""
    assert run(registry[name](), trace_of(requests), [4])[0].tolist() == expected


def test_on_a_loop_mru_is_the_optimum():
    """cases.md 1: five blocks, four slots, twenty rounds."""
    trace = trace_of([[b] for b in list(range(5)) * 20])
    found = {name: run(registry[name](), trace, [4])[0] for name in NAMES}
    assert found["mru"].sum() == found["belady"].sum() == 72
    assert found["mru"][:10].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 1]
    assert found["lru"].sum() == 0


def test_a_key_that_falls_is_seen():
    """cases.md 13 B: of A, B, and A again, the newest is A."""
    a, b, new = 0, 1, 2
    for last, expected in (([a], 0), ([b], 1)):
        trace = trace_of([[a], [b], [a], [new], last])
        assert replay_online(trace, mru(), [2]).blocks[0, -1] == expected


@settings(deadline=None, max_examples=20)
@given(trace=traces(max_requests=40), capacity=st.integers(1, 8))
def test_mru_leaves_no_prefix_hole(trace, capacity):
    """What hits is all that is in the cache of the request: no block behind a hole."""
    found = replay_online(trace, mru(), [capacity])
    lengths = trace.stop - trace.start
    stored = np.minimum(lengths, capacity) - np.minimum(found.blocks[0], capacity)
    resident = int(stored.sum()) - int(found.evictions[0])
    refused = int(np.maximum(lengths - np.maximum(capacity, found.blocks[0]), 0).sum())
    assert 0 <= resident + refused <= capacity
