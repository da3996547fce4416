"""Hostile files: a clear error or a right answer, in little memory, never a crash."""

import gzip
import json
import lzma

import pytest
import zstandard

import perc
from perc.cli import main
from perc.errors import InputError
from perc.traces import files, sessions
from perc.traces.formats import Options

GOOD = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}


def line(**changes):
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


def with_field(name, text):
    """A line whose field is this JSON text."""
    fields = {**{k: json.dumps(v) for k, v in GOOD.items()}, name: text}
    return ("{" + ", ".join(f'"{k}": {v}' for k, v in fields.items()) + "}\n").encode()


REFUSED = {
    "a million digits": (with_field("timestamp", "1" + "0" * 10**6), "line 1: no JSON"),
    "NaN": (with_field("timestamp", "NaN"), "'timestamp' is nan"),
    "beyond floats": (with_field("timestamp", "1e999"), "'timestamp' is inf"),
    "beyond 32 bits": (
        line(input_length=2**62),
        "'input_length' is 4611686018427387904",
    ),
    "a fraction": (line(input_length=1.5), "'input_length' is 1.5"),
    "a truth": (line(input_length=True), "'input_length' is True"),
    "text": (line(timestamp="0"), "'timestamp' is '0'"),
    "deep": (with_field("hash_ids", "[" * 10**5 + "]" * 10**5), "line 1: no JSON"),
    "a key twice": (b'{"timestamp":0,' + line()[1:], "occurs twice"),
    "Latin-1": (with_field("type", '"\xff"').decode().encode("latin-1"), "is no UTF-8"),
    "UTF-16": (line().decode().encode("utf-16"), "is no UTF-8"),
    "zeros between": (line() + b"\0" * 9 + b"\n" + line(), "line 2: no JSON"),
    "CR alone": (line().replace(b"\n", b"\r") * 2, "line 1: no JSON"),
    "empty": (b"", "the file is empty"),
    "an empty archive": (gzip.compress(b""), "the file is empty"),
    "a cut archive": (gzip.compress(line() * 50)[:-9], "cut short"),
    "no archive": (b"\x1f\x8b" + b"x" * 50, "cannot be read"),
    "half a parquet": (b"PAR1" + b"\0" * 50 + b"PAR1", "cannot be read as parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_named(tmp_path, name):
    content, says = REFUSED[name]
    path = tmp_path / "hostile"
    path.write_bytes(content)
    form = "parquet" if content.startswith(b"PAR1") else "mooncake"
    with pytest.raises(InputError, match=says) as error:
        perc.load(str(path), format=form)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "content",
    [
        line().replace(b"\n", b"\r\n") * 2,
        b"\xef\xbb\xbf" + line() * 2,
        line() + line()[:-1],
        line(hash_ids=[2**70]) * 2,  # ids are names, however long
        line(hash_ids=[-1]) * 2,
        with_field("type", '"\\ud800"') * 2,
    ],
)
def test_what_is_only_odd_is_read(tmp_path, content):
    path = tmp_path / "odd"
    path.write_bytes(content)
    trace = perc.load(str(path), format="mooncake")
    assert (trace.n_requests, trace.n_blocks) == (2, 1)


def test_sub_agents_deeper_than_python_goes(monkeypatch):
    """Versions of Python differ in how deep their JSON goes."""
    inner = {"t": 0, "in": 8, "out": 1, "hash_ids": [1]}
    for agent in range(2000):
        inner = {"t": 0, "type": "subagent", "agent_id": agent, "requests": [inner]}
    fields = {"id": 1, "block_size": 8, "requests": [inner]}
    found = [files.Record("deep", 1, fields)]
    monkeypatch.setattr(sessions, "records", lambda *_: found)
    with pytest.raises(InputError, match="line 1: sub-agents of sub-agents"):
        sessions.read("deep", Options())


def test_a_long_message_keeps_its_ends():
    """A value may be a million characters long; place and remedy are not in it."""
    said = str(InputError(f"x.csv, line 2: {'9' * 10**6}. Mend it."))
    assert said.startswith("x.csv, line 2: 99") and said.endswith("99. Mend it.")
    assert len(said) < 2100
    short = "x" * 2000
    assert str(InputError(short)) == short


PACKERS = {
    "gz": lambda path: gzip.open(path, "wb", 6),
    "xz": lambda path: lzma.open(path, "wb", preset=0),
    "zst": lambda path: zstandard.ZstdCompressor().stream_writer(path.open("wb")),
}


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 22)
    path = tmp_path / f"bomb.{kind}"
    with PACKERS[kind](path) as out:
        for _ in range(64):
            out.write(b"{" * (1 << 20))
    held = []
    read = files.chunks

    def counted(*args):
        for piece in read(*args):
            held.append(len(piece))
            yield piece

    monkeypatch.setattr(files, "chunks", counted)
    with pytest.raises(InputError, match="line 1: longer than 4 MiB"):
        list(files.records(path))
    assert sum(held) < 1 << 26 and max(held) < 1 << 26


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 10**5, "capacities = [1" + "0" * 10**5 + "]", "a = 1\na = 2", "\0"],
)
def test_a_hostile_grid_is_named(tmp_path, text, capsys):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SystemExit) as done:
        main(["sweep", f"@{path}", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert done.value.code == 2 and str(path) in said and "Traceback" not in said
