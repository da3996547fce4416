"""Formulas of retention, with their published values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.serving.lifecycle import (
    THRESHOLD,
    Histories,
    eta_of,
    return_chance,
    share_until,
    time_to_live,
)


@pytest.mark.parametrize(
    "samples, benefit_s, ttl_s",
    [
        ((1, 2, 3, 4), 3, 0),
        ((1, 2, 3, 4), 4, 0),  # all as good as 0: the first maximum
        ((1, 2, 3, 4), 4.5, 4),
        ((1, 2, 3, 4), 8, 4),
        ((0.5, 0.5, 1, 20), 1, 0),
        ((0.5, 0.5, 1, 20), 2, 0.5),
        ((0.5, 0.5, 1, 20), 5, 1),
        ((0.5, 0.5, 1, 20), 50, 1),
        ((0.5, 0.5, 1, 20), 100, 20),
        ((), 100, 0),
    ],
)
def test_time_to_live(samples, benefit_s, ttl_s):
    assert time_to_live(samples, benefit_s) == ttl_s


@given(st.lists(st.floats(0, 50), min_size=1, max_size=12), st.floats(0, 100, width=32))
def test_no_candidate_is_better(samples, benefit_s):
    samples = sorted(samples)

    def value(seconds):
        share = np.mean(np.array(samples) <= seconds)
        return share * benefit_s - seconds

    best = value(time_to_live(samples, benefit_s))
    assert best >= max(value(t) for t in [0.0, *samples]) - 1e-9


@pytest.mark.parametrize(
    "turns, eta",
    [((4, 4), 1.0), ((2, 6), 0.5), ((3, 5, 8), 0.46633), ((8,), 1.0), ((1,) * 3, 1.0)],
)
def test_eta(turns, eta):
    assert eta_of(turns) == pytest.approx(eta, abs=5e-6)


@given(st.lists(st.integers(1, 9), max_size=6))
def test_eta_is_minus_pearson(turns):
    pairs = np.array([(i, n - i) for n in turns for i in range(1, n)], float)
    if len(pairs) >= 2 and (pairs.std(0) > 0).all():
        expected = -np.corrcoef(pairs.T)[0, 1]
        assert eta_of(turns) == pytest.approx(expected)
    else:
        assert eta_of(turns) == 1.0


@pytest.mark.parametrize(
    "elapsed_s, remaining_s, chance",
    [(0, 1, 0.75), (0.6, 0.5, 0.5), (1, 10, 0), (1, 19, 1), (20, 5, 0), (0, 0, 0)],
)
def test_return_chance(elapsed_s, remaining_s, chance):
    assert return_chance((0.5, 0.5, 1, 20), elapsed_s, remaining_s) == chance
    assert return_chance((), elapsed_s, remaining_s) == 1


def test_share_includes_equals():
    assert share_until([1.0, 2.0], 1.0) == 0.5


def test_histories_go_from_the_tool_to_all_to_the_default():
    seen = Histories(threshold=2, default_ttl_s=7.0)
    seen.gap("ls", 3.0)
    seen.gap("ls", 1.0)
    assert seen.samples("ls") is None  # two are not more than two
    assert seen.decide("ls", 100.0) == (7.0, [1.0, 3.0])
    seen.gap("make", 60.0)
    assert seen.samples("ls") == seen.samples("make") == [1.0, 3.0, 60.0]
    seen.gap("ls", 2.0)
    assert seen.samples("ls") == [1.0, 2.0, 3.0]
    assert seen.decide("ls", 100.0) == (3.0, [1.0, 2.0, 3.0])
    assert seen.decide("make", 100.0)[0] == 3.0  # 60 s more for a quarter of 100 s
    assert Histories().threshold == THRESHOLD == 100


def test_waits_are_forgotten_after_a_hundred():
    seen = Histories(threshold=0)
    assert seen.wait_s == 0
    for wait_s in (1000.0, *[2.0] * 100):
        seen.waits_s.append(wait_s)
    assert seen.wait_s == 2.0
    seen.gap("ls", 1.0)
    assert seen.decide("ls", 0.0)[0] == 1.0  # eta 1: 2 s of waiting for 1 s of room
    seen.turns += [2, 6]
    seen.waits_s.extend([2.0] * 100)
    assert seen.decide("ls", 0.0)[0] == 0.0  # eta 0.5: as dear as it is worth
