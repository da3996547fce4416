"""The Mooncake reader, and with it all that can be wrong in a field."""

import json

import pytest

from perc.errors import InputError, TraceWarning
from perc.traces import load

GOOD = {
    "timestamp": 0,
    "input_length": 1025,
    "output_length": 7,
    "hash_ids": [5, 6, 7],
}


def line(**changes) -> str:
    return json.dumps({**GOOD, **changes})


def test_sample(data_folder):
    trace = load(data_folder / "mooncake.jsonl")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (10, 35, 16)
    assert trace.block_tokens == 512
    assert trace.sessions_inferred
    assert trace.arrival_s.tolist() == [0, 0, 3, 6, 9, 9, 15, 15, 21, 30]
    assert trace.session.tolist() == [0, 1, 0, 2, 0, 3, 2, 4, 5, 0]
    assert trace.turn.tolist() == [1, 1, 2, 1, 3, 1, 2, 1, 1, 4]
    assert trace.tokens[:3].tolist() == [512, 512, 1300 - 1024]
    assert trace.output_tokens.tolist() == [40, 12, 90, 7, 55, 1, 30, 200, 3, 18]


def test_blocks_of_another_size_may_be_said(write):
    path = write([line(input_length=40, hash_ids=[1, 2, 3])])
    with pytest.raises(InputError, match="say --block-tokens, here about 13"):
        load(path)
    assert load(path, block_tokens=16).tokens.tolist() == [16, 16, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamp": True}, "field 'timestamp' is True, must be a number"),
        ({"timestamp": "3"}, "field 'timestamp' is '3'"),
        ({"timestamp": None}, "field 'timestamp' is None"),
        ({"timestamp": float("nan")}, "field 'timestamp' is nan"),
        ({"timestamp": float("inf")}, "field 'timestamp' is inf"),
        ({"timestamp": -1}, "field 'timestamp' is -1"),
        ({"timestamp": 10**400}, "field 'timestamp' is 1000"),
        ({"input_length": -512}, "field 'input_length' is -512"),
        ({"input_length": 1025.5}, "field 'input_length' is 1025.5, must be a whole"),
        ({"input_length": False}, "field 'input_length' is False"),
        ({"input_length": 2**31}, "field 'input_length' is 2147483648"),
        ({"output_length": None}, "field 'output_length' is None"),
        ({"output_length": float("nan")}, "field 'output_length' is nan"),
        ({"hash_ids": 5}, "field 'hash_ids' is 5, must be a list"),
        ({"hash_ids": [5, True, 7]}, r"field 'hash_ids\[1\]' is True"),
        ({"hash_ids": [5, 6, 7.0]}, r"field 'hash_ids\[2\]' is 7.0"),
        ({"hash_ids": [5, "6", 7]}, r"field 'hash_ids\[1\]' is '6'"),
        ({"hash_ids": [5, None, 7]}, r"field 'hash_ids\[1\]' is None"),
        ({"hash_ids": [5, 6]}, "2 block ids, but 1025 tokens in blocks of 512 make 3"),
        ({"hash_ids": [5, 6, 7, 8]}, "4 block ids, but 1025 tokens"),
        ({"hash_ids": [5, 6, 5]}, "occurs twice in one request"),
    ],
)
def test_a_wrong_field_is_named_with_line_and_value(write, changes, message):
    path = write([line(), line(**changes)])
    with pytest.raises(InputError, match=message) as error:
        load(path, format="mooncake")
    assert f"{path}, line 2" in str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_named(write, name):
    fields = {key: value for key, value in GOOD.items() if key != name}
    path = write([line(), json.dumps(fields)])
    with pytest.raises(InputError, match=f"line 2: field '{name}' is missing"):
        load(path)


def test_whole_numbers_may_be_written_as_floats(write):
    assert load(write([line(input_length=1025.0)])).input_tokens.tolist() == [1025]


def test_ids_of_any_width_are_kept_apart(write):
    wide = [2**64 - 1, 2**64, 2**64 + 2**70]
    mixed = [3, 2**40, 2**65]
    trace = load(
        write([line(hash_ids=wide), line(hash_ids=mixed), line(hash_ids=wide)])
    )
    assert trace.block.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]


def test_ids_may_be_strings(write):
    words = ["a", "b", "c"]
    trace = load(write([line(hash_ids=words), line(hash_ids=words)]))
    assert trace.block.tolist() == [0, 1, 2, 0, 1, 2]


def test_times_out_of_order_are_sorted_with_a_warning(write):
    path = write([line(timestamp=3000), line(timestamp=1000, hash_ids=[1, 2, 3])])
    with pytest.warns(TraceWarning, match=r"1 request\(s\) arrive before"):
        trace = load(path)
    assert trace.arrival_s.tolist() == [0, 2]
    assert trace.next.tolist() == [-1] * 6
