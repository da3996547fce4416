"""Overlapping requests: the engine, the oracle, and `step` with pins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.held import releases, replay_held
from perc.policies.registry import registry
from perc.step import pin, requests_of
from perc.types import Policy, Request
from tests.oracles import held as oracle
from tests.strategies import rows_of, traces
from tests.test_step import trace_of


def _few_scores(params, f):
    return (f.step * 7 + f.depth * params) % 5


@settings(deadline=None, max_examples=150)
@given(traces(), st.sampled_from([0, 2, 5, 9]), st.booleans(), st.data())
def test_engine_equals_oracle(trace, capacity, refresh, data):
    durations = data.draw(
        st.lists(
            st.sampled_from([0.0, 0.5, 1.0, 40.0]),
            min_size=trace.n_requests,
            max_size=trace.n_requests,
        )
    )
    policy = Policy(
        np.int32(data.draw(st.integers(1, 4))), _few_scores, "few", ("step", "depth")
    )
    score = perc.scores(policy, trace)
    expected = oracle.simulate(
        rows_of(trace, trace.block),
        rows_of(trace, score),
        trace.arrival_s,
        durations,
        capacity,
        refresh=refresh,
    )
    found = replay_held(
        trace,
        perc.ranks(trace, score),
        [capacity],
        np.array(durations),
        refresh=refresh,
    )
    assert (found.blocks[0].tolist(), int(found.evictions[0])) == expected


def step_with_pins(policy, trace, capacity, durations):
    """The definition: `step` for each arrival, pins until the request ends."""
    rows = requests_of(trace, policy.uses)
    ending, before = releases(trace, durations)
    state = perc.empty_cache(capacity, trace.n_blocks)
    hits, held, ended = [], {}, 0
    for r in range(trace.n_requests):
        while ended < len(ending) and before[ended] <= r:
            state = pin(state, held.pop(int(ending[ended])), -1)
            ended += 1
        features = jax.tree.map(lambda column, r=r: column[r], rows.features)
        state, outcome = perc.step(policy, state, Request(rows.block[r], features))
        hits.append(int(outcome.hit_blocks))
        held[r] = jnp.where(outcome.admitted, rows.block[r], -1)
        state = pin(state, held[r])
    return hits


@pytest.mark.parametrize("name", ["lru", "perc_decay", "fifo"])
def test_step_with_pins_gives_the_same(name):
    trace = perc.make("chat", requests=80)
    durations = np.random.default_rng(0).uniform(0, 30, trace.n_requests)
    policy = registry[name]()
    order = perc.ranks(trace, perc.scores(policy, trace))
    for capacity in (100, 400):
        found = replay_held(trace, order, [capacity], durations, refresh=policy.refresh)
        assert found.blocks[0].tolist() == step_with_pins(
            policy, trace, capacity, durations
        )


def test_without_duration_it_is_replay(small_chat):
    order = perc.ranks(small_chat, small_chat.request)
    sizes = [0, 100, 700]
    held, plain = (
        replay_held(small_chat, order, sizes, 0.0),
        perc.replay(small_chat, order, sizes),
    )
    assert np.array_equal(held.blocks, plain.blocks)
    assert np.array_equal(held.evictions, plain.evictions)


def test_held_blocks_cost_the_others_their_place():
    """A long request holds the cache; the next finds no room and is not stored."""
    trace = trace_of([[0, 1], [2], [2], [0, 1]])
    order = perc.ranks(trace, trace.request)
    busy = replay_held(trace, order, [2], np.array([10.0, 0, 0, 0]))
    assert busy.blocks[0].tolist() == [0, 0, 0, 2]
    free = replay_held(trace, order, [2], 0.0)
    assert free.blocks[0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("duration", [-1.0, float("nan")])
def test_impossible_durations_are_refused(duration):
    trace = trace_of([[0]])
    with pytest.raises(ValueError, match="duration is negative or missing"):
        replay_held(trace, perc.ranks(trace, trace.request), [1], duration)
