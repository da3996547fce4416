"""`perc profile`: the table, JSON, and a trace that the other commands read."""

import dataclasses
import json

import pytest

import perc as core

ROWS = [
    {"id": "a", "conversations": [
        {"from": "human", "value": "What is a cache of keys and values good for?"},
        {"from": "gpt", "value": "It saves work that was done before."},
        {"from": "human", "value": "And what does it cost?"},
        {"from": "gpt", "value": "Memory."},
    ]},
    {"id": "b", "conversations": [
        {"from": "human", "value": "What is a cache of keys and values made of?"},
        {"from": "gpt", "value": "Blocks."},
    ]},
]  # fmt: skip


@pytest.fixture
def sharegpt(tmp_path):
    path = tmp_path / "chats.json"
    path.write_text(json.dumps(ROWS))
    return path


def test_table(perc, sharegpt):
    said = perc("profile", sharegpt)
    assert said.code == 0 and said.err == ""
    assert "conversation_list, 2 of 2 rows, 3 requests" in said.words
    assert "Tokens are estimated." in said.words and "Longest: row-0" in said.words


def test_json_and_a_trace_that_compare_reads(perc, sharegpt, tmp_path):
    out = tmp_path / "made.parquet"
    words = ("--out", out, "--requests", 40, "--block-tokens", 4, "--seed", 2)
    said = perc("profile", sharegpt, *words, "--json")
    found = json.loads(said.out)
    assert (found["schema"], found["rows_total"]) == ("conversation_list", 2)
    assert found["trace"]["requests"] == 40 and found["trace"]["repeated"] > 0
    before = out.read_bytes()
    assert "40 requests" in perc("profile", sharegpt, *words).words
    assert out.read_bytes() == before
    compared = perc("compare", out, "--policies", "lru", "--capacities", 8)
    assert compared.code == 0 and "lru" in compared.out


def test_a_tokenizer_counts(perc, sharegpt, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.save(str(tmp_path / "tokenizer.json"))
    said = perc("profile", sharegpt, "--tokenizer", tmp_path / "tokenizer.json")
    assert "Counted by" in said.words and "The estimate would be +" in said.words
    found = json.loads(
        perc(
            *("profile", sharegpt, "--tokenizer", tmp_path / "tokenizer.json"),
            *("--json", "--out", tmp_path / "x.parquet", "--block-tokens", 2),
        ).out
    )
    assert found["prompt_tokens"]["max"] == 15 and found["response_tokens"]["max"] == 8
    assert found["estimate_error"]["texts"] == 4
    assert found["trace"]["accesses"] == 5 + 11 + 5


def test_what_is_at_fault_is_said(refused, sharegpt, tmp_path):
    assert "check the path" in refused("profile", tmp_path / "gone.json").err
    assert "--split and --config" in refused("profile", sharegpt, "--split", "x").err
    for file, limit in ((sharegpt, 0), (sharegpt, -3), ("hf:alpaca", -3)):
        said = refused("profile", file, "--limit", limit).err
        assert f"--limit is {limit}, must be a whole number from 1" in said
    said = refused("profile", sharegpt, "--tokenizer", tmp_path / "no.json")
    assert "give the model's tokenizer.json" in said.err
    other = tmp_path / "other.jsonl"
    other.write_text('{"body": "x"}\n')
    assert "there are: body" in refused("profile", other).err


def test_names_of_a_file_do_not_steer_the_terminal(perc, refused, tmp_path):
    """In a table, in a sentence, and in an error."""
    name = "\x1b[2J\x07café"
    path = tmp_path / "turns.jsonl"
    row = {"session_id": name, "role": "user", "content": "hi"}
    path.write_text(json.dumps(row) + "\n")
    said = perc("profile", path)
    assert said.code == 0 and "\\x1b[2J\\x07café (1)" in said.out
    path.write_text(json.dumps({name: "x"}) + "\n")
    told = refused("profile", path).err
    assert "there are: (text of length 9)" in told
    kinds = (f"{name}[b]", *core.make("chat", requests=9).kinds[1:])
    trace = dataclasses.replace(core.make("chat", requests=9), kinds=kinds)
    core.save(trace, tmp_path / "chat.parquet")
    table = perc("inspect", tmp_path / "chat.parquet").out
    assert "\\x1b[2J\\x07café[b]" in table
    assert not {"\x1b", "\x07"} & set(said.out + said.err + told + table)


def test_rows_without_a_prompt_are_told(perc, sharegpt, tmp_path):
    assert "without a prompt" not in perc("profile", sharegpt).words
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "x"}\n{"text": "lost"}\n')
    said = perc("profile", path).words
    assert "2 of 2 rows, 1 requests" in said and "1 of 2 rows without a prompt" in said


def test_no_digit_is_lost_in_80_columns(perc, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "a " * 1_000_000}) + "\n")
    said = perc("profile", path).out
    assert said.count("1,000,000.0") == 8 and "…" not in said


@pytest.mark.parametrize("what", ["preset:code", "chats.json"])
def test_a_negative_seed_is_refused(refused, sharegpt, tmp_path, what):
    file = what if ":" in what else sharegpt
    out = tmp_path / "x.parquet"
    said = refused("profile", file, "--out", out, "--seed", "-1")
    assert "seed is -1" in said.err and not out.exists()


def test_a_preset_has_lengths_only(perc, refused, tmp_path):
    out = tmp_path / "lmsys.parquet"
    said = perc("profile", "preset:lmsys", "--requests", 50, "--out", out)
    assert (
        said.code == 0 and "50 requests" in said.words and "0.0% repeat" in said.words
    )
    again = perc("profile", "preset:lmsys", "--requests", 50, "--out", out, "--json")
    assert json.loads(again.out)["trace"]["requests"] == 50
    assert "give --out" in refused("profile", "preset:lmsys").err
    assert "There are: sharegpt" in refused("profile", "preset:nope").err
    assert "There are: sharegpt" in refused("profile", "preset:x", "--out", out).err
    said = refused("profile", "preset:code", "--out", out, "--limit", 3)
    assert "leave --limit and --tokenizer out" in said.err


@pytest.mark.parametrize(
    "flag", ["--requests", "--sessions-per-s", "--block-tokens", "--seed"]
)
def test_what_only_a_trace_has_is_refused_without_one(refused, sharegpt, flag):
    assert "give --out" in refused("profile", sharegpt, flag, 5).err


@pytest.mark.parametrize("flag", ["--split", "--config"])
def test_a_preset_has_no_parts(refused, tmp_path, flag):
    out = tmp_path / "x.parquet"
    said = refused("profile", "preset:code", "--out", out, flag, "x")
    assert "leave --split and --config out" in said.words and not out.exists()
