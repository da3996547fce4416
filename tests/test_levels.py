"""Many capacities in one replay, and orders with shared parts: equal to plain ones."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cost import DEFAULT_COST
from perc.levels import LANES, Requests, pad, passes, replay_levels
from perc.policies.registry import registry
from perc.ranks import chain_worth_bits
from perc.sweep_devices import place, replay_orders
from perc.sweep_order import order, scored
from perc.types import Policy
from tests.strategies import replay_each, traces
from tests.test_replay_hlo import state_copies

ORDERS = {  # by name; the rest has no ranks that are known before the replay
    name: policy
    for name, policy in ((name, make()) for name, make in registry.items())
    if isinstance(policy, Policy)
}
SIZES = st.lists(st.integers(0, 60), min_size=4, max_size=4, unique=True).map(sorted)


def replayed(trace, ranks, sizes, bypass):
    before = ranks[trace.prev] if len(ranks) else ranks
    return replay_orders(place(trace, sizes), [(ranks, before)], bypass)[0]


@given(traces(), SIZES, st.integers(0, 2**31), st.booleans())
@settings(max_examples=60, deadline=None)
def test_levels_equal_one_replay_a_capacity(trace, sizes, seed, bypass):
    ranks = np.random.default_rng(seed).permutation(trace.n_accesses).astype(np.int32)
    expected = replay_each(trace, ranks, sizes, bypass=bypass)
    hits, evictions = replayed(trace, ranks, sizes, bypass)
    np.testing.assert_array_equal(hits, expected.blocks)
    np.testing.assert_array_equal(evictions, expected.evictions)


@pytest.mark.parametrize("name", [n for n, policy in ORDERS.items() if policy.refresh])
def test_policies_at_more_capacities_than_lanes(name, small_chat):
    policy = ORDERS[name]
    sizes = [0, 1, 2, 5, *range(10, 10 + 47 * LANES // 16, 2), 10**6]
    ranks = perc.ranks(small_chat, perc.scores(policy, small_chat))
    expected = replay_each(small_chat, ranks, sizes, bypass=policy.bypass)
    hits, evictions = replayed(small_chat, ranks, sizes, policy.bypass)
    np.testing.assert_array_equal(hits, expected.blocks)
    np.testing.assert_array_equal(evictions, expected.evictions)


@pytest.mark.parametrize("count", [1, LANES, LANES + 1, 3 * LANES - 1])
def test_passes_are_equally_wide_and_rise(count):
    groups = passes(range(0, 7 * count, 7), n_accesses=20)
    assert len({len(group) for group in groups}) == 1
    assert len(groups[0]) <= LANES
    every = np.concatenate(groups)
    assert np.all(np.diff(every) > 0)
    for size, wanted in zip(every, range(0, 7 * count, 7), strict=False):
        assert size == wanted or min(size, wanted) >= 20


@given(traces(), st.sampled_from(list(ORDERS)))
@settings(max_examples=60, deadline=None)
def test_orders_equal_ranks(trace, name):
    policy = ORDERS[name]
    expected = perc.ranks(trace, perc.scores(policy, trace))
    ranks, before = order(scored(trace, DEFAULT_COST), policy)
    np.testing.assert_array_equal(ranks, expected)
    seen = trace.prev >= 0
    np.testing.assert_array_equal(before[seen], expected[trace.prev[seen]])


def test_one_preparation_serves_many_policies(small_chat):
    made = scored(small_chat, DEFAULT_COST)
    for policy in [*ORDERS.values(), registry["perc_decay"](tau_s=9)]:
        expected = perc.ranks(small_chat, perc.scores(policy, small_chat))
        np.testing.assert_array_equal(order(made, policy)[0], expected)
        assert set(made.values) == set(policy.uses)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_levels_are_updated_in_place(bypass, lanes):
    n, r = 40_960, 512
    access, request = jnp.zeros(n, jnp.int32), jnp.zeros(r, jnp.int32)
    program = replay_levels.lower(
        access, access, Requests(*[request] * 3), jnp.arange(lanes), bypass=bypass
    ).compile()
    text = program.as_text()
    assert text is not None
    row = lanes + 1
    state = {n, *(row * (n // 32**i + 1) for i in (1, 2)), row * (n // 32**3 + 2)}
    assert state_copies(text, state) == []
    # All loops but the outer one; with more lanes jax 0.10 would interpret them.
    assert text.count("xla_cpu_small_call") >= 3


def test_chains_are_updated_in_place():
    n, r = 4096, 256
    column, request = jnp.zeros(n, jnp.int32), jnp.zeros(r, jnp.int32)
    program = chain_worth_bits.lower(column, column, request, request).compile()
    text = program.as_text()
    assert text is not None
    assert state_copies(text, {n}) == []
    assert "xla_cpu_small_call" in text


@given(st.integers(0, 10**5))
def test_padding_is_at_most_an_eighth(n):
    size = len(pad(np.zeros(n)))
    assert n <= size <= max(256, n + n / 8 + 256)
