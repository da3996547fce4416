"""Policies whose order changes with time: hazard, workload_aware and ttl."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.features import features
from perc.hazards import FEW, gaps_before
from perc.online import replay_online
from perc.policies.hazard import fit_hazard, hazard, return_within
from perc.policies.registry import registry
from perc.policies.ttl import deadlines_s, ttl
from perc.policies.workload_aware import (
    fit_workload_aware,
    log_chance,
    workload_aware,
)
from perc.types import Features, Now
from tests.oracles import rescored
from tests.oracles import timed as oracle
from tests.strategies import traces
from tests.test_hazards import busy_trace

CAPACITIES = (1, 3, 5)
EDGES = [0.0, 8.0, 16.0, 32.0, 64.0]
# By turn and kind; eighths, so that float32 makes no rounding errors.
ALIVE = [
    [1.0, 1 - c % 3 / 8, 1 - c % 4 / 8 - c % 3 / 8, 0.25, c % 2 / 8] for c in range(24)
]
# By turn and kind, all different.
RATES = [r / 2**k for k in range(4) for r in (0.1, 0.01, 0.0, 0.03, 0.2, 0.05)]
NO_TTL = dict(benefit=60.0, least=100, cold=0.0, history=1000)
SOME_TTL = dict(benefit=50.0, least=1, cold=30.0, history=3)
small = traces(max_requests=16, max_depth=4)
few_requests = perc.make("chat", requests=3)


def _with(policy, **params):
    params = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    return dataclasses.replace(policy, params=policy.params | params)


def _by_hand(closed):
    return _with(
        fit_hazard(few_requests, edges_s=np.array(EDGES), closed=closed),
        survival=ALIVE,
        horizon_s=16.0,
    )


def _lru(trace):
    return lambda use, now: use.step


RESCORED = {  # a policy beside the oracle of its score, by trace
    "hazard": (hazard(), _lru),  # nothing is known before request 64
    "hazard fitted": (_by_hand(True), lambda t: oracle.hazard(ALIVE, EDGES, 16.0)),
    "hazard open": (_by_hand(False), lambda t: oracle.hazard(ALIVE, EDGES, 16.0)),
    "workload_aware": (workload_aware(), _lru),
    "workload_aware fitted": (
        _with(fit_workload_aware(few_requests), rate_per_s=RATES),
        lambda t: oracle.workload_aware(RATES, 60.0),
    ),
    "ttl": (ttl(), lambda t: oracle.ttl(t, DEFAULT_COST, **NO_TTL)),
    "ttl known": (
        ttl(queue_s=50.0, least=1, cold_s=30.0, history=3),
        lambda t: oracle.ttl(t, DEFAULT_COST, **SOME_TTL),
    ),
}


@pytest.mark.parametrize("name", RESCORED)
@settings(deadline=None, max_examples=40)
@given(trace=small)
def test_equals_its_oracle(name, trace):
    policy, score = RESCORED[name]
    found = replay_online(trace, policy, CAPACITIES)
    for k, capacity in enumerate(CAPACITIES):
        hits, victims = rescored.simulate(
            trace, capacity, score(trace), closed=policy.rule.closed
        )
        assert found.blocks[k].tolist() == hits
        assert int(found.evictions[k]) == sum(map(len, victims))


@pytest.mark.parametrize("censored", [False, True])
def test_what_is_learned_on_the_way_is_used(censored):
    """Rates by request from the past, in plain Python, beside the whole policy."""
    trace, tables, fits = busy_trace(), {}, [64, 76, 90, 107, 128]
    for cut in fits:
        found = oracle.gaps(trace, cut)
        tables[cut] = oracle.rate_tables(found, 24, FEW, censored)

    def score(use, now):
        known = [cut for cut in fits if cut <= now.step]
        rates = tables[known[-1]] if known else [0.0] * 24
        return oracle.workload_aware(rates, 60.0)(use, now)

    policy = workload_aware(censored=censored)
    hits, victims = rescored.simulate(trace, 20, score, closed=True)
    found = replay_online(trace, policy, [20])
    assert found.blocks[0].tolist() == hits
    assert int(found.evictions[0]) == sum(map(len, victims))


def test_hazard_learns_what_it_would_be_fitted_to():
    """The last estimate, after 128 of 150 requests, is that of `fit_hazard`."""
    trace, policy = busy_trace(), hazard()
    rule: Any = policy.rule
    learned = rule.learn(policy.params, trace, DEFAULT_COST)
    fitted = fit_hazard(trace, share=128.5 / 150).params["survival"]
    np.testing.assert_allclose(learned["table"][5], fitted, rtol=1e-6)
    assert (learned["table"][0] == 1).all() and (fitted < 1).any()


def _at(age, **values):
    f = Features(time_s=jnp.float32(100 - age), kind=jnp.int32(0), turn=jnp.int32(1))
    return f, Now(jnp.int32(0), jnp.float32(100), ())


@pytest.mark.parametrize(
    ("age", "expected"), [(0, 1 / 2), (8, 1 / 2), (16, 1 / 3), (32, 0), (99, 0)]
)
def test_hazard_vector(age, expected):
    """policies.md 2.3."""
    alive = jnp.asarray([[1, 5 / 6, 1 / 2, 1 / 3, 1 / 3]])
    params = {"horizon_s": jnp.float32(16), "edges_s": jnp.asarray(EDGES)}
    assert return_within(params, alive, *_at(age)) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.floats(0, 100), st.floats(0, 1e5, exclude_min=True, width=32))
def test_a_hazard_is_a_probability(age, horizon):
    params = {"horizon_s": jnp.float32(horizon), "edges_s": jnp.asarray(EDGES)}
    found = float(return_within(params, jnp.asarray(ALIVE), *_at(age)))
    assert -1e-6 <= found <= 1 + 1e-6


@pytest.mark.parametrize(
    ("rate", "age", "expected"),
    [
        (0.1, 0, 0.997521),
        (0.1, 10, 0.366968),
        (0.1, 60, 0.002473),
        (0.1, 300, 0),
        (0.01, 0, 0.451188),
        (0.01, 10, 0.408252),
        (0.01, 60, 0.247617),
        (0.01, 300, 0.022463),
        (0.0, 10, 0),
    ],
)
def test_workload_aware_vectors(rate, age, expected):
    """policies.md 2.10, life 60 s."""
    found = np.exp(log_chance(jnp.full(6, rate), 60.0, *_at(age)))
    assert found == pytest.approx(expected, abs=1e-6)


def test_workload_aware_order_flips():
    """At equal ages of 8.815 s (policies.md 2.10)."""

    def fast_first(age):
        fast, slow = (log_chance(jnp.full(6, r), 60.0, *_at(age)) for r in (0.1, 0.01))
        return fast > slow

    assert fast_first(8.81) and not fast_first(8.82)


@settings(deadline=None, max_examples=20)
@given(trace=small)
def test_one_class_is_lru(trace):
    policy = _with(fit_workload_aware(few_requests), rate_per_s=[0.01] * 24)
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    expected = perc.replay(trace, order, CAPACITIES)
    found = replay_online(trace, policy, CAPACITIES)
    assert found.blocks.tolist() == expected.blocks.tolist()


def test_ttl_protects_what_is_worth_the_wait():
    """A hit that saves a million seconds is worth every gap, one that saves none no."""
    trace = busy_trace()
    arrival = trace.arrival_s[trace.request]
    kept = deadlines_s(ttl(queue_s=1e6, least=5).params, trace, DEFAULT_COST)
    assert (kept > arrival)[trace.request > 100].all()
    kept = deadlines_s(ttl(queue_s=0.0, least=5).params, trace, DEFAULT_COST)
    np.testing.assert_allclose(kept, arrival, atol=1e-9)


BUSY_TTL = dict(benefit=60.0, least=5, cold=1.0, history=20)
busy_ttl = ttl(queue_s=120.0, eta=0.5, least=5, cold_s=1.0, history=20)
DEAR = PrefillCost("dear", 1.0, 0.0)


def test_ttl_deadlines_are_those_of_the_oracle():
    """Two kinds, prompts of different lengths, gaps that are forgotten."""
    trace = busy_trace()
    found = deadlines_s(busy_ttl.params, trace, DEAR)
    expected = oracle.deadlines(trace, DEAR, **BUSY_TTL)
    np.testing.assert_allclose(found, [expected[i] for i in range(len(found))])
    last = np.array([expected[int(trace.stop[r]) - 1] for r in range(trace.n_requests)])
    spans = last - trace.arrival_s
    assert len(np.unique(spans.round(3))) > 20, "the case is of no use"


@pytest.mark.parametrize("capacity", [8, 14, 22, 30])
def test_ttl_is_its_oracle_where_deadlines_pass(capacity):
    trace = busy_trace()
    score = oracle.ttl(trace, DEAR, **BUSY_TTL)
    hits, victims = rescored.simulate(trace, capacity, score, closed=False)
    found = replay_online(trace, busy_ttl, [capacity], cost=DEAR)
    assert found.blocks[0].tolist() == hits
    assert int(found.evictions[0]) == sum(map(len, victims))


def test_cost_weight_prefers_what_is_dear(small_chat):
    """The score is the hazard times seconds a token to the power of the weight."""
    one, other = hazard(cost_weight=0.0), hazard(cost_weight=2.0)
    assert other.uses == (*one.uses, "recompute_s", "tokens")
    fitted: Any = fit_hazard(small_chat, cost_weight=2.0)
    plain: Any = fit_hazard(small_chat)
    f = features(small_chat, fitted.uses)
    now = Now(jnp.int32(300), jnp.float32(small_chat.arrival_s[-1]), ())
    ratio = (np.asarray(f.recompute_s) / np.asarray(f.tokens)) ** 2
    np.testing.assert_allclose(
        fitted.rule.score(fitted.params, f, now),
        plain.rule.score(plain.params, f, now) * ratio,
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hazard(horizon_s=0), "horizon_s is 0"),
        (lambda: hazard(cost_weight=-1), "cost_weight is -1"),
        (lambda: workload_aware(life_s=0), "life_s is 0"),
        (lambda: ttl(queue_s=-1), "queue_s is -1"),
        (lambda: ttl(eta=2), "eta is 2"),
        (lambda: ttl(history=0), "history is 0"),
        (lambda: fit_hazard(few_requests, share=0), "share 0 of 3 requests"),
        (lambda: fit_hazard(few_requests, share=2), "share 2 of 3 requests"),
        (lambda: fit_workload_aware(few_requests, share=0.1), "leaves 0 to learn"),
        (lambda: fit_hazard(few_requests, edges_s=np.array([0, 2, 1])), "rise"),
        (lambda: fit_hazard(few_requests, edges_s=np.array([0, 1, 2, 9])), "ratio"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.real_trace
def test_hazard_reaches_the_known_hits(traces_folder):
    """policies.md 8: fitted to the first half, second half counted."""
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    for horizon_s, closed, size, expected in (
        (60.0, False, 3000, 0.1307),
        (60.0, True, 3000, 0.1318),
        (600.0, False, 10_000, 0.2291),
    ):
        policy = fit_hazard(trace, share=0.5, horizon_s=horizon_s, closed=closed)
        (row,) = perc.compare(trace, [policy], [size], warmup=0.5).rows
        assert row.block_hit_ratio == pytest.approx(expected, abs=5e-5)


def test_the_cut_takes_no_later_request(small_chat):
    gaps = gaps_before(small_chat, np.full(300, 100, np.int32), 100)
    assert not gaps.ended.any() and gaps.time_s[99] == 0
