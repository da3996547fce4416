"""Counts of reuse by class and age, against counting by hand."""

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings

from perc.reuse import (
    AGES,
    STEPS,
    age_bin,
    age_edges,
    count_reuse,
    dense_levels,
    epochs,
)
from perc.types import Trace
from tests.strategies import traces


def test_bins_are_a_quarter_octave():
    assert age_bin([0.0, 0.5, 1.0, 1.25, 2.0, 4.0]).tolist() == [0, 0, 1, 2, 5, 9]
    ages = age_edges()
    assert ages[0] == 0 and ages[1] == 1 and ages[1 + STEPS] == 2
    np.testing.assert_array_equal(age_bin(ages), np.arange(AGES))


def test_epochs_come_as_the_trace_grows():
    assert epochs(20).tolist() == [0]
    assert epochs(1000)[:4].tolist() == [0, 32, 64, 96]
    assert (np.diff(epochs(10_000)) <= 10_000 / 8).all()


def test_levels_divide_the_ones_before():
    classes, parents = dense_levels([np.array([0, 1, 1, 0]), np.array([5, 5, 0, 5])])
    assert [level.tolist() for level in classes] == [[0, 1, 1, 0], [0, 2, 1, 0]]
    assert [level.tolist() for level in parents] == [[0, 0], [0, 1, 1]]


def by_hand(trace: Trace, cls: np.ndarray, start: int, n_classes: int, n_ages: int):
    """Events and blocks at risk when request `start` is about to come."""
    time = trace.arrival_s.astype(np.float32)
    events, risk = np.zeros((2, n_classes, n_ages))
    for i in range(trace.stop[start - 1]):
        following = trace.next[i]
        used = following >= 0 and trace.request[following] < start
        end = time[trace.request[following]] if used else time[start - 1]
        last = min(int(age_bin(end - time[trace.request[i]])), n_ages - 1)
        risk[cls[i], : last + 1] += 1
        if used:
            events[cls[i], last] += 1
        else:
            risk[cls[i], last] -= 0.5
    return events, risk


@settings(deadline=None, max_examples=50)
@given(traces(max_requests=25).filter(lambda t: t.n_accesses))
def test_counts_equal_counting_by_hand(trace):
    with patch("perc.reuse.FIRST_EPOCH", 3):
        counted(trace)


def counted(trace):
    fine = trace.turn[trace.request] % 3
    coarse = np.zeros_like(fine)
    classes, parents = dense_levels([coarse, fine])
    reuse = count_reuse(trace, classes, parents)
    starts = epochs(trace.n_requests)
    assert not reuse.events[1][0].any() and not reuse.at_risk[1][0].any()
    for e, start in enumerate(starts[1:], 1):
        shape = len(parents[1]), len(reuse.ages)
        events, risk = by_hand(trace, classes[1], int(start), *shape)
        np.testing.assert_array_equal(reuse.events[1][e], events)
        np.testing.assert_array_equal(reuse.at_risk[1][e], risk)
        np.testing.assert_array_equal(reuse.events[0][e], events.sum(0)[None])
        np.testing.assert_array_equal(reuse.at_risk[0][e], risk.sum(0)[None])
    assert (starts[reuse.epoch] <= np.arange(trace.n_requests)).all()
