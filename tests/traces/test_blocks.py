"""The reader of block traces: sessions, turns, kinds, and the size of a block."""

import json

import pytest

from perc.errors import InputError, TraceWarning
from perc.traces import load


def line(tokens: int, n_ids: int, **fields) -> str:
    common = dict(timestamp=0.5, session_id="s", output_length=1)
    lengths = dict(input_length=tokens, hash_ids=list(range(n_ids)))
    return json.dumps({**common, **lengths, **fields})


def test_sample(data_folder):
    trace = load(data_folder / "blocks.jsonl")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (10, 47, 31)
    assert trace.block_tokens == 64
    assert not trace.sessions_inferred
    assert trace.session.tolist() == [0, 1, 0, 2, 2, 0, 1, 3, 1, 4]
    assert trace.turn.tolist() == [1, 1, 2, 1, 2, 3, 2, 1, 3, 1]
    assert trace.kinds == ("tool_use", "end_turn", "unknown")
    assert (trace.tokens == 64).all()


def test_turns_that_start_at_1_are_kept(write):
    trace = load(write([line(64, 4, turn=1), line(79, 4, turn=2)]), block_tokens=16)
    assert trace.turn.tolist() == [1, 2]


def test_type_is_the_kind_where_there_is_no_stop(write):
    trace = load(write([line(64, 4, type="rag"), line(64, 4)]), block_tokens=16)
    assert trace.kinds == ("rag", "unknown")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(100, 5)], "the lengths allow 17 to 20. Say --block-tokens"),
        ([line(100, 0)], "the lengths allow 101 and more"),
        (
            [line(160, 10), line(161, 10), line(320, 20), line(160, 4)],
            "no size on every line: 16 explains 3 of 4 requests, but not line 4 "
            "with 4 ids for 160 tokens",
        ),
        ([line(160, 10), line(3, 5)], "16 explains 1 of 2 requests, but not line 2"),
    ],
)
def test_a_size_that_the_lengths_leave_open_is_asked_for(write, lines, message):
    with pytest.raises(InputError, match=message):
        load(write(lines))


@pytest.mark.parametrize("n_ids", [8, 11])
def test_ids_out_of_proportion_are_named(write, n_ids):
    path = write([line(160, 10), line(160, n_ids)])
    with pytest.raises(InputError, match="line 2: hash_ids has .* make 9 or 10"):
        load(path, block_tokens=16)


def test_one_block_less_is_allowed_and_told(write):
    path = write([line(160, 10), line(160, 9)])
    with pytest.warns(TraceWarning, match="1 of 2 requests have one block less"):
        assert load(path, block_tokens=16).n_accesses == 19


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"session_id": None}, "field 'session_id' is None"),
        ({"session_id": 1.5}, "field 'session_id' is 1.5, must be a string or"),
        ({"session_id": "\ud800"}, "field 'session_id' is"),
        ({"agent": ["x"]}, "field 'agent' is"),
        ({"stop": True}, "field 'stop' is True"),
        ({"turn": -1}, "field 'turn' is -1"),
        ({"turn": None}, "field 'turn' is None"),
        ({"turn": 0}, "field 'turn' is missing, as on 1 line"),
    ],
)
def test_a_wrong_field_is_named(write, fields, message):
    path = write([line(160, 10), line(160, 10, **fields)])
    with pytest.raises(InputError, match=message):
        load(path, block_tokens=16, format="blocks")
