"""The flagship: what its formula promises, and that each factor works."""

import jax.numpy as jnp
import numpy as np
import pytest

import perc
from perc.compare import run
from perc.cost import DEFAULT_COST, PrefillCost
from perc.policies.perc_decay import perc_decay
from perc.policies.registry import registry
from perc.types import Features


def score(policy, **values):
    columns = {"time_s": 0.0, "resume_p": 0.5, "recompute_s": 1.0, "tokens": 512}
    arrays = {k: jnp.float32(v) for k, v in {**columns, **values}.items()}
    return float(policy.score(policy.params, Features(**arrays)))


def test_e_times_the_value_buys_tau_seconds():
    policy = perc_decay(tau_s=120.0, cost_weight=1.0)
    base = score(policy)
    assert score(policy, time_s=10.0) - base == pytest.approx(10, abs=1e-3)
    likelier = score(policy, resume_p=0.5 * np.e)
    dearer = score(policy, recompute_s=np.e)
    assert likelier - base == pytest.approx(120, abs=1e-3)
    assert dearer - base == pytest.approx(120, abs=1e-3)


def test_order_is_that_of_the_decaying_value():
    """V = p * exp(-(now - last) / tau), compared at any one moment."""
    rng = np.random.default_rng(0)
    p, last = rng.uniform(0.05, 1, 200), rng.uniform(0, 1000, 200)
    policy = perc_decay(tau_s=90.0)
    values = Features(
        time_s=jnp.float32(last),
        resume_p=jnp.float32(p),
        recompute_s=jnp.ones(200),
        tokens=jnp.ones(200),
    )
    value = p * np.exp(-(2000 - last) / 90.0)
    assert np.array_equal(
        np.argsort(policy.score(policy.params, values)), np.argsort(value)
    )


def test_without_tau_it_is_lru(small_chat):
    # Distinct arrival times: recency in time and in order of requests agree.
    assert (np.diff(small_chat.arrival_s) > 0).all()
    sizes = [50, 200, 800]
    rows = perc.compare(
        small_chat, [registry["lru"](), registry["perc_decay"](tau_s=0.0)], sizes
    ).rows
    for lru, own in zip(rows[::2], rows[1::2], strict=True):
        assert own.block_hit_ratio == lru.block_hit_ratio


def test_each_parameter_changes_the_order(small_chat):
    orders = {
        perc.ranks(small_chat, perc.scores(policy, small_chat)).tobytes()
        for policy in (
            perc_decay(),
            perc_decay(tau_s=20.0),
            perc_decay(cost_weight=1.0),
        )
    }
    assert len(orders) == 3


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_negative_parameters_are_refused(value):
    with pytest.raises(ValueError, match="tau_s is .*, must be 0 or more"):
        perc_decay(tau_s=value)


def test_cost_is_per_token():
    policy = perc_decay(cost_weight=1.0)
    assert score(policy, recompute_s=2.0, tokens=1024) == pytest.approx(score(policy))


def test_the_order_is_safe_for_prefixes_and_the_defaults_are_documented():
    policy = perc_decay()
    assert policy.chain
    assert float(policy.params["tau_s"]) == 200.0
    assert float(policy.params["cost_weight"]) == 0.0


def test_the_cost_model_reaches_the_score(small_chat):
    dear = PrefillCost("attention only", 1e-12, 1.0)
    policy = perc_decay(cost_weight=1.0)
    scores = [perc.scores(policy, small_chat, cost=c) for c in (DEFAULT_COST, dear)]
    assert not np.array_equal(scores[0], scores[1])
    sizes = [100, 400, 800]
    hits = [run(policy, small_chat, sizes, cost=c) for c in (DEFAULT_COST, dear)]
    assert not np.array_equal(hits[0], hits[1])
