"""The same policy, the same victims: the live order against the simulator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.aged import aged_traffic, replay_at
from perc.bridges.orders import order_of
from perc.policies.registry import registry
from tests.bridges.engine import Engine
from tests.bridges.traffic import (
    BLOCK_TOKENS,
    MOST_BLOCKS,
    differs_from_aged,
    random_trace,
    requests,
    simulated,
    whole_blocks,
)

STATIC = {
    name: replace(registry[name](), chain=name != "lru")
    for name in ["lru", "lfu", "priority", "perc_decay", "shortest", "largest"]
}


def served(policy, trace, capacity):
    order = order_of(policy, capacity, BLOCK_TOKENS, memory=trace.n_blocks)
    engine = Engine(order, capacity)
    for chain, facts, now_s in requests(trace):
        engine.serve(chain, facts, now_s)
    return engine


@pytest.mark.parametrize("name", STATIC)
@settings(deadline=None, max_examples=50)
@given(trace=whole_blocks(), capacity=st.integers(MOST_BLOCKS, 16))
def test_static_policies_take_the_victims_of_step(name, trace, capacity):
    policy = STATIC[name]
    engine = served(policy, trace, capacity)
    assert (engine.victims, engine.hits) == simulated(policy, trace, capacity)


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("seed", range(2))
def test_static_policies_on_longer_traffic(name, seed):
    policy, trace = STATIC[name], random_trace(seed)
    engine = served(policy, trace, 40)
    assert (engine.victims, engine.hits) == simulated(policy, trace, 40)


def test_perc_takes_the_victims_of_the_replay():
    """Over two epochs and more, so that what was learned decides."""
    policy, found = registry["perc"](), []
    for seed in range(60):
        trace = random_trace(seed, n=120)
        engine = served(policy, trace, 20)
        found.append(differs_from_aged(policy, trace, 20, engine.victims))
    assert set(found) <= {None, "tie"}
    assert found.count("tie") <= 3


def test_perc_hits_what_the_replay_hits():
    policy, trace = registry["perc"](), random_trace(0)
    found = replay_at(trace, policy, [40], aged_traffic(trace, policy))
    engine = served(policy, trace, 40)
    np.testing.assert_array_equal(engine.hits, found.blocks[0])
    assert len(engine.victims) == found.evictions[0]
