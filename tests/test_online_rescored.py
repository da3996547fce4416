"""Scores that change while blocks idle, against a cache in plain Python."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cost import DEFAULT_COST
from perc.features import features
from perc.online import replay_online
from perc.online_rescored import replay_rescored, slots_for
from perc.online_scored import Traffic
from perc.policies.registry import registry
from perc.types import OnlinePolicy, Rescored
from tests.oracles import rescored as oracle
from tests.strategies import replay_each, traces
from tests.test_replay_hlo import state_copies
from tests.test_step import trace_of

CAPACITIES = (0, 1, 3, 5, 11)
USES = ("step", "time_s", "depth", "kind")


def _falls_by_kind(params, f, now):
    """Starts the higher, falls the faster: orders cross while blocks idle."""
    return params * (10 * f.kind - (f.kind + 1) * (now.step - f.step))


def _wraps(params, f, now):
    """Rises and falls with time and depth, with many ties."""
    return (now.step * (f.step + params) + 3 * f.depth + now.time_s - f.time_s) % 5


def _expires(params, f, now):
    """Protected for a time, then ordinary."""
    until = f.time_s + 10 * f.kind
    return jnp.where(until > now.time_s, until, -jnp.inf)


def _minus_idle(params, f, now):
    return f.time_s - now.time_s


def _of_use(params, f, now=None):
    return 10 * f.kind - f.depth


def falls_by_kind(use, now):
    return 10 * use.kind - (use.kind + 1) * (now.step - use.step)


def wraps(use, now):
    idle_s = now.time_s - use.time_s
    return (now.step * (use.step + 1) + 3 * use.depth + idle_s) % 5


def expires(use, now):
    until = use.time_s + 10 * use.kind
    return until if until > now.time_s else float("-inf")


SCORES = (falls_by_kind, wraps, expires)
# One shape of arrays and one function: few programs to compile.
small = traces(max_requests=16, max_depth=4)


def _any(which, f, now):
    functions = (_falls_by_kind, _wraps, _expires, _minus_idle, _of_use)
    found = [score(1, f, now) for score in functions]
    return jnp.stack([jnp.broadcast_to(x, f.step.shape) for x in found])[which]


def policy_of(score, params=1, *, closed=False, bypass=False, learn=None):
    rule = Rescored(score, closed=closed, learn=learn)
    return OnlinePolicy(jnp.int32(params), rule, "test", USES, bypass=bypass)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("closed", [False, True])
@settings(deadline=None, max_examples=120)
@given(trace=small, which=st.integers(0, 2), capacity=st.sampled_from([0, 1, 3, 5, 11]))
def test_any_score_equals_the_oracle(bypass, closed, trace, which, capacity):
    flags = dict(closed=closed, bypass=bypass)
    policy = policy_of(_any, which, **flags)
    found = replay_online(trace, policy, [capacity])
    hits, victims = oracle.simulate(trace, capacity, SCORES[which], **flags)
    assert found.blocks[0].tolist() == hits
    assert int(found.evictions[0]) == sum(map(len, victims))


@settings(deadline=None, max_examples=40)
@given(trace=small, bypass=st.booleans())
def test_a_score_that_stands_still_equals_replay(trace, bypass):
    """Here `perc.replay` must give the same, by another engine."""

    still = perc.Policy(jnp.int32(1), _of_use, "still", USES, bypass=bypass)
    order = perc.ranks(trace, perc.scores(still, trace))
    expected = replay_each(trace, order, CAPACITIES, bypass=bypass)
    found = replay_online(trace, policy_of(_any, 4, bypass=bypass), CAPACITIES)
    assert found.blocks.tolist() == expected.blocks.tolist()
    assert found.evictions.tolist() == expected.evictions.tolist()


@settings(deadline=None, max_examples=30)
@given(trace=small, closed=st.booleans())
def test_idle_time_alone_is_lru(trace, closed):
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    found = replay_online(trace, policy_of(_any, 3, closed=closed), CAPACITIES)
    expected = replay_each(trace, order, CAPACITIES)
    assert found.blocks.tolist() == expected.blocks.tolist()
    assert found.evictions.tolist() == expected.evictions.tolist()


@pytest.mark.parametrize("bypass", [False, True])
@settings(deadline=None, max_examples=40)
@given(trace=small, which=st.integers(0, 2))
def test_a_larger_cache_never_hits_less_without_a_leaf_test(bypass, trace, which):
    policy = policy_of(_any, which, bypass=bypass)
    total = replay_online(trace, policy, range(12)).blocks.sum(axis=1)
    assert (np.diff(total) >= 0).all()


def test_who_leaves_depends_on_when():
    """Two blocks, the one of kind 0 falls slower: which is lower changes with time."""
    by_kind = {1: 1, 2: 0}

    def served(idle_requests):
        rows = [[1], [2]] + [[3]] * idle_requests + [[4], [1]]
        trace = trace_of(rows)
        kind = np.array([by_kind.get(row[0], 9) for row in rows], np.int32)
        trace = perc.Trace(**{**vars(trace), "kind": kind})
        return replay_online(trace, policy_of(_falls_by_kind), [3]).blocks[0, -1]

    assert served(1) == 1 and served(9) == 0


def test_what_was_learned_is_there():
    """`learn` sees parameters, trace and cost once; `score` reads it by request."""
    calls = []

    def learn(params, trace, cost):
        calls.append((int(params), trace.n_requests, cost.name))
        return {"favourite": np.array([0, 0, 0, 0, 1])}

    def score(params, f, now):
        return jnp.where(f.step == now.learned["favourite"][now.step], 1, 0)

    trace = trace_of([[1], [2], [3], [4], [5]])
    policy = policy_of(score, learn=learn)
    found = replay_online(trace, policy, [3, 4])
    assert found.blocks.sum() == 0 and found.evictions.tolist() == [2, 1]
    assert calls == [(1, 5, DEFAULT_COST.name)]


def test_same_shapes_compile_once(small_chat):
    """Capacities that need as many slots share a program, and so do parameters."""
    engine: Any = replay_rescored
    replay_online(small_chat, policy_of(_wraps), [600])
    before = engine._cache_size()
    replay_online(small_chat, policy_of(_wraps), [650, 700])
    replay_online(small_chat, policy_of(_wraps, 3), [690])
    assert engine._cache_size() == before


@pytest.mark.parametrize(
    ("capacity", "slots"), [(0, 128), (900, 1024), (901, 1024), (5000, 4096)]
)
def test_slots_hold_the_cache_and_a_request(capacity, slots):
    assert slots_for(capacity, n_blocks=4096, longest=123) == slots


def test_a_score_that_is_no_number_is_refused():
    """Two requests need room, each beside one other block."""
    policy = policy_of(lambda params, f, now: jnp.float32(jnp.nan))
    trace = trace_of([[1], [2], [3, 4]])
    with pytest.raises(ValueError, match="test: 2 of its scores are NaN"):
        replay_online(trace, policy, [1])


@pytest.mark.parametrize("closed", [False, True])
def test_arrays_of_all_blocks_are_updated_in_place(closed):
    n, m, r, slots = 4096, 2048, 256, 1024
    access, request = jnp.zeros(n, jnp.int32), jnp.zeros(r, jnp.int32)
    one = features(trace_of([[1]]), USES)
    values = type(one)(
        **{name: jnp.zeros(n, getattr(one, name).dtype) for name in USES}
    )
    traffic = Traffic(
        access,
        access,
        jnp.zeros(m, jnp.int32),
        request,
        request,
        values,
        time_s=jnp.zeros(r),
    )
    policy = policy_of(_wraps, closed=closed)
    program = replay_rescored.lower(policy, traffic, jnp.int32(8), slots).compile()
    text = program.as_text() or ""
    assert state_copies(text, {n, m, r, slots + 1}) == []
