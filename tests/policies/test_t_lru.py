"""T-LRU: what may be lost without being late goes first (policies.md 2.9)."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.features import EXACT_FLOAT32
from perc.online import replay_online
from perc.policies.registry import registry
from perc.policies.t_lru import t_lru
from perc.traces.build import Columns, build_trace
from perc.types import Features, Memory
from tests.strategies import traces


def key_of(policy, prefix, length, *, step=0, longest=0.0):
    values = Features(
        step=jnp.int32(step),
        prefix_tokens=jnp.int32(prefix),
        input_tokens=jnp.int32(length),
    )
    own = jnp.asarray([longest], jnp.float32)
    memory = Memory(own, jnp.float32(0), jnp.bool_(True), jnp.int32(1), jnp.int32(9))
    key, notes = policy.rule.score(policy.params, values, memory)
    return float(key), notes.tolist()


def is_safe(policy, prefix, length, **kwargs):
    return key_of(policy, prefix, length, **kwargs)[0] < 0


@pytest.mark.parametrize(
    ("length", "q", "xi", "budget"),
    [(150, 20, 100, 70), (20, 5, 10, 15), (4, 2, 5, 1), (12, 2, 5, 9), (3, 2, 9, 0)],
)
def test_budgets(length, q, xi, budget):
    policy = t_lru(xi_tokens=xi, next_tokens=q)
    assert is_safe(policy, budget, length)
    assert budget == 0 or not is_safe(policy, budget - 1, length)


def test_length_is_that_of_the_longest_user():
    policy = t_lru(xi_tokens=64, next_tokens=16)
    assert is_safe(policy, 100, 100) and not is_safe(policy, 100, 100, longest=160.0)
    assert key_of(policy, 0, 100, longest=160.0)[1] == [160]
    assert key_of(policy, 0, 200, longest=160.0)[1] == [200]


def test_recency_orders_both_classes():
    policy = t_lru(xi_tokens=64, next_tokens=16)
    safe = [key_of(policy, 160, 160, step=step)[0] for step in (0, 5)]
    kept = [key_of(policy, 0, 160, step=step)[0] for step in (0, 5)]
    assert safe == [-EXACT_FLOAT32, 5 - EXACT_FLOAT32] and kept == [0, 5]


def of_16_tokens(requests):
    lengths = np.array([len(row) for row in requests])
    return build_trace(
        Columns(
            arrival_s=np.arange(len(requests), dtype=float),
            input_tokens=16 * lengths,
            output_tokens=np.ones(len(requests), np.int64),
            ids=np.array([block for row in requests for block in row]),
            lengths=lengths,
        ),
        block_tokens=16,
        source="by hand",
    )


def test_trimming_stops_at_the_budget():
    """160 tokens keep 112 while others come and go; then it is their turn, by LRU."""
    long = list(range(10))
    others = [[100 + i] for i in range(9)]
    policy = t_lru(xi_tokens=64, next_tokens=16)
    kept = []
    for n in range(len(others) + 1):
        trace = of_16_tokens([long, *others[:n], long])
        kept.append(int(replay_online(trace, policy, [10]).blocks[0, -1]))
    # Short prompts are safe themselves: each pushes the one before out, but for LRU.
    assert kept == [10, 9, 8, 7, 7, 7, 7, 7, 7, 7]
    lru = registry["lru"]()
    trace = of_16_tokens([long, *others, long])
    order = perc.ranks(trace, perc.scores(lru, trace))
    assert perc.replay(trace, order, [10]).blocks[0, -1] == 1


def test_the_length_goes_with_the_block():
    """Pushed out by another prompt, blocks come back with a short one: its end is safe.

    Had they kept the 160 tokens, the other prompt would be trimmed below its budget.
    """
    long, other = list(range(10)), list(range(20, 30))
    trace = of_16_tokens([long, other, long[:4], [99], long[:4]])
    policy = t_lru(xi_tokens=64, next_tokens=16)
    hits = replay_online(trace, policy, [10]).blocks[0]
    assert hits.tolist() == [0, 0, 0, 0, 3]


@settings(deadline=None, max_examples=15)
@given(
    trace=traces(max_requests=40),
    capacity=st.integers(0, 10),
    xi=st.integers(0, 30),
    more=st.integers(0, 9),
)
def test_without_slack_it_is_lru(trace, capacity, xi, more):
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    expected = perc.replay(trace, order, [capacity])
    policy = t_lru(xi_tokens=xi, next_tokens=xi + more)
    found = replay_online(trace, policy, [capacity])
    assert found.blocks.tolist() == expected.blocks.tolist()
    assert found.evictions.tolist() == expected.evictions.tolist()


@settings(deadline=None, max_examples=15)
@given(trace=traces(max_requests=40), capacity=st.integers(0, 10))
def test_it_is_closed_by_construction(trace, capacity):
    policy = t_lru(xi_tokens=9, next_tokens=3)
    rule = dataclasses.replace(policy.rule, closed=True)
    found, closed = (
        replay_online(trace, p, [capacity])
        for p in (policy, dataclasses.replace(policy, rule=rule))
    )
    assert found.blocks.tolist() == closed.blocks.tolist()
    assert found.evictions.tolist() == closed.evictions.tolist()


@pytest.mark.parametrize("name", ["xi_tokens", "next_tokens"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_parameters_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=f"t_lru: {name} is .*, must be 0 or more"):
        t_lru(**{name: value})
