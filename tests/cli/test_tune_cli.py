"""`perc tune`: the table, JSON, the next command, and what is refused."""

import json
import shlex

import pytest

from perc.cli.tune import parse_space
from perc.errors import InputError
from perc.tune import Range

KEYS = [
    "trace",
    "definitions",
    "policy",
    "parameters",
    "defaults",
    "rungs",
    "judged",
]
FEW = ("--samples", "6", "--capacities", "40,150", "--bootstrap", "50")


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A file of a few minutes of chat."""
    import perc

    path = tmp_path_factory.mktemp("traces") / "chat.parquet"
    perc.save(perc.make("chat", requests=300), path)
    return path


def test_json_is_one_object_of_the_promised_keys(perc, chat):
    said = perc("tune", chat, "perc_decay", *FEW, "--json")
    assert said.code == 0 and "done in" in said.err
    found = json.loads(said.out)
    assert list(found) == KEYS
    assert set(found["parameters"]) == {"tau_s", "cost_weight"}
    contestants = [row["contestant"] for row in found["judged"]["rows"]]
    assert contestants == ["lru", "default", "tuned", "belady"] * 2
    assert found["trace"]["training_requests"] == 150


def test_the_table_says_whether_it_is_worth_it(perc, chat):
    said = perc("tune", chat, "perc_decay", *FEW)
    assert max(len(line.rstrip()) for line in said.out.splitlines()[:-1]) <= 80
    assert "…" not in said.out
    assert "Chosen on the training part: tau_s = " in said.words
    assert any(
        word in said.words
        for word in ("Worth it", "Not worth it", "Nothing better than the default")
    )
    assert "Over LRU, tuned perc_decay is at" in said.words
    assert "never used for the choice" in said.words
    assert "Not covered: sessions displacing each other" in said.words


def test_the_next_command_gives_the_same_ratios(perc, chat):
    flags = ("tune", chat, "perc_decay", *FEW, "--objective", "block_hit_ratio")
    rows = json.loads(perc(*flags, "--json").out)["judged"]["rows"]
    line = perc(*flags).out.rstrip().splitlines()[-1]
    assert line.startswith("Next: perc compare ")
    said = perc(*shlex.split(line)[2:], "--json")
    found = json.loads(said.out)["rows"]
    shown = [row["block_hit_ratio"] for row in rows]
    assert [row["block_hit_ratio"] for row in found] == shown


def test_a_space_from_the_command_line(perc, chat):
    space = "tau_s=10:20:log,cost_weight=0.5:0.5"
    said = perc("tune", chat, "perc_decay", *FEW, "--space", space, "--json")
    found = json.loads(said.out)
    expected = {"tau_s": "10 to 20, log", "cost_weight": "0.5 to 0.5"}
    assert found["definitions"]["space"] == expected
    drawn = found["parameters"] != found["defaults"]
    assert not drawn or 10 <= found["parameters"]["tau_s"] <= 20


def test_a_cache_that_holds_the_training_part_is_told(perc, chat):
    said = perc("tune", chat, "perc_decay", "--samples", "1", "--capacities", "40,100%")
    assert "nothing can be learned at that size" in said.err


def test_spaces_are_read():
    assert parse_space("a=1:2, b=1e-3:1:log") == {
        "a": Range(1, 2),
        "b": Range(1e-3, 1, log=True),
    }


@pytest.mark.parametrize(
    "text", ["a", "a=1", "=1:2", "a=1:x", "a=1:2:lin", "a=2:1", "a=0:1:log", ""]
)
def test_what_is_no_space_is_refused(text):
    with pytest.raises(InputError, match="--space"):
        parse_space(text)


@pytest.mark.parametrize(
    "words, said",
    [
        (["best"], "no policy is called 'best'"),
        (["lru"], "It has no parameters to tune"),
        (["perc_decay", "--space", "tau=1:2"], "no number 'tau'"),
        (["perc_decay", "--train", "1"], "training share of 1"),
        (["perc_decay", "--objective", "speed"], "no objective 'speed'"),
        (["perc_decay", "--samples", "0"], "samples is 0"),
    ],
)
def test_bad_input_is_refused(refused, mooncake, words, said):
    assert said in refused("tune", mooncake, *words).words


def test_help_explains_the_flags(perc):
    said = perc("tune", "--help")
    assert said.code == 0
    for word in ("--space", "--samples", "--objective", "token_hit_ratio"):
        assert word in said.words
