"""The Azure reader: times with seven digits, lengths, and no blocks."""

import pytest

from perc.errors import InputError
from perc.traces import load

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_sample(data_folder):
    trace = load(data_folder / "azure.csv")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (9, 0, 0)
    assert trace.arrival_s[1] == pytest.approx(0.4999999, abs=1e-9)
    assert trace.arrival_s[4] == pytest.approx(2.0000003, abs=1e-9)
    assert trace.input_tokens.tolist() == [100 + 37 * k for k in range(9)]
    assert trace.output_tokens.tolist() == [5 + k for k in range(9)]


def test_times_may_have_a_zone_and_columns_another_order(write):
    lines = [
        "ContextTokens, GeneratedTokens, TIMESTAMP",
        "7,8,2031-05-10 01:00:00+01:00",
        "5,6,2031-05-10 00:00:01.25",
    ]
    trace = load(write(lines))
    assert trace.arrival_s.tolist() == [0, 1.25]
    assert trace.input_tokens.tolist() == [7, 5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2031-05-10 00:00:00,1", "line 3: 2 values, must be 3"),
        ("2031-05-10 00:00:00,1,2,3", "line 3: 4 values, must be 3"),
        ("2031-05-10,1,2", "line 3: TIMESTAMP is '2031-05-10'"),
        ("2031-13-10 00:00:00,1,2", "line 3: TIMESTAMP is '2031-13-10"),
        ("2031-05-10 00:00:00,-1,2", "line 3: field 'ContextTokens' is '-1'"),
        ("2031-05-10 00:00:00,1,", "line 3: field 'GeneratedTokens' is ''"),
        ("2031-05-10 00:00:00,1,9999999999", "'GeneratedTokens' is 9999999999"),
    ],
)
def test_what_is_wrong_is_named(write, row, message):
    with pytest.raises(InputError, match=message):
        load(write([HEADER, "2031-05-10 00:00:00,1,2", row]))


def test_a_file_of_a_header_only_holds_no_request(write):
    with pytest.raises(InputError, match="holds no request"):
        load(write([HEADER]))


def test_another_header_is_told(write):
    with pytest.raises(InputError, match="line 1: the header is 'when,ContextTokens'"):
        load(write(["when,ContextTokens"]))
