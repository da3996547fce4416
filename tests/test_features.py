"""Features by hand, and the promise that they never look ahead."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import assume, given, settings

from perc.cost import DEFAULT_COST
from perc.errors import TraceWarning
from perc.features import features
from perc.traces.build import Columns, build_trace
from perc.types import Features
from tests.strategies import traces
from tests.test_step import trace_of

CAUSAL = (
    "step time_s depth tokens prefix_tokens recompute_s frequency priority turn kind "
    "input_tokens request_blocks mean_gap_s resume_p sessions history"
).split()


def prefix_of(trace, n_requests):
    """The same trace, cut after `n_requests`."""
    lengths = (trace.stop - trace.start)[:n_requests]
    n = int(lengths.sum())
    return build_trace(
        Columns(
            arrival_s=trace.arrival_s[:n_requests],
            input_tokens=trace.input_tokens[:n_requests],
            output_tokens=trace.output_tokens[:n_requests],
            ids=trace.block[:n],
            lengths=lengths,
            session=trace.session[:n_requests],
            turn=trace.turn[:n_requests],
            kind=[trace.kinds[k] for k in trace.kind[:n_requests]],
            priority=trace.priority[:n_requests],
        ),
        block_tokens=trace.block_tokens,
        source="prefix",
    )


@settings(deadline=None)
@given(traces())
def test_the_future_changes_no_feature(trace):
    assume(trace.n_requests > 1)
    cut = trace.n_requests // 2
    whole = features(trace, CAUSAL)
    past = features(prefix_of(trace, cut), CAUSAL)
    n = int(trace.start[cut])
    for name in CAUSAL:
        np.testing.assert_array_equal(
            np.asarray(getattr(whole, name))[:n], getattr(past, name), err_msg=name
        )


def test_every_feature_but_the_clairvoyant_one_is_causal():
    assert {*CAUSAL, "next_use"} == {field.name for field in fields(Features)}


def test_the_clairvoyant_feature_does_look_ahead():
    trace = trace_of([[0], [1], [0]])
    assert features(trace, ["next_use"]).next_use.tolist() == [2, 2**31 - 1, 2**31 - 1]


def test_frequency_and_sessions_by_hand():
    trace = trace_of([[0, 1], [0], [0, 1]], session=["a", "b", "a"])
    values = features(trace, ["frequency", "sessions"])
    assert values.frequency.tolist() == [1, 1, 2, 3, 2]
    assert values.sessions.tolist() == [1, 1, 2, 2, 1]


def test_mean_gap_uses_the_last_twenty_of_the_session():
    trace = trace_of([[0]] * 30, session=["a"] * 30)
    slow = trace.arrival_s.copy()
    slow[:5] = 0.0
    slow[5:] = 1000 + np.arange(25)
    gaps = features(_with_arrivals(trace, slow), ["mean_gap_s"]).mean_gap_s
    assert np.isnan(gaps[0])
    assert gaps[5] == pytest.approx(1000 / 5)
    assert gaps[24] == pytest.approx((1019 - 0) / 20)  # the long gap still counts
    assert gaps[25] == pytest.approx(1.0)  # and here it has left the window


def _with_arrivals(trace, arrival_s):
    from dataclasses import replace

    return replace(trace, arrival_s=arrival_s)


def test_resume_probability_counts_the_past_of_its_class():
    """One-block requests: a b a c. Class: used once or again, all turn 1."""
    trace = trace_of([[0], [1], [0], [2]], session=["a", "b", "c", "d"])
    p = features(trace, ["resume_p"]).resume_p
    # (returns + 1) / (uses before + 4), of blocks used once; the third is used twice.
    assert p == pytest.approx([1 / 4, 1 / 5, 1 / 4, 2 / 6])


def test_frequency_classes_are_octaves_up_to_128():
    """One block, used 300 times: a class forgets what came before it began."""
    n = 300
    trace = trace_of([[0]] * n, session=[*range(n)])
    p = features(trace, ["resume_p"]).resume_p
    uses = np.arange(1, n + 1)
    first = np.minimum(2 ** np.floor(np.log2(uses)), 128)  # of the class
    before = uses - first  # all of them were followed, the last one just now
    np.testing.assert_allclose(p, (before + 1) / (before + 4), rtol=1e-6)


@pytest.mark.parametrize(
    ("column", "classes"), [("turn", 6), ("kind", 16)], ids=["turn", "kind"]
)
def test_turns_and_kinds_beyond_the_last_class_share_it(column, classes):
    """A new block at each turn, or of each kind: every class is empty but the last."""
    n = classes + 3
    labels = {
        "turn": dict(session=[0] * n),
        "kind": dict(session=[*range(n)], kind=[f"kind {i:02}" for i in range(n)]),
    }
    trace = trace_of([[i] for i in range(n)], **labels[column])
    p = features(trace, ["resume_p"]).resume_p
    expected = [1 / 4] * classes + [1 / 5, 1 / 6, 1 / 7]
    assert p == pytest.approx(expected)


def test_recompute_seconds_grow_along_the_prompt():
    values = features(trace_of([list(range(50))]), ["recompute_s"]).recompute_s
    assert (np.diff(values) > 0).all()


def test_unknown_feature():
    with pytest.raises(ValueError, match="no feature 'colour'"):
        features(trace_of([[0]]), ["colour"])


def test_the_class_joins_frequency_turn_and_kind():
    """Ten times a-b-c of one session each; then one more of another turn or kind."""
    requests = [[k] for k in range(12)]
    plain = features(trace_of(requests, session=[*range(12)]), ["resume_p"]).resume_p
    assert plain[-1] == pytest.approx(1 / (11 + 4))
    turned = trace_of(requests, session=[*range(11), 0])
    assert features(turned, ["resume_p"]).resume_p[-1] == pytest.approx(1 / 4)
    kinds = ["a"] * 11 + ["b"]
    other = trace_of(requests, session=[*range(12)], kind=kinds)
    assert features(other, ["resume_p"]).resume_p[-1] == pytest.approx(1 / 4)


def test_features_of_a_request_by_hand():
    """Two blocks, the second partial: 6 of 8 tokens in blocks of 4."""
    trace = build_trace(
        Columns(
            arrival_s=np.array([10.0, 70.0]),
            input_tokens=np.array([6, 4]),
            output_tokens=np.array([9, 9]),
            ids=np.array([0, 1, 0]),
            lengths=np.array([2, 1]),
            priority=np.array([3, -1]),
        ),
        block_tokens=4,
        source="by hand",
    )
    values = features(trace, [*CAUSAL, "next_use"])
    assert values.step.tolist() == [0, 0, 1]
    assert values.time_s.tolist() == [0, 0, 60]
    assert values.depth.tolist() == [0, 1, 0]
    assert values.tokens.tolist() == [4, 2, 4]
    assert values.prefix_tokens.tolist() == [0, 4, 0]
    assert values.input_tokens.tolist() == [6, 6, 4]
    assert values.request_blocks.tolist() == [2, 2, 1]
    assert values.priority.tolist() == [3, 3, -1]
    assert values.next_use.tolist() == [1, 2**31 - 1, 2**31 - 1]
    own = DEFAULT_COST
    expected = [own.prefill_s(4), own.prefill_s(6) - own.prefill_s(4), own.prefill_s(4)]
    assert values.recompute_s == pytest.approx(expected)


def test_long_spans_are_told():
    trace = _with_arrivals(trace_of([[0], [1]]), np.array([0.0, 1e9]))
    with pytest.warns(TraceWarning, match="times in scores resolve 64 s"):
        features(trace, ["time_s"])
