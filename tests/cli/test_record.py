"""`perc record`: the trace, what is said, and what is refused."""

import json
import sys

import numpy as np
import pytest

import perc as perc_package
from perc.bridges.recording import UNKNOWN, Key, Parts, Row


def row(number, blocks, **more):
    """A request of whole blocks of 4 tokens, and one token more."""
    given = {
        "arrival_s": 100.0 + number,
        "started_s": 100.5 + number,
        "released_s": 100.9 + number,
        "input_tokens": 4 * len(blocks) + 1,
        "output_tokens": 2,
        "hit_tokens": 0,
        "turn": UNKNOWN,
        "priority": 0,
        "preempted": False,
        "session": None,
        "kind": "request",
        "blocks": np.array(blocks, np.uint64),
    }
    return Row(**{**given, **more})


def record(folder, requests, **options):
    parts = Parts(folder, 4, "a test", **options)
    for one in requests:
        parts.add(one)
    parts.flush()
    return parts


@pytest.fixture
def recorded(tmp_path):
    """A folder of two parts; the requests come back out of order."""
    big = 2**63
    rows = [
        row(1, [big + 5, 7], hit_tokens=4),
        row(0, [big + 5]),
        row(2, [big + 5, 7, 9], hit_tokens=8, preempted=True),
        row(2, [big + 5, 7, 9], hit_tokens=8),
    ]
    record(tmp_path / "parts", rows, rows=3)
    return tmp_path / "parts"


def test_join_makes_one_trace_of_the_parts(perc, recorded, tmp_path):
    out = tmp_path / "mine.parquet"
    said = perc("record", "--join", recorded, "--out", out)
    assert said.code == 0 and said.err == ""
    assert "3 requests, 6 accesses of 3 distinct blocks of 4 tokens" in said.words
    assert "served 44.44% of prompt tokens from its cache; 1 preemptions" in said.words
    assert f"perc compare {out}" in said.out
    trace = perc_package.load(out)
    assert trace.block.tolist() == [0, 0, 1, 0, 1, 2]
    assert trace.arrival_s.tolist() == [0, 1, 2]


def test_join_as_json(perc, recorded, tmp_path):
    out = tmp_path / "mine.parquet"
    said = perc("record", "--join", recorded, "--out", out, "--json")
    assert json.loads(said.out) == {
        "out": str(out),
        "requests": 3,
        "accesses": 6,
        "blocks": 3,
        "block_tokens": 4,
        "token_hit_ratio": 12 / 27,
        "preemptions": 1,
        "dropped": 0,
    }


def test_hits_that_are_not_known_are_not_made_up(perc, tmp_path):
    record(tmp_path / "parts", [row(0, [1], hit_tokens=UNKNOWN)])
    said = perc("record", "--join", tmp_path / "parts", "--out", tmp_path / "t.parquet")
    assert said.code == 0 and "served" not in said.out


def test_recordings_one_after_the_other_are_one_trace(perc, tmp_path):
    key = Key()
    names = key.blocks([b"a"]).tolist()
    record(tmp_path / "parts", [row(0, names)])
    record(tmp_path / "parts", [row(50, key.blocks([b"b"]).tolist())])
    said = perc(
        "record",
        "--join",
        tmp_path / "parts",
        "--out",
        tmp_path / "t.parquet",
        "--json",
    )
    assert json.loads(said.out)["blocks"] == 2


def test_requests_that_were_dropped_are_said(perc, tmp_path):
    parts = Parts(tmp_path, 4, "a test")
    parts.dropped = 3
    parts.add(row(0, [1]))
    parts.flush()
    said = perc("record", "--join", tmp_path, "--out", tmp_path / "t.parquet")
    assert said.code == 0 and "lacks 3 request(s)" in said.words


def test_requests_of_preemptions_alone_are_no_trace(refused, tmp_path):
    record(tmp_path, [row(0, [1], preempted=True)])
    said = refused("record", "--join", tmp_path, "--out", tmp_path / "t.parquet")
    assert "no request has finished" in said.words


def test_recordings_of_other_block_sizes_are_told_apart(refused, perc, tmp_path):
    first = record(tmp_path, [row(0, [1])])
    other = Parts(tmp_path, 8, "a test")
    other.add(row(9, [2], input_tokens=9))
    other.flush()
    words = ["record", "--join", tmp_path, "--out", tmp_path / "t.parquet"]
    assert "blocks of 4 and 8 tokens" in refused(*words).words
    assert perc(*words, "--recording", first.name).code == 0


@pytest.mark.parametrize(
    "words, answer",
    [
        (["--out", "x"], "Say --join FOLDER"),
        (["--out", "x", "--join", "a", "--from", "tcp://b:1"], "Say --join FOLDER"),
        (["--out", "x.parquet", "--join", "nowhere"], "nowhere: no such folder"),
        (["--out", "x", "--from", "tcp://b:1", "--gap-s", "0"], "--gap-s"),
        (["--out", "x", "--from", "tcp://b:1", "--seconds", "-1"], "--seconds"),
        (["--out", "x", "--from", "tcp://b:1", "--requests", "0"], "--requests"),
    ],
)
def test_what_cannot_be_is_refused(refused, tmp_path, monkeypatch, words, answer):
    monkeypatch.chdir(tmp_path)
    assert answer in refused("record", *words).words


def test_folders_without_a_recording_are_refused(refused, recorded, tmp_path):
    out = tmp_path / "t.parquet"
    (tmp_path / "empty").mkdir()
    said = refused("record", "--join", tmp_path / "empty", "--out", out)
    assert "no part of a recording" in said.words
    said = refused("record", "--join", recorded, "--out", out, "--recording", "abc")
    assert "no part of the recording abc" in said.words
    assert (
        "end in .parquet" in refused("record", "--join", recorded, "--out", "x").words
    )


def test_other_parquet_files_are_no_parts(refused, perc, mooncake, tmp_path):
    perc("convert", mooncake, tmp_path / "abc-000001.parquet")
    said = refused("record", "--join", tmp_path, "--out", tmp_path / "t.parquet")
    assert "abc-000001.parquet: is no part of a recording" in said.words


def test_without_the_packages_events_are_refused(refused, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zmq", None)
    said = refused("record", "--from", "tcp://b:1", "--out", tmp_path / "parts")
    assert "need pyzmq and msgspec" in said.words and "pip install" in said.words
    assert not (tmp_path / "parts").exists()


def test_help_tells_the_limits_of_events(perc):
    said = perc("record", "--help")
    assert said.code == 0
    for word in ("PERC_RECORD", "kv_cache_report_mode=full", "nothing of hits"):
        assert word in said.words
