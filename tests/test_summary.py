"""Summaries: numbers that can be checked by hand, and nothing divided by nothing."""

import json

import numpy as np
import pytest

from perc.summary import continued_requests, summarize
from perc.traces.build import Columns, build_trace
from perc.types import Trace


def trace_of(rows, *, arrival_s=None, input_tokens=None, **fields) -> Trace:
    n = len(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    columns = Columns(
        arrival_s=np.arange(n, dtype=float) if arrival_s is None else arrival_s,
        input_tokens=lengths * 10 if input_tokens is None else input_tokens,
        output_tokens=np.full(n, 3),
        ids=np.array([x for row in rows for x in row], np.int64),
        lengths=lengths,
        **fields,
    )
    return build_trace(columns, block_tokens=10, source="here")


def test_a_trace_that_can_be_counted_by_hand():
    trace = trace_of(
        [[1, 2, 3], [9], [1, 2, 4], [1, 2]],
        arrival_s=np.array([0.0, 1.0, 4.0, 8.0]),
        input_tokens=np.array([25, 19, 30, 20]),
        session=["a", "b", "a", "a"],
        kind=["x", "y", "x", "x"],
    )
    facts = summarize(trace)
    assert facts["requests"] == 4
    assert facts["sessions"] == 2
    assert not facts["sessions_inferred"]
    assert (facts["accesses"], facts["blocks"]) == (9, 5)
    assert facts["span_s"] == 8
    assert facts["requests_per_s"] == 0.5
    assert (facts["input_tokens"], facts["output_tokens"]) == (94, 12)
    assert facts["longest_request_blocks"] == 3
    assert facts["ideal_block_hit_ratio"] == pytest.approx(4 / 9)
    assert facts["ideal_token_hit_ratio"] == pytest.approx(40 / 94)
    assert facts["never_reused_share"] == pytest.approx(3 / 5)
    assert facts["partial_share"] == pytest.approx(1 / 9)
    assert facts["kinds"] == {"x": 3, "y": 1}
    assert facts["turns"] == [2, 1, 1]
    assert facts["continued"] == [0.5, 1, 0]
    assert facts["follow_up_gap_s"]["p50"] == 4
    assert facts["reuse_time_s"]["p50"] == 4
    assert facts["request_input_tokens"]["p50"] == 22.5


def test_inferred_sessions_branch_and_each_branch_continues_its_parent():
    # Two requests go on from the first: the same session, twice its second turn.
    trace = trace_of([[1, 2], [1, 2, 3], [1, 2, 3, 4], [5, 6], [5, 6, 7]])
    assert continued_requests(trace).tolist() == [-1, 0, 1, -1, 3]
    assert summarize(trace)["continued"] == [1, 0.5, 0]


@pytest.mark.parametrize(
    "rows", [[], [[], []], [[1]]], ids=["no request", "empty prompts", "one block"]
)
def test_nothing_divided_by_nothing(rows):
    facts = summarize(trace_of(rows))
    assert facts["ideal_block_hit_ratio"] == 0
    assert facts["ideal_token_hit_ratio"] == 0
    assert facts["reuse_time_s"] is None
    json.dumps(facts, allow_nan=False)


def test_requests_at_one_moment_have_no_rate():
    assert summarize(trace_of([[1]]))["requests_per_s"] == 0
