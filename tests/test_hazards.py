"""Gaps, survival, rates and times to live against plain Python and known vectors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.hazards import (
    FITS,
    NEVER,
    best_ttl_s,
    follow_ups,
    gaps_before,
    known_at,
    n_classes,
    rates_by_class,
    refits,
    return_probability,
    survival,
    survival_by_class,
    turn_eta,
)
from perc.traces.build import Columns, build_trace
from perc.tune_search import first_requests
from tests.oracles import timed as oracle
from tests.strategies import traces

EDGES = [0.0, 8.0, 16.0, 32.0, 64.0]
samples = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 8.0, 15.9, 32.0, 64.0, 900.0]), st.booleans()),
    min_size=1,
    max_size=12,
)


def test_survival_vector():
    """policies.md 2.3; the last two never came back."""
    time_s = np.array([5.0, 10, 10, 30, 100, 20])
    ended = np.array([True, True, True, True, False, False])
    found = survival(time_s, ended, np.array(EDGES))
    np.testing.assert_allclose(found, [1, 5 / 6, 1 / 2, 1 / 3, 1 / 3])


@given(samples)
def test_survival_equals_the_oracle_and_never_rises(found):
    time_s, ended = map(np.array, zip(*found, strict=True))
    alive = survival(time_s, ended, np.array(EDGES))
    np.testing.assert_allclose(alive, oracle.kaplan_meier(found, EDGES))
    assert alive[0] == 1 and (np.diff(alive) <= 0).all() and (alive >= 0).all()


@given(samples)
def test_survival_at_the_extremes(found):
    """Nothing censored: the empirical share; everything censored: 1."""
    time_s, _ = map(np.array, zip(*found, strict=True))
    every = np.ones(len(time_s), bool)
    expected = [(time_s >= edge).mean() for edge in EDGES]
    np.testing.assert_allclose(survival(time_s, every, np.array(EDGES)), expected)
    assert (survival(time_s, ~every, np.array(EDGES)) == 1).all()


@settings(deadline=None)
@given(traces(max_requests=30), st.integers(1, 4), st.booleans())
def test_tables_by_class_equal_the_oracle(trace, few, censored):
    if not trace.n_requests:
        return
    cut = 1 + trace.n_requests // 2
    cut = min(cut, trace.n_requests)
    gaps = gaps_before(trace, follow_ups(trace), cut)
    expected = oracle.gaps(trace, cut)
    assert (
        list(
            zip(*(c.tolist() for c in (gaps.cls, gaps.time_s, gaps.ended)), strict=True)
        )
        == expected
    )
    classes = n_classes(trace)
    np.testing.assert_allclose(
        survival_by_class(gaps, classes, np.array(EDGES), few=few),
        oracle.survival_tables(expected, classes, EDGES, few),
    )
    np.testing.assert_allclose(
        rates_by_class(gaps, classes, censored=censored, few=few),
        oracle.rate_tables(expected, classes, few, censored),
    )


def busy_trace(n=150):
    """Ten sessions that take turns: each request extends its session's prompt."""
    draw = np.random.default_rng(0)
    session = draw.integers(0, 10, n)
    turns = [int((session[: r + 1] == session[r]).sum()) for r in range(n)]
    rows = [
        [f"{s} {i}" for i in range(min(turn, 6))]
        for s, turn in zip(session, turns, strict=True)
    ]
    lengths = np.array([len(row) for row in rows])
    columns = Columns(
        arrival_s=np.cumsum(draw.integers(0, 9, n)).astype(np.float64),
        input_tokens=4 * lengths,
        output_tokens=np.ones(n, np.int64),
        ids=np.array([i for row in rows for i in row], object),
        lengths=lengths,
        session=session,
        kind=[("odd" if s % 2 else "even") for s in session],
    )
    return build_trace(columns, block_tokens=4, source="busy")


def test_refits_know_the_past_only():
    """Each estimate is the one that the trace up to then gives."""
    trace = busy_trace()

    def fit_to(trace):
        follow_up = follow_ups(trace)
        return lambda cut: rates_by_class(gaps_before(trace, follow_up, cut), 12)

    learned = refits(trace, np.zeros(12), fit_to(trace))
    since = learned["since"][learned["since"] < NEVER]
    assert since.tolist() == [64, 76, 90, 107, 128]
    assert len(learned["table"]) == FITS + 1
    assert (known_at(learned, 63) == 0).all()
    for step in (64, 100, 149):
        cut = int(since[since <= step].max())
        past = first_requests(trace, cut)
        expected = fit_to(past)(cut).astype(np.float32)
        assert expected.any()
        np.testing.assert_array_equal(known_at(learned, step), expected)


@pytest.mark.parametrize(
    ("found", "benefit", "expected"),
    [
        ((1, 2, 3, 4), 3, 0),
        ((1, 2, 3, 4), 4, 0),
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
def test_best_ttl_vectors(found, benefit, expected):
    """policies.md 2.11."""
    assert best_ttl_s(np.array(found, np.float64), benefit) == expected
    assert oracle.best_ttl(found, benefit) == expected


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 40))
def test_best_ttl_equals_the_oracle(found, benefit):
    rising = np.sort(np.array(found, np.float64))
    assert best_ttl_s(rising, benefit) == oracle.best_ttl(found, benefit)


@pytest.mark.parametrize(
    ("elapsed", "remaining", "expected"),
    [(0, 1, 0.75), (0.6, 0.5, 0.5), (1, 10, 0), (1, 19, 1), (0, 0, 0), (30, 1, 0)],
)
def test_return_probability_vectors(elapsed, remaining, expected):
    """policies.md 2.11; nothing returns past its deadline, or after all samples."""
    assert return_probability((0.5, 0.5, 1, 20), elapsed, remaining) == expected


def test_return_probability_without_samples():
    assert return_probability((), 3, 1) == 1 and return_probability((), 3, 0) == 0


@pytest.mark.parametrize(
    ("turns", "expected"),
    [([4, 4], 1), ([2, 6], 0.5), ([3, 5, 8], 0.46633), ([8], 1), ([1, 1, 1], 1)],
)
def test_turn_eta_vectors(turns, expected):
    """reference-systems.md 4.2."""
    assert turn_eta(turns) == pytest.approx(expected, abs=5e-6)
