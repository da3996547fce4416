"""The lease game: its rewards, and the gradient that `ttl` climbs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc.train import leases
from tests.oracles import lease_game
from tests.train import games

_PRICE = games.PRICES[0] * (games.PRICES[1] / games.PRICES[0]) ** games.PLACE
UNITS = 1 / (1 + 32 * _PRICE)  # the longest lease is not used


def reward(net):
    return lease_game.mean_reward(
        net,
        games.X.astype(float),
        games.GAPS,
        games.WEIGHTS * UNITS,
        games.EDGES.tolist(),
        games.PRICES.astype(float),
        games.PLACE.astype(float),
    )


def test_the_mean_reward_is_that_of_its_definition():
    net = games.tiny()
    found = leases.expected(net, games.game(), games.prices, games.place)
    wanted = reward([[np.asarray(part, float) for part in layer] for layer in net])
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_its_gradient_is_that_of_finite_differences():
    net = games.tiny()
    found = jax.grad(leases.expected)(net, games.game(), games.prices, games.place)
    # Flat in the order of `jax.tree.leaves`, as the differences are.
    wanted = lease_game.slopes(reward, net)
    assert np.abs(wanted).max() > 0.05
    np.testing.assert_allclose(games.flat(found), wanted, rtol=1e-4, atol=1e-6)


def test_a_lease_ends_with_the_use_or_by_itself():
    found = games.game()
    np.testing.assert_array_equal(
        found.hit[:4, 1:], [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    )
    np.testing.assert_array_equal(found.stay_s[1], [0, 2, 5, 5])
    np.testing.assert_array_equal(found.stay_s[3], [0, 2, 8, 32])
    earned = leases.rewards(found, jnp.full(6, 0.1))
    in_hits = np.array([0, -0.2, 0.5, 0.5])
    np.testing.assert_allclose(earned[1], in_hits / (1 + 0.1 * 32), rtol=1e-6)
    assert (earned[:, 0] == 0).all()  # no lease, no hit and no cost


@pytest.mark.parametrize("price", [1e-3, 0.1, 1e3])
def test_no_reward_outweighs_those_at_other_prices(price):
    """And none becomes better or worse than another."""
    deal = games.game()
    earned = np.asarray(leases.rewards(deal, jnp.full(6, price)))
    assert np.abs(earned).max() <= 1
    in_hits = np.asarray(deal.hit - price * deal.stay_s)
    np.testing.assert_allclose(earned * (1 + price * 32), in_hits, rtol=1e-4, atol=1e-4)


def test_a_use_at_the_very_end_of_a_lease_comes_too_late():
    found = leases.deals(
        np.zeros((1, 1), np.float32),
        games.examples_of([8.0], [99.0]),
        games.EDGES,
        np.ones(1),
    )
    assert found.hit[0].tolist() == [0, 0, 0, 1]
    assert found.stay_s[0].tolist() == [0, 2, 8, 8]


def test_only_the_long_watched_play():
    found = games.examples_of([1.0, 1.0, 1.0], [0.0, 7.9, 8.0])
    assert leases.long_enough(found, games.EDGES).tolist() == [False, False, True]
    short = games.examples_of([1.0], [2.0])
    assert leases.long_enough(short, games.EDGES).all()  # rather than none


def test_entropy_is_highest_where_leases_are_even():
    deal, net = games.game(), games.tiny()
    even = jax.tree.map(jnp.zeros_like, net)
    most = float(leases.entropy(even, deal, games.prices, games.place))
    assert most == pytest.approx(np.log(4) * (games.WEIGHTS * UNITS).mean(), rel=1e-6)
    assert 0 < float(leases.entropy(net, deal, games.prices, games.place)) < most
