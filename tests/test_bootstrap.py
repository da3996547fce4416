"""Resampling sessions: by hand, against the delta method, and on a known truth."""

import numpy as np
import pytest

from perc import bootstrap
from perc.bootstrap import (
    Interval,
    Measure,
    by_session,
    interval,
    resampled_ratios,
    share_of,
)
from perc.cost import PrefillCost
from perc.traces.build import Columns, build_trace

FLAT = PrefillCost("a second a token", 1.0, 0.0)
SQUARE = PrefillCost("a second a token squared", 0.0, 1.0)


@pytest.fixture(scope="module")
def three():
    """Sessions x y x y z; a prompt of two blocks each, the last has 3 tokens."""
    columns = Columns(
        arrival_s=np.arange(5.0),
        input_tokens=np.full(5, 7),
        output_tokens=np.ones(5, np.int64),
        ids=np.array([0, 1, 0, 1, 0, 2, 0, 1, 0, 2]),
        lengths=np.full(5, 2),
        session=["x", "y", "x", "y", "z"],
    )
    return build_trace(columns, block_tokens=4, source="three sessions")


def sessions(n: int, ratio: float, generator) -> tuple[np.ndarray, np.ndarray]:
    """Parts and wholes of sessions of very different sizes."""
    wholes = np.ceil(generator.lognormal(2, 1, n))
    return generator.binomial(wholes.astype(int), ratio).astype(float), wholes


def test_sums_by_session_by_hand(three):
    values = np.array([[1, 2, 4, 8, 16], [1, 1, 1, 1, 1]])
    assert by_session(three, values).tolist() == [[5, 10, 16], [2, 2, 1]]
    # The first request is left out, and with three of them a session's last one.
    assert by_session(three, values[0], skip=1).tolist() == [4, 10, 16]
    assert by_session(three, values[0], skip=3).tolist() == [8, 16]
    assert by_session(three, values[0], skip=5).tolist() == []


@pytest.mark.parametrize(
    "measure, cost, part, whole",
    [
        (Measure("block_hit_ratio"), FLAT, [0, 1, 2, 2, 1], [2] * 5),
        (Measure("share_of_ideal"), FLAT, [0, 1, 2, 2, 1], [0, 2, 1, 2, 2]),
        (Measure("token_hit_ratio"), FLAT, [0, 4, 7, 7, 4], [7] * 5),
        (Measure("saved_share"), SQUARE, [0, 16, 49, 49, 16], [49] * 5),
        (Measure("within_budget", 2.9), FLAT, [0, 0, 1, 1, 0], [1] * 5),
        (Measure("within_budget", 3.0), FLAT, [0, 1, 1, 1, 1], [1] * 5),
    ],
)
def test_measures_by_hand(three, measure, cost, part, whole):
    hits = np.array([0, 1, 2, 2, 1], np.int32)
    assert measure.part(three, hits, cost).tolist() == part
    assert measure.part(three, np.stack([hits, hits]), cost).tolist() == [part, part]
    assert measure.whole(three, cost).tolist() == whole


def test_a_share_of_nothing_is_0():
    assert share_of(np.array([[1.0, 2.0]]), np.array([2.0, 4.0])).tolist() == [0.5]
    assert share_of(np.zeros((2, 3)), np.zeros(3)).tolist() == [0, 0]
    assert not resampled_ratios(np.zeros(3), np.zeros(3), resamples=5).any()


def test_every_draw_is_a_ratio_of_whole_sessions():
    parts, wholes = np.array([1.0, 0.0]), np.array([1.0, 3.0])
    draws = resampled_ratios(parts, wholes, resamples=400, seed=1)
    values, counts = np.unique(draws, return_counts=True)
    assert values.tolist() == [0.0, 0.25, 1.0]  # yy, xy, xx
    assert np.allclose(counts / 400, [0.25, 0.5, 0.25], atol=0.08)


def test_one_session_tells_nothing_about_others():
    draws = resampled_ratios(np.ones((4, 1)), np.ones(1))
    assert draws.shape == (4, 0)
    assert interval(draws[0]) == Interval(None, None)
    assert resampled_ratios(np.ones(3), np.ones(3), resamples=0).shape == (0,)


def test_draws_centre_on_the_estimate_and_spread_as_the_delta_method_says():
    parts, wholes = sessions(500, 0.3, np.random.default_rng(2))
    estimate = parts.sum() / wholes.sum()
    draws = resampled_ratios(parts, wholes, resamples=2000, seed=3)
    # Cochran 1977, "Sampling Techniques", equation 6.13, sessions being many.
    residual = parts - estimate * wholes
    error = np.sqrt((residual**2).sum()) / wholes.sum()
    assert abs(draws.mean() - estimate) < 0.2 * error
    assert draws.std() == pytest.approx(error, rel=0.1)


def test_the_interval_covers_a_known_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(4)
    covered = 0
    for seed in range(200):
        draws = resampled_ratios(
            *sessions(200, 0.3, generator), resamples=300, seed=seed
        )
        low, high = interval(draws)
        assert low is not None and high is not None
        covered += low <= 0.3 <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_a_difference_to_oneself_is_exactly_0_and_of_equals_narrow():
    generator = np.random.default_rng(5)
    parts, wholes = sessions(300, 0.5, generator)
    better = parts + (generator.random(300) < 0.1)
    one, same, other = (
        resampled_ratios(p, wholes, seed=6) for p in (parts, parts.copy(), better)
    )
    assert not (one - same).any()
    paired = other - one
    assert paired.min() > 0 and paired.std() < one.std() / 5


def test_a_seed_gives_its_draws_again_whatever_else_is_drawn():
    parts, wholes = sessions(50, 0.5, np.random.default_rng(7))
    many = resampled_ratios(np.stack([parts, 2 * parts]), wholes, seed=8)
    assert (many[0] == resampled_ratios(parts, wholes, seed=8)).all()
    assert (many[0] != resampled_ratios(parts, wholes, seed=9)).any()


def test_many_sessions_are_drawn_in_portions(monkeypatch):
    parts, wholes = sessions(50, 0.5, np.random.default_rng(7))
    monkeypatch.setattr(bootstrap, "WEIGHTS_AT_ONCE", 120)  # two samples at a time
    draws = resampled_ratios(parts, wholes, resamples=7)
    assert draws.shape == (7,) and len(set(draws.tolist())) == 7


def test_the_interval_by_hand():
    assert interval(np.arange(1000.0)[::-1]) == Interval(25.0, 974.0)
    assert interval([1.0, np.inf, 2.0]) == Interval(1.0, np.inf)
    assert interval([np.inf, np.inf]) == Interval(np.inf, np.inf)
