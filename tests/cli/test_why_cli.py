"""`perc compare --why`: the cause of every miss, beside the comparison."""

import json

import pytest

SMALL = ("--policies", "lru,slru,belady", "--capacities", "8,10")


def test_the_causes_add_up_to_what_the_rows_recompute(perc, mooncake):
    found = json.loads(perc("compare", mooncake, *SMALL, "--why", "--json").out)
    assert list(found) == ["trace", "definitions", "rows", "misses"]
    whys = found["misses"]["rows"]
    assert [(why["policy"], why["capacity_blocks"]) for why in whys] == [
        (row["policy"], row["capacity_blocks"]) for row in found["rows"]
    ]
    for why, row in zip(whys, found["rows"], strict=True):
        missed = sum(cause["tokens"] for cause in why["misses"].values())
        assert missed == row["recompute_tokens"]
        assert why["hit_tokens"] + missed == why["prompt_tokens"] == 16_073
    assert set(found["misses"]["definitions"]) >= set(whys[0]["misses"])


def test_the_table_says_why_and_what_the_causes_mean(perc, mooncake):
    said = perc("compare", mooncake, *SMALL, "--why")
    assert said.code == 0
    assert "Why it missed, % of prompt tokens" in said.out
    assert "cold: never seen before in the trace: no cache helps." in said.words
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80
    assert "Why it missed" not in perc("compare", mooncake, *SMALL).out


@pytest.mark.parametrize("by", ["kind", "turn"])
def test_by_kind_or_turn(perc, mooncake, by):
    said = perc("compare", mooncake, *SMALL, "--why-by", by, "--json")
    rows = json.loads(said.out)["misses"]["rows"]
    assert "all" not in {why["group"] for why in rows}
    lru = [why for why in rows if (why["policy"], why["capacity_blocks"]) == ("lru", 8)]
    assert sum(why["prompt_tokens"] for why in lru) == 16_073


def test_another_grouping_is_refused(refused, mooncake):
    refused("compare", mooncake, "--why-by", "session")
