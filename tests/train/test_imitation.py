"""Imitation: which bins are watched, and that the true rates are what is learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.policies.learned import apply
from perc.train import imitation
from perc.train.imitation import Watched
from tests.oracles import lease_game
from tests.train import games

ENDS = [2.0, 8.0, 32.0, 64.0]  # of the bins that begin at `games.EDGES`
SECONDS = st.sampled_from([0.0, 1.0, 2.0, 5.0, 8.0, 31.0, 32.0, 63.0, 64.0, 1e3])


def watched(gap_s, seen_s, weight=None):
    x = np.zeros((len(gap_s), 1), np.float32)
    weight = np.ones(len(gap_s)) if weight is None else weight
    found = games.examples_of(gap_s, seen_s)
    return imitation.watched(x, found, games.EDGES, weight)


@settings(deadline=None)
@given(st.lists(st.tuples(SECONDS | st.just(np.inf), SECONDS), min_size=1, max_size=9))
def test_a_bin_counts_if_it_was_reached_and_watched_to_its_end(pairs):
    gaps, seen = zip(*pairs, strict=True)
    found = watched(gaps, seen)
    for s, (gap, until) in enumerate(pairs):
        for b, (begin, end) in enumerate(zip(games.EDGES, ENDS, strict=True)):
            there = gap >= begin and until >= end
            assert found.there[s, b] == there
            assert found.used[s, b] == (there and gap < end)


def test_rates_are_those_of_the_traffic_although_it_is_cut_off():
    """Gaps with one rate; what is seen of them ends anywhere."""
    draws, n, rate = np.random.default_rng(0), 40_000, 0.05
    gaps, seen = draws.exponential(1 / rate, n), draws.uniform(0, 200, n)
    found = watched(np.where(gaps <= seen, gaps, np.inf), seen)
    there = np.asarray(found.there, float).sum(axis=0)
    shares = np.asarray(found.used * found.there, float).sum(axis=0) / there
    true = 1 - np.exp(-rate * (np.array(ENDS) - games.EDGES))
    assert (np.abs(shares - true) < 5 * np.sqrt(true * (1 - true) / there)).all()
    odds = np.asarray(imitation.base_rates(found), float)
    np.testing.assert_allclose(odds, np.log(true / (1 - true)), atol=0.06)


@pytest.fixture
def seen():
    """Bins with examples of all kinds, of unequal weights."""
    draws = np.random.default_rng(1)
    there = draws.uniform(0.2, 2, (6, 4)) * (draws.random((6, 4)) < 0.8)
    used = (draws.random((6, 4)) < 0.4) & (there > 0)
    columns = (games.X, used, there)
    return Watched(*(jnp.asarray(c, jnp.float32) for c in columns))


def test_the_gradient_is_that_of_finite_differences(seen):
    net = games.tiny(inputs=2)
    found = games.flat(jax.grad(imitation.cross_entropy)(net, seen))
    columns = [np.asarray(column, float) for column in seen]
    wanted = lease_game.slopes(lambda n: lease_game.cross_entropy(n, *columns), net)
    assert np.abs(wanted).max() > 0.02
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


def test_it_is_least_at_the_true_rates(seen):
    rates = (seen.there * seen.used).sum(axis=0) / seen.there.sum(axis=0)
    odds = jnp.log(rates / (1 - rates))
    plain = ((jnp.zeros((2, 4)), odds),)
    least = float(imitation.cross_entropy(plain, seen))
    (_, bias), *_ = jax.grad(imitation.cross_entropy)(plain, seen)
    np.testing.assert_allclose(bias, 0, atol=1e-6)
    for b in range(4):
        for shift in (-0.3, 0.3):
            moved = ((jnp.zeros((2, 4)), odds.at[b].add(shift)),)
            assert float(imitation.cross_entropy(moved, seen)) > least + 1e-4


def test_nothing_watched_is_no_division_by_nothing():
    found = watched([np.inf], [0.0])
    net = games.tiny(inputs=1)
    assert float(imitation.cross_entropy(net, found)) == 0


def test_bins_that_nobody_was_watched_through_go_on_at_the_last_known_rate():
    """Watched to 8 s: two of the four bins, and 30 of 40 were used in the second."""
    gaps = [3.0] * 30 + [np.inf] * 10
    seen = watched(gaps, [8.0] * 40)
    known = np.asarray(seen.there).sum(axis=0) > 0
    assert known.tolist() == [True, True, False, False]
    key = jax.random.key(0)
    net = (
        (jax.random.normal(key, (1, 5)), jnp.ones(5)),
        (jax.random.normal(key, (5, 4)), jnp.arange(4.0)),
    )
    settled = imitation.settle_unwatched(net, seen, jnp.asarray(games.EDGES))
    x = jax.random.normal(key, (7, 1))
    before, after = np.asarray(apply(net, x)), np.asarray(apply(settled, x))
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    # base_rates adds a use and ten that were none: 31 of 51 in 6 seconds.
    rate = -np.log(1 - 31 / 51) / 6
    for column, width in ((2, 24), (3, 32)):
        hazard = 1 - np.exp(-rate * width)
        np.testing.assert_allclose(jax.nn.sigmoid(after[:, column]), hazard, rtol=1e-5)


def test_bins_that_were_watched_stay_as_they_were_learned():
    seen = watched([3.0, np.inf], [1e3, 1e3])
    net = ((jnp.ones((1, 4)), jnp.arange(4.0)),)
    settled = imitation.settle_unwatched(net, seen, jnp.asarray(games.EDGES))
    np.testing.assert_array_equal(settled[0][0], net[0][0])
    np.testing.assert_array_equal(settled[0][1], net[0][1])
