"""What a trace teaches: every access in one example, and bins that fit its times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.history import history, runs
from perc.train.examples import (
    MOST_BINS,
    edges_of,
    examples,
    held_out,
    prices_of,
)
from tests.strategies import traces

teaching = traces(max_requests=30).filter(lambda t: (t.next >= 0).any())


@settings(deadline=None)
@given(teaching)
def test_every_access_is_in_one_example_that_tells_its_truth(trace):
    found = examples(trace)
    each = np.repeat(np.arange(len(found.blocks)), found.blocks)
    assert len(each) == trace.n_accesses
    np.testing.assert_array_equal(found.history[each], history(trace))
    for i, example in enumerate(each):
        request, later = trace.request[i], trace.next[i]
        now, end = trace.arrival_s[request], trace.arrival_s[-1]
        used = trace.arrival_s[trace.request[later]] - now if later >= 0 else np.inf
        assert found.gap_s[example] == used
        assert found.seen_s[example] == end - now
        assert found.session[example] == trace.session[request]


@settings(deadline=None)
@given(teaching)
def test_examples_are_as_long_as_can_be(trace):
    """Neighbours differ in what was known, or in the request that comes next."""
    found, (_, run) = examples(trace), runs(trace)
    stop = np.cumsum(found.blocks)
    later = np.where(trace.next >= 0, trace.request[trace.next], -1)
    for i in stop[:-1]:
        assert run[i] != run[i - 1] or later[i] != later[i - 1]


@settings(deadline=None)
@given(teaching, st.sampled_from([1e-3, 1.0, 1e4]))
def test_bins_span_the_gaps_in_any_unit(trace, unit):
    found = examples(replace(trace, arrival_s=trace.arrival_s * unit))
    gaps = found.gap_s[np.isfinite(found.gap_s) & (found.gap_s > 0)]
    if not len(gaps):
        with pytest.raises(InputError, match="Are its arrival times missing"):
            edges_of(found)
        return
    edges = edges_of(found)
    assert edges[0] == 0 and (np.diff(edges) > 0).all()
    assert 3 <= len(edges) <= MOST_BINS
    assert edges[1] < gaps.max() and edges[-1] > 0.99 * gaps.min()
    low, high = prices_of(edges)
    assert 0 < low < high
    # The longest lease can pay at the lowest price, the shortest at the highest.
    assert low * edges[-1] < 1 and high * edges[1] < 1


def test_bins_grow_with_the_times():
    trace = perc.make("chat", requests=200)
    slow = replace(trace, arrival_s=trace.arrival_s * 8)
    edges, wide = (edges_of(examples(t)) for t in (trace, slow))
    np.testing.assert_allclose(wide, 8 * edges, rtol=1e-5)
    np.testing.assert_allclose(8 * prices_of(wide), prices_of(edges), rtol=1e-5)


def test_sessions_are_held_out_as_wholes():
    found = examples(perc.make("chat", requests=400))
    judges = held_out(found, 0.3, 5)
    out, kept = found.session[judges], found.session[~judges]
    assert not set(out) & set(kept)
    share = len(np.unique(out)) / len(np.unique(found.session))
    assert 0.15 < share < 0.45
    np.testing.assert_array_equal(judges, held_out(found, 0.3, 5))
    assert not np.array_equal(judges, held_out(found, 0.3, 6))
    assert not held_out(found, 0.0, 5).any()


def test_traffic_without_reuse_cannot_teach():
    trace = perc.make("chat", requests=300)
    alone = replace(trace, next=np.full_like(trace.next, -1))
    with pytest.raises(InputError, match="no block is used twice.*Train on more"):
        examples(alone)
