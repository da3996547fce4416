"""Priority classes, and whose priority counts (policies.md 2.8, cases.md 10)."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.compare import run
from perc.errors import InputError
from perc.policies.priority import priority
from perc.policies.registry import registry
from tests.strategies import traces
from tests.test_step import trace_of

HIGH = [0, 1, 2, 3]
OTHERS = [[10 * i + j for j in range(4)] for i in range(1, 6)]


def last_hits(policy, requests, priorities, capacity=12):
    trace = trace_of(requests, priority=np.array(priorities))
    return run(policy, trace, [capacity])[0].tolist()


@pytest.mark.parametrize("merge", ["max", "override"])
def test_an_important_prompt_outlives_others(merge):
    found = last_hits(priority(merge=merge), [HIGH, *OTHERS, HIGH], [5, *[0] * 5, 5])
    assert found[-1] == 4
    plain = last_hits(registry["lru"](), [HIGH, *OTHERS, HIGH], [5, *[0] * 5, 5])
    assert plain[-1] == 0


@pytest.mark.parametrize("merge", ["max", "override"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 2), (2, 3), (34, 35), (99, 100)])
def test_every_step_of_priority_is_a_class_of_its_own(merge, low, high):
    requests = [HIGH, *OTHERS[:3], HIGH]
    kept = last_hits(priority(merge=merge), requests, [high, *[low] * 3, high])
    assert kept[-1] == 4
    lost = last_hits(priority(merge=merge), requests, [low, *[high] * 3, low])
    assert lost[-1] == 0


@pytest.mark.parametrize(("merge", "expected"), [("max", 4), ("override", 0)])
def test_a_less_important_user_strips_the_protection_or_not(merge, expected):
    requests, priorities = [HIGH, HIGH, *OTHERS, HIGH], [5, 0, *[0] * 5, 5]
    found = last_hits(priority(merge=merge), requests, priorities)
    assert found[1] == 4 and found[-1] == expected


def test_override_leaves_no_prefix_hole():
    """The prefix falls to 0, its tail stays at 5: the tail must go first."""
    requests, priorities = [HIGH, HIGH[:2], [9], HIGH], [5, 0, 5, 5]
    found = last_hits(priority(merge="override"), requests, priorities, capacity=4)
    assert found == [0, 2, 0, 3]


@settings(deadline=None, max_examples=25)
@given(trace=traces(max_requests=40), capacity=st.integers(0, 10))
def test_with_one_class_it_is_lru(trace, capacity):
    trace = dataclasses.replace(trace, priority=np.full_like(trace.priority, 7))
    lru = run(registry["lru"](), trace, [capacity])
    for merge in ("max", "override"):
        assert run(priority(merge=merge), trace, [capacity]).tolist() == lru.tolist()


def test_compare_shows_both(small_chat):
    other = dataclasses.replace(priority(merge="override"), name="override")
    rows = perc.compare(small_chat, ["priority", other], [200]).rows
    assert [row.policy for row in rows] == ["priority", "override"]


def test_another_merge_is_refused():
    with pytest.raises(InputError, match="merge is 'min', must be 'max' or 'override'"):
        priority(merge="min")
