"""Data sets of prompts: the estimate of tokens, schemas, statistics, traffic."""

import json
import random
import re
import sys
import types
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.profile import profile, requests_of
from perc.profile_estimate import estimate_error, estimate_tokens, subwords
from perc.profile_hub import DATA_SETS, read_hub
from perc.profile_presets import PRESETS, trace_of_preset
from perc.profile_rows import Message, conversations, read_dataset
from perc.profile_trace import trace_of_dataset

DOCUMENT = Path(__file__).parents[1] / "docs" / "profiling.md"
VECTORS = {  # of CachePilot's tokenizer
    "hello, world!": 4,
    "admissioncontroller": 4,
    "AdmissionPolicyV2": 7,
    "1234567": 3,
    "héllo wörld": 6,
    "foo_bar(baz)": 6,
    "HTTPServer2": 4,
    "ABC": 1,
    "日本語テキスト": 4,
    "": 1,
    "   ": 1,
    "a1b2c3": 6,
    "x=y+1;": 6,
    "don't": 3,
    "camelCaseWord": 3,
    "ABCdef": 2,
    "12ab34": 3,
    "3.14159": 4,
    "naïve café": 5,
    "supercalifragilistic": 4,
}
TEXTS = st.text(st.sampled_from("abzABZ019 .,_\n\té日\x00"), max_size=30)
PUNCTUATION = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def plain_estimate(text: str) -> int:
    """The rule, character by character."""
    pieces, piece = [], ""
    for c in text:
        last = piece[-1:]
        cut = (last.isascii() and last.islower() and c.isascii() and c.isupper()) or (
            (last + c).isascii()
            and ((last.isdigit() and c.isalpha()) or (last.isalpha() and c.isdigit()))
        )
        if c.isspace() or c in PUNCTUATION or cut:
            pieces.append(piece)
            piece = ""
        if c in PUNCTUATION:
            pieces.append(c)
        elif not c.isspace():
            piece += c
    total = 0
    for part in filter(None, [*pieces, piece]):
        mixed = any("a" <= c <= "z" for c in part) and any(
            "A" <= c <= "Z" for c in part
        )
        size = 5
        if not part.isascii():
            size = 2
        elif all(c in "0123456789" for c in part):
            size = 3
        elif mixed:
            size = 4
        total += -(-len(part) // size)
    return max(total, 1)


@pytest.mark.parametrize("text, tokens", VECTORS.items())
def test_estimate_of_the_reference(text, tokens):
    assert estimate_tokens(text) == tokens


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_estimate_is_the_rule(text):
    assert estimate_tokens(text) == plain_estimate(text)
    assert max(1, len(subwords(text))) == estimate_tokens(text)
    assert "".join(subwords(text)) == "".join(text.split())


def test_error_of_the_estimate():
    found = estimate_error([12, 5, 9], [10, 10, 0])
    assert found == (2, -0.15, pytest.approx(0.35), pytest.approx(0.485))
    with pytest.raises(InputError, match="at least one text"):
        estimate_error([1], [0])


# Rows and schemas


@pytest.fixture
def table():
    """CachePilot's vector: two rows, one with an empty cell."""
    return [
        {"instruction": "Summarize", "input": "text about GPUs", "output": "short"},
        {"instruction": "Write a haiku", "input": "", "output": "Quiet cache at dawn."},
    ]


def test_profile_of_the_reference(table):
    # CachePilot counts the empty cell as a word of one token, as pandas writes it.
    table[1]["input"] = "nan"
    found = profile(conversations("made", table))
    assert found.prompt_tokens == pytest.approx((5.5, 5.5, 5.95, 5.99, 6))
    assert found.response_tokens == pytest.approx((3.5, 3.5, 5.75, 5.95, 6))
    assert found.total_tokens == pytest.approx((9.0, 9.0, 10.8, 10.96, 11))
    assert found.estimated_total_tokens == 18 and found.rows_profiled == 2
    assert [tuple(row) for row in found.top_rows] == [
        ("row-1", 5, 6, 11),
        ("row-0", 6, 1, 7),
    ]


def test_an_empty_cell_holds_no_token(table):
    found = profile(conversations("made", table))
    assert found.top_rows[0] == ("row-1", 4, 6, 10)
    table[1]["output"] = " "
    assert profile(conversations("made", table)).response_tokens.mean == 0.5


def test_rows_without_a_prompt_are_counted_and_ask_nothing():
    lost = [{"text": "lost"}, {"prompt": None}, {"prompt": " "}, {"answer": "x"}]
    found = profile(conversations("made", [{"prompt": "hi"}, *lost]))
    assert (found.rows_profiled, found.rows_without_prompt, found.requests) == (5, 4, 1)
    chats = [{"chat": ["hi", "hello"]}, {"chat": []}, {"chat": ["", "hello"]}]
    found = profile(conversations("made", [*chats, {"chat": None}]))
    assert (found.rows_without_prompt, found.requests) == (3, 1)


def test_a_tokenizer_counts_and_judges_the_estimate(table):
    found = profile(
        conversations("made", table),
        lambda texts: [len(text.split()) for text in texts],
        counted_by="words",
    )
    assert found.prompt_tokens.max == 4 and found.counted_by == "words"
    assert found.estimate_error is not None
    assert found.estimate_error.total == pytest.approx(17 / 12 - 1)
    assert profile(conversations("made", table)).estimate_error is None


def test_longest_rows_come_first_and_ties_in_order():
    rows = [{"prompt": "a " * n} for n in (3, 9, 3, 7, 8, 1, 9)]
    found = profile(conversations("made", rows))
    assert [row.row_id for row in found.top_rows] == [
        "row-1",
        "row-6",
        "row-4",
        "row-3",
        "row-0",
    ]


ASKED = (Message(False, "hi"), Message(True, "hello"))
SAID = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]
OPENAI = [
    {"role": "User", "content": [{"type": "text", "text": "hi"}, {"type": "image"}]},
    {"role": "ASSISTANT", "content": "hello"},
]
TURNS = [
    {"chat_id": 7, "role": "prompter", "text": "hi"},
    {"chat_id": 8, "role": "human", "text": "bye"},
    {"chat_id": 7, "role": "bot", "text": "hello"},
]


@pytest.mark.parametrize(
    "rows, schema",
    [
        ([{"conversations": SAID}], "conversation_list"),
        ([{"messages": OPENAI, "prompt": "not this"}], "conversation_list"),
        ([{"dialogue": json.dumps(SAID)}], "conversation_list"),
        ([{"chat": ["hi", "hello"]}], "conversation_list"),
        (TURNS, "turn_table"),
        ([{"question": "hi", "completion": "hello"}], "flat_prompt_response"),
    ],
)
def test_schemas(rows, schema):
    found = conversations("made", rows)
    assert (found.schema, found.conversations[0].messages) == (schema, ASKED)
    assert found.total == (2 if schema == "turn_table" else 1)


def test_systems_and_tools_ask():
    rows = [{"messages": [{"role": r, "content": r} for r in ("system", "tool")]}]
    (found,) = conversations("made", rows).conversations
    assert [message.answer for message in found.messages] == [False, False]


def test_flat_takes_the_first_answer_and_all_prompts():
    row = {"context": "c", "instruction": "i", "response": "r", "output": ""}
    (found,) = conversations("made", [row]).conversations
    assert found.messages == (Message(False, "i\nc"), Message(True, "r"))


@pytest.mark.parametrize(
    "rows, said",
    [
        ([], "holds no row"),
        ([{"body": "x"}], "no column of messages.*there are: body. Rename"),
        (
            [{"chat": "hi"}],
            "chat is text of length 2, must be a list of messages",
        ),
        ([{"chat": [3]}], "row-0: chat is 3, must be made of messages"),
        ([{"chat": [{"role": "x"}]}], "of messages with role and content"),
        ([{"chat": ["hi"]}, {"prompt": "x y z"}], "row-1: no chat, but prompt.*split"),
        ([{"chat": ["hi"]}, {"dialogue": ["x"], "chat": None}], "row-1: .* dialogue"),
        (
            [{"prompt": 3}],
            "row-0: prompt is 3, must be text that UTF-8 can hold",
        ),
        ([{"prompt": "\ud800"}], "must be text"),
        ([{"chat": ["hi \ud800"]}], "must be text"),
        ([{"prompt": [{"text": "hi \ud800"}]}], "must be text"),
        (
            [{"chat_id": [1], "role": "user", "text": "x"}],
            "a list of length 1, must",
        ),
        ([{"chat_id": "\ud800", "role": "user", "text": "x"}], "chat_id is .*, must"),
        ([*TURNS, {"role": "bot", "text": "x"}], "row-3: chat_id is None, must be"),
    ],
)
def test_rows_that_are_not_as_they_must_be(rows, said):
    with pytest.raises(InputError, match=said):
        conversations("made", rows)


def test_the_limit_counts_conversations():
    rows = [{"prompt": str(at)} for at in range(5)]
    found = conversations("made", rows, limit=2)
    assert (len(found.conversations), found.total) == (2, 5)
    assert profile(found).estimated_total_tokens == 5
    assert len(conversations("made", TURNS, limit=1).conversations) == 1
    with pytest.raises(InputError, match="a limit of 0 rows"):
        conversations("made", rows, limit=0)


def test_file_formats_hold_the_same(table, tmp_path):
    frame = polars.DataFrame(table)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    lines = [json.dumps(row) for row in table]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "a.json").write_text("[" + ",\n".join(lines) + "]")
    (tmp_path / "b.json").write_text(json.dumps({"data": table}, indent=1))
    wanted = conversations("made", table).conversations
    for path in sorted(tmp_path.iterdir()):
        assert read_dataset(path).conversations == wanted, path.name


def test_one_object_is_a_row(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"conversations": SAID}, indent=1))
    assert read_dataset(path).conversations[0].messages == ASKED


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("a.json", "[1]", "the row is 1, must be an object"),
        ("a.json", '{"prompt": 1,}', "line 1: no JSON"),
        ("a.jsonl", '{"prompt": "x"}\n{"prompt"', "line 2: no JSON"),
        ("a.csv", "", "cannot be read as CSV"),
        ("a.csv", "prompt\n", "holds no row"),
        ("a.csv", "prompt,prompt\nx,y\n", "two columns are called 'prompt'. Rename"),
        ("a.csv", 'prompt\nx\n"a\nb\n', "\\(line 3: a quote is not closed.*Mend it"),
        ("a.csv", "prompt\nx\na,b\n", "\\(line 3: 2 cells under 1 names\\). Mend"),
        ("a.json", '[{"prompt": "x",\n"prompt": "y"}]', "'prompt' occurs twice. Drop"),
        ("a.jsonl", '{"prompt": "x", "prompt": "y"}', "'prompt' occurs twice"),
        ("a.csv", 'chat\n"[{""a"":1,""a"":2}]"', "row-0: chat: field 'a' occurs twice"),
    ],
)
def test_files_that_are_not_as_they_must_be(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_dataset(path)
    assert "\n" not in str(error.value)


def test_a_hubs_data_set_is_streamed_to_its_limit(monkeypatch):
    taken = []

    def load_dataset(name, config, *, split, streaming):
        assert (name, config, split, streaming) == ("a/b", None, "test", True)
        for at in range(10**6):
            taken.append(at)
            yield {"prompt": str(at)}

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    found = read_hub("a/b", split="test", limit=3)
    assert (found.source, len(found.conversations), len(taken)) == ("hf:a/b", 3, 3)
    assert profile(found).estimated_total_tokens is None

    def broken(*given, **more):
        raise RuntimeError("no such split")

    fake.load_dataset = broken
    with pytest.raises(InputError, match="no such split.*download it"):
        read_hub("a/b")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'perc-kv\[datasets\]'"):
        read_hub("a/b")


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_short_name_is_a_data_set_of_the_hub(monkeypatch, name):
    """Without a network: the package that would ask for it is replaced."""
    asked = []

    def load_dataset(name, config, *, split, streaming):
        asked.append(name)
        yield {"prompt": "What is a block?"}

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    found = read_hub(name, limit=1)
    assert asked == [DATA_SETS[name].name] and "/" in asked[0]
    assert found.source == f"hf:{DATA_SETS[name].name}"
    read_hub("imdb", limit=1)  # a name of the hub's own
    assert asked[1] == "imdb"


def test_without_a_network_the_error_says_what_to_do(monkeypatch):
    def load_dataset(*given, **more):
        raise ConnectionError("Couldn't reach the hub\n(request id 17)\n")

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    said = r"hf:OpenAssistant/oasst1: cannot be read \(Couldn't reach the hub\)"
    with pytest.raises(InputError, match=said) as raised:
        read_hub("oasst1")
    assert "network" in str(raised.value) and "hf auth login" not in str(raised.value)
    with pytest.raises(InputError, match="lmsys-chat-1m: .*hf auth login"):
        read_hub("arena")


# Traffic


SYSTEM = Message(False, "You are a kind helper who knows of caches. ")


def talk(*texts: str) -> dict:
    said = [{"role": "system", "content": SYSTEM.text}]
    said += [
        {"role": ("user", "assistant")[at % 2], "content": text}
        for at, text in enumerate(texts)
    ]
    return {"messages": said}


TALKS = conversations(
    "made",
    [
        talk("what is a block", "sixteen tokens of text", "and a page", "the same"),
        talk("what is a token", "a piece of a word"),
        talk("good bye to all of you"),
    ],
)


def test_answers_that_nobody_asked_for_are_none():
    told = Message(True, "x")
    assert requests_of([told, told]) == []
    assert requests_of([told, SYSTEM, told, told]) == [(2, 2)]


def test_turns_hold_what_was_said_before():
    trace = trace_of_dataset(TALKS, block_tokens=2)
    assert trace.n_requests == profile(TALKS).requests == 4
    (long,) = [s for s in range(3) if (trace.session == s).sum() == 2]
    first, second = np.flatnonzero(trace.session == long)
    blocks = [trace.block[trace.start[r] : trace.stop[r]] for r in (first, second)]
    assert (blocks[1][: len(blocks[0])] == blocks[0]).all()
    estimates = [estimate_tokens(text) for text in (SYSTEM.text, "what is a block")]
    assert trace.input_tokens[first] == sum(estimates)
    assert trace.output_tokens[first] == estimate_tokens("sixteen tokens of text")
    begin = [trace.block[trace.start[r]] for r in range(4)]
    assert len(set(begin)) == 1  # the system prompt is everybody's
    assert trace.turn[second] == 2 and trace.arrival_s[second] > trace.arrival_s[first]


def test_the_same_seed_gives_the_same_trace():
    def drawn(seed):
        trace = trace_of_dataset(TALKS, requests=9, seed=seed)
        return trace.arrival_s.tolist(), trace.input_tokens.tolist()

    assert drawn(3) == drawn(3) != drawn(4)


def test_conversations_that_come_again_are_new_beyond_what_all_share():
    once = trace_of_dataset(TALKS, block_tokens=2)
    many = trace_of_dataset(TALKS, block_tokens=2, requests=400, sessions_per_s=5.0)
    assert many.n_requests == 400
    # Shared ones stay: the system prompt, and "what is a" of two conversations.
    shared = len(subwords(SYSTEM.text)) // 2
    whole = np.bincount(many.block[many.depth < shared])
    assert (whole > 0).sum() == shared
    per_talk = once.n_blocks / 3
    assert many.n_blocks > 0.5 * per_talk * len(np.unique(many.session))


def test_sessions_start_at_the_rate():
    rows = [{"prompt": f"question {at} of many"} for at in range(2000)]
    trace = trace_of_dataset(conversations("made", rows), sessions_per_s=4.0)
    assert trace.n_requests == 2000 and trace.arrival_s[-1] == pytest.approx(500, 0.1)


def test_a_tokenizers_ids_make_the_blocks():
    trace = trace_of_dataset(TALKS, lambda text: [len(w) for w in text.split()])
    assert trace.input_tokens.min() == len((SYSTEM.text + "what is a token").split())


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"requests": 0}, "0 requests; give 1 to"),
        ({"sessions_per_s": 0}, "a rate above 0"),
        ({"block_tokens": 0}, "a block of 0 tokens"),
        ({"seed": -1}, "seed is -1, must be a whole number from 0"),
    ],
)
def test_settings_out_of_range(settings, said):
    with pytest.raises(InputError, match=said):
        trace_of_dataset(TALKS, **settings)


def test_a_data_set_in_which_nobody_asks():
    rows = [{"messages": [{"role": "gpt", "content": "x"}]}]
    with pytest.raises(InputError, match="nobody asks"):
        trace_of_dataset(conversations("made", rows))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_their_recipe(name):
    """Word for word: arrival, prompt, response; drawn again outside of the bounds."""
    prompt, prompt_sd, response, response_sd = PRESETS[name]
    rng, now, wanted = random.Random(5), 0.0, []

    def tokens(mean, deviation, most):
        for _ in range(50):
            if 16 <= (n := int(rng.gauss(mean, deviation))) <= most:
                return n
        return mean

    for _ in range(200):
        now += rng.expovariate(2.0)
        asked = tokens(prompt, prompt_sd, 16_384)
        wanted.append((now, asked, tokens(response, response_sd, 4_096)))
    trace = trace_of_preset(name, requests=200, per_s=2.0, seed=5, block_tokens=32)
    first = wanted[0][0]
    found = zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)
    for (at, asked, answered), row in zip(found, wanted, strict=True):
        assert (at, asked, answered) == (pytest.approx(row[0] - first), *row[1:])
    assert (trace.stop - trace.start == trace.input_tokens // 32).all()
    assert (trace.prev == -1).all() and len(set(trace.session)) == 200


def test_presets_that_cannot_be():
    with pytest.raises(InputError, match="no preset is called 'x'. There are: share"):
        trace_of_preset("x")
    with pytest.raises(InputError, match="requests is 0"):
        trace_of_preset("code", requests=0)
    with pytest.raises(InputError, match="seed is -1, must be"):
        trace_of_preset("code", seed=-1)
    with pytest.raises(InputError, match="per_s is 0"):
        trace_of_preset("code", per_s=0.0)
    with pytest.raises(InputError, match="a block of 0 tokens"):
        trace_of_preset("code", block_tokens=0)


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_example_of_the_document_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    exec(compile(code, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out == "conversation_list 3 7.0 7\n100 164 132\n"
