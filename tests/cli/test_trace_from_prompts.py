"""`perc trace-from-prompts`: text in, a trace out, with a tokenizer made here."""

import gzip
import json
import sys

import numpy as np
import polars
import pytest

from perc.block_hashes import BlockHasher
from perc.errors import TraceWarning
from perc.prefix_text import Names, trace_from_prompts
from perc.traces import load

tokenizers = pytest.importorskip("tokenizers")
SYSTEM = "you are a kind helper "
ROWS = [
    {"prompt": SYSTEM + "what is a cache", "session": "a", "arrival": 0, "answer": "x"},
    {"prompt": SYSTEM + "who are you", "session": None, "arrival": 1.5, "answer": ""},
    {
        "prompt": SYSTEM + "what is a cache x and why is it",
        "session": "a",
        "arrival": 4,
        "answer": "a kind cache",
    },
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A word a token, `[B]` at the beginning; truncates and pads, as some files say."""
    words = sorted({word for row in ROWS for word in row["prompt"].split()})
    vocabulary = {"[B]": 0, "[U]": 1} | {w: i for i, w in enumerate(words, 2)}
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(vocabulary, unk_token="[U]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[B] $A", special_tokens=[("[B]", 0)]
    )
    made.enable_truncation(4)
    made.enable_padding(length=64)
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_prompts_become_a_trace(perc, model, jsonl, tmp_path):
    out = tmp_path / "made.parquet"
    said = perc(
        *("trace-from-prompts", jsonl, "--tokenizer", model),
        *("--block-tokens", 2, "--out", out),
    )
    assert said.code == 0 and said.err == ""
    assert "3 requests of 34 tokens, 16 accesses of 8 distinct blocks" in said.words
    assert f"next: perc compare {out}" in said.out
    trace = load(out)
    # [B] you | are a | kind helper | what is | a cache | x and | why is | (it)
    # [B] you | are a | kind helper | who are | (you)
    assert "of 2 tokens; 50.0% repeat" in said.words
    assert trace.input_tokens.tolist() == [10, 9, 15]
    assert trace.block.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 2, 3, 4, 6, 7]
    assert trace.block_tokens == 2 and trace.source.endswith("prompts.jsonl")
    assert trace.session.tolist() == [0, 1, 0] and trace.turn.tolist() == [1, 1, 2]
    assert trace.arrival_s.tolist() == [0, 1.5, 4]
    assert trace.output_tokens.tolist() == [1, 0, 3]


def test_blocks_are_those_of_the_hashes(model, jsonl):
    trace = trace_from_prompts(jsonl, model, block_tokens=3)
    made = tokenizers.Tokenizer.from_file(str(model))
    made.no_truncation()
    made.no_padding()
    hasher = BlockHasher(block_tokens=3, seed="7")
    hashes = [name for row in ROWS for name in hasher(made.encode(row["prompt"]).ids)]
    assert len(set(hashes)) == trace.n_blocks
    first = {name: hashes.index(name) for name in hashes}
    same = [first[name] for name in hashes]
    assert [trace.block.tolist().index(b) for b in trace.block] == same


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "jsonl.gz"])
def test_every_kind_of_file_gives_the_same_trace(kind, model, jsonl, tmp_path):
    path = tmp_path / f"other.{kind}"
    frame = polars.DataFrame(ROWS, strict=False)
    if kind == "parquet":
        frame.write_parquet(path)
    elif kind == "csv":
        frame.write_csv(path)
    else:
        text = frame.write_csv() if "csv" in kind else jsonl.read_text()
        path.write_bytes(gzip.compress(text.encode()))
    a, b = (trace_from_prompts(p, model, block_tokens=2) for p in (jsonl, path))
    for name in ("block", "session", "arrival_s", "output_tokens", "input_tokens"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_columns_may_be_called_otherwise_or_be_missing(model, tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text('text,id\n"what is\n\na cache",7\nwho are you,8\n')
    with pytest.warns(TraceWarning, match="no column 'arrival'; requests arrive one"):
        trace = trace_from_prompts(
            path,
            model,
            block_tokens=1,
            names=Names(prompt="text", session="id"),
            special_tokens=False,
        )
    assert trace.input_tokens.tolist() == [4, 3]
    assert trace.arrival_s.tolist() == [0, 1]
    assert trace.output_tokens.tolist() == [0, 0]
    assert not trace.sessions_inferred


def test_a_row_without_an_answer_has_no_token_of_it(model, tmp_path):
    """null, missing in its row, or an empty cell."""
    jsonl, csv = tmp_path / "a.jsonl", tmp_path / "a.csv"
    rows = [{"answer": "is a"}, {"answer": None}, {}, {"answer": ""}]
    rows = [{"prompt": "who are you", "arrival": 1} | row for row in rows]
    jsonl.write_text("\n".join(map(json.dumps, rows)))
    csv.write_text(
        "prompt,arrival,answer\n"
        + "".join(f"who are you,1,{row.get('answer') or ''}\n" for row in rows)
    )
    for path in (jsonl, csv):
        trace = trace_from_prompts(path, model)
        assert trace.output_tokens.tolist() == [2, 0, 0, 0]


@pytest.mark.parametrize(
    "rows, said_of_it",
    [
        ('{"text": "a"}', "no column 'prompt'; there are: text"),
        (
            '{"prompt": 3}',
            "row 1: prompt is 3, must be text that UTF-8 can hold",
        ),
        ('{"prompt": "a"}\n{"session": "b"}', "row 2: prompt is None, must be text"),
        ('{"prompt": "\\ud800"}', "row 1: prompt is text of length 1, must be text"),
        ('{"prompt": "a", "session": [1]}', "session is a list of length 1, must"),
        ('{"prompt": "a", "arrival": "noon"}', "arrival is text of length 4, must"),
        ('{"prompt": "a", "arrival": -1}', "arrival is -1, must be seconds"),
        ('{"prompt": "a", "answer": 7}', "answer is 7, must be text"),
        ("prompt", "line 1: no JSON"),
        ("", "the file is empty"),
    ],
)
def test_bad_rows(refused, model, tmp_path, rows, said_of_it):
    path = tmp_path / "prompts.jsonl"
    path.write_text(rows)
    words = ("--tokenizer", model, "--out", tmp_path / "x.parquet")
    assert said_of_it in refused("trace-from-prompts", path, *words).err
    assert not (tmp_path / "x.parquet").exists()


def test_bad_files_and_flags(refused, model, jsonl, tmp_path):
    def said(file=jsonl, tokenizer=model, out="x.parquet", *more):
        return refused(
            *("trace-from-prompts", file, "--tokenizer", tokenizer),
            *("--out", tmp_path / out, *more),
        ).err

    table, empty = tmp_path / "no.parquet", tmp_path / "empty.csv"
    table.write_bytes(b"PAR1 and no more")
    empty.write_text("prompt\n")
    assert "cannot be read as parquet" in said(table)
    assert "holds no row" in said(empty)
    empty.write_text("prompt,prompt\nx,y\n")
    assert "two columns are called 'prompt'" in said(empty)
    empty.write_text('prompt\n"x\n')
    assert "(line 2: a quote is not closed" in said(empty)
    assert "check the path" in said(tmp_path / "gone.jsonl")
    assert "give the model's tokenizer.json" in said(tokenizer=tmp_path / "gone")
    assert "no tokenizer" in said(tokenizer=jsonl)
    assert "no column 'chat'" in said(jsonl, model, "x.parquet", "--session", "chat")
    assert "give 1 or more" in said(jsonl, model, "x.parquet", "--block-tokens", "0")
    assert ".parquet" in said(out="x.jsonl")


def test_without_the_package_it_says_what_to_install(
    refused, model, jsonl, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    words = ("--tokenizer", model, "--out", tmp_path / "x.parquet")
    assert (
        "pip install 'perc-kv[text]'"
        in refused("trace-from-prompts", jsonl, *words).err
    )
