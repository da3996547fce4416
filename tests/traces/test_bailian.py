"""The Bailian reader: sessions follow parent_chat_id up to the root."""

import json

import pytest

from perc.errors import InputError, TraceWarning
from perc.traces import load


def line(chat, parent=-1, **fields) -> str:
    common = dict(timestamp=1.5, input_length=20, output_length=1, hash_ids=[1, 2])
    return json.dumps({"chat_id": chat, "parent_chat_id": parent, **common, **fields})


def test_sample(data_folder):
    with pytest.warns(TraceWarning, match="1 of 10 requests continue a chat that is"):
        trace = load(data_folder / "bailian.jsonl")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (10, 25, 12)
    assert trace.session.tolist() == [0, 1, 0, 2, 1, 0, 3, 4, 0, 5]
    assert trace.turn.tolist() == [1, 1, 2, 4, 2, 3, 1, 1, 4, 1]
    assert trace.kinds == ("text", "search", "image", "file")
    assert trace.block_tokens == 16
    assert not trace.sessions_inferred


def test_a_long_chain_of_chats_is_one_session(write):
    lines = [line(k, k - 1 if k else -1) for k in range(100)]
    trace = load(write(lines))
    assert trace.session.max() == 0
    assert trace.turn.tolist() == list(range(1, 101))


@pytest.mark.parametrize("parent", [-1, "-1", None])
def test_no_parent(write, parent):
    assert load(write([line(1), line(2, parent)])).session.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line(1, 2), line(2, 1)], "line 1: parent_chat_id leads in a circle"),
        ([line(1), line(2, 2)], "line 2: parent_chat_id leads in a circle"),
        ([line(1), line(1)], "line 2: chat_id 1 stands on line 1 already"),
        ([line(None)], "field 'chat_id' is None"),
        ([line(1, turn=0)], "field 'turn' is 0, must be a whole number, 1 to"),
        ([line(1, hash_ids=[1, 2, 3])], "3 block ids, but 20 tokens .* make 1 or 2"),
        ([line(1, hash_ids=[])], "0 block ids, but 20 tokens"),
    ],
)
def test_what_is_wrong_is_named(write, lines, message):
    with pytest.raises(InputError, match=message):
        load(write(lines))
