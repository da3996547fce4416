"""What a server remembers: equal to one that keeps books, and blind to the future."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import perc
from perc.history import NAMES, history, runs
from perc.sampling import sample_blocks
from perc.traces.build import Columns, build_trace
from tests.oracles.history import Server, requests_of, run_ends
from tests.strategies import traces
from tests.test_step import trace_of

KINDS = ("tool_use", "1:end_turn", "tool_calls", "stop", "tool", "a:b:stop", "unknown")


def built(trace, rows, *, arrival_s, extra, output_tokens, kinds):
    """The requests `rows` of a trace, with other times, lengths and kinds.

    Prompts are `extra` tokens longer, without a block of their own. Sessions that were
    inferred are inferred anew.
    """
    rows = np.asarray(rows, np.int64)
    lengths = (trace.stop - trace.start)[rows]
    spans = [np.arange(trace.start[r], trace.stop[r]) for r in rows]
    ids = trace.block[np.concatenate([np.zeros(0, np.int64), *spans])]
    known = not trace.sessions_inferred
    return build_trace(
        Columns(
            arrival_s=np.asarray(arrival_s, np.float64),
            input_tokens=trace.input_tokens[rows] + np.asarray(extra, np.int64),
            output_tokens=np.asarray(output_tokens, np.int64),
            ids=ids,
            lengths=lengths,
            session=trace.session[rows] if known else None,
            kind=list(kinds),
        ),
        block_tokens=trace.block_tokens,
        source="hypothesis",
    )


@st.composite
def varied(draw, trace, rows, past=None):
    """What else `built` wants for these rows, drawn, and the trace that it gives.

    Of the first rows `past` says what it is.
    """
    n_past = len(past["kinds"]) if past else 0
    n = len(rows) - n_past

    def drawn(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    gaps = np.cumsum(drawn(st.sampled_from([0.0, 0.1, 1.0, 30.0, 59.9, 2e5])))
    known = past or dict(arrival_s=[], extra=[], output_tokens=[], kinds=[])
    begin = known["arrival_s"][-1] if n_past else 0.0
    given = dict(
        arrival_s=[*known["arrival_s"], *(begin + gaps)],
        extra=[*known["extra"], *drawn(st.sampled_from([0, 0, 1, 5]))],
        output_tokens=[*known["output_tokens"], *drawn(st.integers(0, 9))],
        kinds=[*known["kinds"], *drawn(st.sampled_from(KINDS))],
    )
    return given, built(trace, rows, **given)


@st.composite
def histories(draw):
    """Random traffic of all lengths, times and kinds; some of it lacks blocks."""
    trace = draw(traces())
    trace = draw(varied(trace, range(trace.n_requests)))[1]
    return sample_blocks(trace, 0.3, 1.0) if draw(st.booleans()) else trace


@settings(deadline=None, max_examples=300)
@given(histories())
def test_equals_a_server_that_keeps_books(trace):
    server = Server()
    rows = [row for request in requests_of(trace) for row in server.serve(request)]
    found = history(trace)
    assert found.dtype == np.float32
    assert found.shape == (trace.n_accesses, len(NAMES))
    assert np.isfinite(found).all() and (found >= 0).all()
    for column, name in enumerate(NAMES):
        expected = [row[name] for row in rows]
        np.testing.assert_allclose(found[:, column], expected, 1e-6, err_msg=name)
    assert all(row.keys() == set(NAMES) for row in rows)


@settings(deadline=None, max_examples=300)
@given(traces(), st.data())
def test_another_future_changes_no_row(trace, data):
    """What comes after is cut, shuffled, repeated, and of other times and lengths."""
    assume(trace.n_requests > 1)
    n, cut = trace.n_requests, data.draw(st.integers(1, trace.n_requests - 1))
    order = list(range(n))
    past, _ = data.draw(varied(trace, order[:cut]))
    future = st.lists(st.sampled_from(order[cut:]), max_size=n)
    worlds = [order, order[:cut], order[:cut] + data.draw(future)]
    one, none, other = (data.draw(varied(trace, rows, past))[1] for rows in worlds)
    rows = none.n_accesses
    np.testing.assert_array_equal(history(one)[:rows], history(none))
    np.testing.assert_array_equal(history(other)[:rows], history(none))


@settings(deadline=None)
@given(histories())
def test_runs_are_neighbours_of_one_earlier_user_and_constant(trace):
    last, run = runs(trace)
    server, expected, begin = Server(), [], 0
    for request in requests_of(trace):
        ends = run_ends(request, server.blocks) if request.blocks else []
        expected += [begin + end for end in ends]
        server.serve(request)
        begin += len(request.blocks)
    assert last.tolist() == expected
    assert run.tolist() == np.searchsorted(expected, range(trace.n_accesses)).tolist()
    rows = history(trace)
    np.testing.assert_array_equal(rows, rows[last][run])


def test_one_name_a_column():
    assert len(set(NAMES)) == len(NAMES) == history(trace_of([[0]])).shape[1]


def column(trace, name):
    return history(trace)[:, NAMES.index(name)].tolist()


@pytest.mark.parametrize(
    ("kinds", "tools", "ended"),
    [
        (["tool_use", "end_turn", "unknown"], [1, 0, 0], [0, 1, 0]),
        (["tool_calls", "stop", "length"], [1, 0, 0], [0, 1, 0]),
        (["function_call", "0:end_turn", "1:tool_use"], [1, 0, 1], [0, 1, 0]),
        (["miniswe", "taubench", "magagent"], [0, 0, 0], [0, 0, 0]),
        (["pretend", "toolbox", "stop_sequence"], [0, 0, 0], [0, 0, 0]),
        (["end_turn:x", "tool", "END_TURN"], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_why_a_request_stopped(kinds, tools, ended):
    trace = trace_of([[0], [1], [2]], kind=kinds)
    assert column(trace, "tools") == tools
    assert column(trace, "ended") == ended


def test_a_request_without_blocks_begins_with_no_block():
    """It is no user of the next one's first block, nor of the trace's last one."""
    trace = trace_of([[], [7], [], [7], []], session=[0] * 5)
    assert column(trace, "prefix_users") == [0, 1]
    assert column(trace, "prefix_gap") == pytest.approx(np.log2([86_401, 3]))
    assert column(trace, "turn") == pytest.approx(np.log2([3, 5]))
    assert column(trace, "rate") == pytest.approx(np.log2([2, 4]))


def test_a_dialogue_by_hand():
    """Blocks of one token: 3 of the prompt, 1 of the answer, 2 that the user types."""
    trace = trace_of([[0, 1, 2], [0, 1, 2, 3, 4, 5], [0, 1, 2, 9]], session=[0, 0, 1])
    assert runs(trace)[0].tolist() == [2, 5, 8, 11, 12]
    ends = runs(trace)[0]

    def at_ends(name):
        return np.exp2(np.array(column(trace, name))[ends]) - 1

    assert at_ends("typed") == pytest.approx([0, 2, 2, 0, 0], abs=1e-5)
    assert column(trace, "follows") == [0] * 3 + [1] * 6 + [0] * 4
    assert at_ends("new") == pytest.approx([3, 3, 3, 1, 1])
    assert at_ends("depth") == pytest.approx([3, 3, 6, 3, 4])
    assert at_ends("below") == pytest.approx([0, 3, 0, 1, 0])
    assert at_ends("uses") == pytest.approx([0, 1, 0, 2, 0])
    assert at_ends("children") == pytest.approx([0, 0, 0, 1, 0])
    assert at_ends("sessions") == pytest.approx([1, 1, 1, 2, 1])


def test_traces_without_rows():
    no_blocks = replace(trace_of([[], [], []]), tells_blocks=False)
    for trace in (trace_of([]), no_blocks):
        assert history(trace).shape == (0, len(NAMES))
        assert [len(part) for part in runs(trace)] == [0, 0]


def test_constant_along_the_runs_of_generated_traffic():
    trace = perc.make("agent", requests=200, seed=3)
    rows, (last, run) = history(trace), runs(trace)
    assert len(last) < trace.n_accesses / 2
    np.testing.assert_array_equal(rows, rows[last][run])
    # No column is the same everywhere, but whether a turn has a block that is not full.
    moving = {name for name, x in zip(NAMES, rows.T, strict=True) if np.ptp(x) > 0}
    assert moving >= set(NAMES) - {"partial", "filled"}
