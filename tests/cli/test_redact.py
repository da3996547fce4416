"""Words of people: in no message, and with --redact in no file that is given away."""

import json
from dataclasses import replace

import numpy as np
import pytest

import perc as perc_package
from perc.bridges.recording import UNKNOWN, Parts, Row
from perc.history import history
from perc.traces import load
from perc.traces.redact import SOURCE, redacted

SECRET = "xyzzy"
WRONG = {
    "a cut line": ("jsonl", '{"prompt": "xyzzy xyzzy'),
    "no JSON": ("jsonl", "xyzzy"),
    "a list": ("jsonl", '{"prompt": ["xyzzy", 3], "answer": "a"}'),
    "an object": ("jsonl", '{"prompt": {"xyzzy": "xyzzy"}}'),
    "half a character": ("jsonl", '{"prompt": "xyzzy \\ud800"}'),
    "an answer": ("jsonl", '{"prompt": "a b", "answer": {"xyzzy": 1}}'),
    "a session": ("jsonl", '{"prompt": "a b", "session": ["xyzzy"]}'),
    "an arrival": ("jsonl", '{"prompt": "a b", "arrival": "xyzzy"}'),
    "a key that is a prompt": ("jsonl", '{"xyzzy a b": 1, "xyzzy a b": 2}'),
    "no header": ("csv", "12,tell me xyzzy\n13,tell me xyzzy again\n"),
    "a header twice": ("csv", "tell me xyzzy,tell me xyzzy\na,b\n"),
    "a comma": ("csv", "prompt,arrival\nhello, xyzzy tell me\n"),
    "an open quote": ("csv", 'prompt,arrival\n"xyzzy,1\n'),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_quote_no_prompt(perc, tmp_path, name):
    tokenizers = pytest.importorskip("tokenizers")
    ending, content = WRONG[name]
    path, out = tmp_path / f"prompts.{ending}", tmp_path / "o.parquet"
    path.write_text(content + "\n")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    model.save(str(tmp_path / "t.json"))
    table = ("--tokenizer", tmp_path / "t.json", "--out", out)
    said = perc("trace-from-prompts", path, *table)
    assert said.code == 2 and SECRET not in said.out + said.err
    assert f"prompts.{ending}" in said.words
    said = perc("profile", path)
    assert SECRET not in said.out + said.err


@pytest.fixture
def told(tmp_path):
    """A trace whose kinds, file and folder have names."""
    rows = [
        {"timestamp": i, "session_id": f"{SECRET} {i % 2}", "input_length": 32,
         "output_length": 1, "hash_ids": [1, i + 2], "type": kind}
        for i, kind in enumerate([SECRET, "tool_use", f"{SECRET}:end_turn", SECRET])
    ]  # fmt: skip
    (tmp_path / SECRET).mkdir()
    path = tmp_path / SECRET / f"{SECRET}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_redacted_trace_has_no_word_of_its_file(perc, told, tmp_path):
    plain, clean = tmp_path / "plain.parquet", tmp_path / "clean.parquet"
    assert perc("convert", told, plain, "--block-tokens", 16).code == 0
    said = perc("convert", told, clean, "--block-tokens", 16, "--redact")
    assert said.code == 0
    assert SECRET.encode() in plain.read_bytes()
    assert SECRET.encode() not in clean.read_bytes()
    before, after = load(plain), load(clean)
    assert after.kinds == ("kind 1", "tool_use", "kind 3:end_turn")
    assert after.source == SOURCE
    for name in ("block", "tokens", "session", "turn", "kind", "arrival_s"):
        assert (getattr(before, name) == getattr(after, name)).all()


def test_a_redacted_recording(perc, tmp_path):
    parts = Parts(tmp_path / "parts", 4, SECRET)
    blocks = np.array([1, 2], np.uint64)
    parts.add(Row(0.0, 0.1, 0.2, 9, 1, 0, UNKNOWN, 0, False, None, SECRET, blocks))
    parts.flush()
    out = tmp_path / "o.parquet"
    said = perc("record", "--join", parts.folder, "--out", out, "--redact")
    assert said.code == 0 and SECRET.encode() not in out.read_bytes()
    said = perc("record", "--from", "tcp://nowhere:1", "--out", out, "--redact")
    assert said.code == 2 and "say it to --join" in said.words


def test_policies_see_the_same():
    """Stop reasons that learned policies read keep their names."""
    kinds = ("request", "a:tool_use", "b:stop", "c")
    trace = perc_package.make("agent", requests=60)
    trace = replace(trace, kinds=kinds, kind=np.arange(60, dtype=np.int32) % 4)
    clean = ("request", "kind 2:tool_use", "kind 3:stop", "kind 4")
    assert redacted(trace).kinds == clean
    assert (history(redacted(trace)) == history(trace)).all()
