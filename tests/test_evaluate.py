"""Every shortcut over capacities gives what one replay a capacity gives."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cost import DEFAULT_COST
from perc.evaluate import bisect_equal, evaluate
from perc.lanes import fifo_curve
from perc.metrics import Metrics, measure
from perc.policies.registry import registry
from tests.strategies import replay_each, traces

NAMES = ["lru", "fifo", "perc_decay", "belady", "belady_bypass", "priority"]


def one_by_one(policy, trace, sizes, skip):
    order = perc.ranks(trace, perc.scores(policy, trace))
    hits = replay_each(
        trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh
    ).blocks
    return [measure(trace, row, warmup_requests=skip) for row in hits]


@settings(deadline=None, max_examples=40)
@given(traces(max_requests=30), st.sampled_from(NAMES), st.integers(0, 5))
def test_evaluate_equals_replay(trace, name, skip):
    policy = registry[name]()
    skip = min(skip, trace.n_requests)
    sizes = [0, 1, 2, 3, 5, 8, 2, 100]
    found = evaluate(policy, trace, sizes, warmup_requests=skip)
    for own, expected in zip(
        found, one_by_one(policy, trace, sizes, skip), strict=True
    ):
        assert astuple(own)[:3] == astuple(expected)[:3]
        assert own.recompute_s == pytest.approx(expected.recompute_s, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(traces(max_requests=30), st.integers(0, 5))
def test_lanes_equal_replay(trace, skip):
    order = perc.ranks(trace, trace.request)
    sizes = list(range(20))
    hits = perc.replay(trace, order, sizes, bypass=True, refresh=False).blocks
    expected = hits[:, skip:].sum(axis=1)
    assert (
        fifo_curve(trace, sizes, warmup_requests=skip)[0].tolist() == expected.tolist()
    )


def test_many_capacities_of_fifo_with_bypass(small_chat):
    policy = replace(registry["fifo"](), bypass=True)
    sizes = list(range(50, 2000, 60))
    found = evaluate(policy, small_chat, sizes, warmup_requests=50)
    for own, expected in zip(
        found, one_by_one(policy, small_chat, sizes, 50), strict=True
    ):
        assert astuple(own)[:3] == astuple(expected)[:3]
        assert own.recompute_s == pytest.approx(expected.recompute_s, rel=1e-5)


def test_lanes_carry_beyond_32_bits(small_chat):
    weights = np.full((1, small_chat.n_accesses), 2**25)
    plain = fifo_curve(small_chat, [100, 1000])
    assert (plain * 2**25 > 2**32).all()
    weighted = fifo_curve(small_chat, [100, 1000], weights=weights)
    assert weighted.tolist() == (plain * 2**25).tolist()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "fifo"])
@settings(deadline=None, max_examples=25)
@given(trace=traces(max_requests=30))
def test_each_request_hits_no_less_in_a_larger_cache(name, trace):
    """What bisection rests on: inclusion request by request, not in the sum alone."""
    policy = registry[name]()
    order = perc.ranks(trace, perc.scores(policy, trace))
    hits = replay_each(trace, order, range(10), bypass=policy.bypass).blocks
    assert (np.diff(hits, axis=0) >= 0).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_bisection_calls_only_where_the_value_changes(steps, data):
    values = np.cumsum(np.array(steps) == 0)
    calls = []

    def at(some):
        calls.extend(some)
        return [Metrics(float(values[size]), 0.0, 0, 0.0) for size in some]

    sizes = sorted(data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1)))
    found = bisect_equal(at, sizes)
    assert [found[s].block_hit_ratio for s in sizes] == [values[s] for s in sizes]
    assert len(calls) == len(set(calls))
    if values[sizes[0]] == values[sizes[-1]]:
        assert len(calls) <= 16


def test_an_empty_trace():
    trace = perc.make("chat", requests=0)
    for name in NAMES:
        for own in evaluate(registry[name](), trace, [0, 3], cost=DEFAULT_COST):
            assert own == Metrics(0.0, 0.0, 0, 0.0)
