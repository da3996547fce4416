"""`perc curve`: rows as in compare, LRU everywhere, and another tool's rules."""

import json

from tests.cli.conftest import DATA


def curve(perc_command, *flags):
    said = perc_command("curve", str(DATA / "mooncake.jsonl"), *flags, "--json")
    assert said.code == 0
    return json.loads(said.out)


def test_rows_are_those_of_compare(perc):
    flags = ("--policies", "lru,perc,belady", "--capacities", "3,8")
    said = perc("compare", str(DATA / "mooncake.jsonl"), *flags, "--json")
    assert curve(perc, *flags)["rows"] == json.loads(said.out)["rows"]


def test_all_gives_lru_at_every_capacity(perc):
    found = curve(perc, "--capacities", "all", "--policies", "lru,belady")
    lru = [row for row in found["rows"] if row["policy"] == "lru"]
    working_set = found["trace"]["distinct_blocks"]
    assert [row["capacity_blocks"] for row in lru] == list(range(1, working_set + 1))
    assert {row["policy"] for row in found["rows"]} == {"lru", "belady"}


def test_the_rules_of_kvcache_simulator(perc):
    found = curve(
        perc, "--policies", "belady,fifo", "--capacities", "3,5",
        "--semantics", "kvcache-simulator", "--warmup", "0",
    )  # fmt: skip
    assert "warm-up share 0.5" in found["definitions"]["counted"]
    bypassing = curve(
        perc, "--policies", "belady_bypass", "--capacities", "3,5", "--warmup", "0.5"
    )
    own = [row["block_hit_ratio"] for row in found["rows"] if row["policy"] == "belady"]
    assert own == [row["block_hit_ratio"] for row in bypassing["rows"]]


def test_unknown_rules_are_answered_with_the_known(perc):
    said = perc("curve", str(DATA / "mooncake.jsonl"), "--semantics", "theirs")
    assert said.code == 2
    assert "There are: perc, kvcache-simulator" in said.err


def test_the_table_has_a_line_a_capacity(perc):
    said = perc("curve", str(DATA / "mooncake.jsonl"), "--capacities", "3,8,16")
    assert said.code == 0
    lines = [line.split() for line in said.out.splitlines()]
    assert ["blocks", "lru", "perc", "belady*"] in lines
    assert [line[0] for line in lines if line[:1] and line[0].isdigit()] == [
        "3", "8", "16",
    ]  # fmt: skip


def test_samples_tell_their_error(perc):
    flags = ("--capacities", "16", "--policies", "lru", "--sample", "0.2")
    (row,) = curve(perc, *flags)["rows"]
    assert set(row) == {
        "policy", "capacity_blocks", "block_hit_ratio", "standard_error",
    }  # fmt: skip
    said = perc("curve", str(DATA / "mooncake.jsonl"), *flags)
    assert said.code == 0 and "+-" in said.out


def test_samples_that_do_not_fit_are_refused(perc):
    said = perc("curve", str(DATA / "mooncake.jsonl"), "--sample", "0.5")
    assert said.code == 2 and "at most 1 / samples" in said.err
