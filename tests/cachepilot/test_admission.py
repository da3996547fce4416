"""The admission network: its published step and the right one, against differences."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.cachepilot.admission import (
    Network,
    Seen,
    admits,
    chance,
    features,
    imitation_loss,
    imitation_step,
    initial_network,
    outputs,
    policy_step,
    rate_per_s,
    reward,
)
from perc.cachepilot.reference import Estimated, Machine, estimate
from perc.cachepilot.workloads import Traffic
from perc.errors import InputError

X = np.array([0.8, 0.25, 0.125, 0.5, 0.25, 0.03, 1 / 30], np.float32)
NET = initial_network(0)


def test_the_step_goes_up_where_cachepilots_goes_down():
    assert float(chance(NET, X)) == pytest.approx(0.216415, rel=1e-5)
    right = policy_step(NET, X, True, 1.5, step=1e-2)
    assert float(chance(right, X)) == pytest.approx(0.242549, rel=1e-5)
    wrong = policy_step(NET, X, True, 1.5, step=1e-2, published_sign=True)
    assert float(chance(wrong, X)) == pytest.approx(0.192340, rel=1e-5)


def test_features_of_the_vector():
    seen = Seen(0.8, 8, 32, 2048, "code", 1024, 0.3, 2.0)
    np.testing.assert_array_equal(features(seen), X)
    most = Seen(1.0, 1, 0, 16_384, "longctx", 4_096, 99.0, 99.0)
    assert features(most).tolist() == [1.0] * 7
    assert features(seen._replace(workload="chat"))[3] == 0.0


def plain(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """The network in float64."""
    w1, b1, w2, b2 = weights
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 50), st.booleans(), st.sampled_from([-40.0, -2.0, 0.5, 30.0]))
def test_a_step_is_that_of_differences(seed, admitted, advantage):
    net, step = initial_network(seed), 1e-2
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, 7)
    after = policy_step(net, x, admitted, advantage, step=step)
    weights = [np.asarray(w, np.float64) for w in net]
    np.testing.assert_allclose(outputs(net, x), plain(weights, x), atol=1e-5)

    def log_p(changed):
        p = 1 / (1 + np.exp(-plain(changed, x)[0]))
        return np.log(p if admitted else 1 - p)

    worth = step * np.clip(advantage, -25, 25)
    for at, (weight, moved) in enumerate(zip(weights, after, strict=True)):
        for place in rng.integers(0, weight.size, 3):
            nearby = [w.copy() for w in weights]
            nearby[at].flat[place] += 1e-6
            slope = (log_p(nearby) - log_p(weights)) / 1e-6
            found = float(np.asarray(moved).flat[place]) - weight.flat[place]
            assert found == pytest.approx(worth * slope, rel=2e-3, abs=3e-6)


def test_the_first_hundred_go_by_utilisation():
    assert admits(NET, X, 0) and admits(NET, X, 99)
    assert not admits(NET, X, 100)  # 0.216
    full = X.copy()
    full[0] = 0.85
    assert not admits(NET, full, 99)
    sure = NET._replace(b2=NET.b2.at[0].set(9.0))
    assert admits(sure, full, 100)


def test_rates_are_bounded():
    for bias, expected in ((99.0, np.exp(5.0)), (-99.0, np.exp(-5.0))):
        far = NET._replace(b2=NET.b2.at[1].set(bias))
        assert float(rate_per_s(far, X)) == pytest.approx(expected)
    assert float(rate_per_s(NET, X)) == pytest.approx(0.5976678, rel=1e-5)


def test_imitation_learns_the_rule_and_the_rate():
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, (512, 7)).astype(np.float32)
    rule, rate = x[:, 0] < 0.85, x[:, 5]
    net = NET
    step = jax.jit(imitation_step, static_argnames="step")
    for k in range(2000):
        batch = slice(64 * (k % 8), 64 * (k % 8) + 64)
        net = step(net, x[batch], rule[batch], rate[batch], step=0.05)
    first, last = (float(imitation_loss(n, x, rule, rate)) for n in (NET, net))
    assert last < 0.3 * first
    assert np.mean((np.asarray(chance(net, x)) > 0.5) == rule) > 0.9  # always: 0.85


def test_rewards():
    """Of its tuned network, which admits nothing; and of a run."""
    nothing = Estimated("perc", "seeded", 400, dropped=400, deferrals=800)
    assert reward(nothing) == -14_400.0
    run = estimate("perc", Traffic(requests=100), Machine(16), variant="seeded")
    used = sum(run.utilisation) / len(run.utilisation)
    assert used < 0.9 and run.served and run.cost_s and run.dropped == 0
    expected = 25 * run.served + 0.01 * run.tokens - 4 * run.cost_s
    assert reward(run) == pytest.approx(expected)
    full = dataclasses.replace(run, utilisation=[1.0, 0.96])
    assert reward(full) == pytest.approx(expected - 5 * 0.08)


def test_seeds_differ_and_shapes_hold():
    assert [w.shape for w in NET] == [(7, 64), (64,), (64, 2), (2,)]
    same, other = initial_network(0), initial_network(1)
    assert (same.w1 == NET.w1).all() and not (other.w1 == NET.w1).all()
    assert isinstance(policy_step(NET, X, False, -1.0), Network)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: initial_network(-1), "seed is -1"),
        (lambda: chance(NET, np.zeros(6)), r"shape \(6,\)"),
        (lambda: policy_step(NET, X, True, 1.0, step=0.0), "step is 0"),
        (
            lambda: imitation_step(NET, X[None], np.ones(1), np.zeros(1), step=-1.0),
            "step is -1",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
