"""`perc compare --rules FILE`, as a person would run it."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "retention.md"

RULES = """
pin_budget = 0.25

[[tenants]]
name = "first"
session = { to = 2 }
quota = 0.5

[[rules]]
name = "head [/b]"
tokens = { to = 1024 }
pin = true

[[rules]]
turn = { from = 2 }
ttl_s = 60
"""
SMALL = ("--policies", "lru,lfu", "--capacities", "8")


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


def test_tables_with_and_without(perc, mooncake, rules):
    said = perc("compare", mooncake, *SMALL, "--rules", rules)
    assert said.code == 0
    for words in ("without", "rule head [/b]", "pinned blocks", "tenant first", "peak"):
        assert words in said.words
    assert "lru: the rules " in said.words
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80


def test_json_says_the_same(perc, mooncake, rules):
    said = perc(
        "compare",
        mooncake,
        *SMALL,
        "--rules",
        rules,
        "--bytes-per-token",
        "131072",
        "--json",
    )
    answer = json.loads(said.out)
    assert list(answer) == ["trace", "definitions", "rows"]
    row = answer["rows"][0]
    assert (row["policy"], row["capacity_blocks"]) == ("lru", 8)
    assert row["rules"][0]["pinned_blocks"] == 2
    assert "pin_gib_s" in row["rules"][0]
    by = [(one["by"], one["name"]) for one in row["classes"]]
    assert by[:3] == [
        ("all", "all requests"),
        ("rule", "head [/b]"),
        ("rule", "rule 2"),
    ]
    plain = json.loads(perc("compare", mooncake, *SMALL, "--json").out)["rows"][0]
    assert row["without"]["block_hit_ratio"] == plain["block_hit_ratio"]


def test_out_has_the_same_and_a_page(perc, mooncake, rules, tmp_path):
    folder, page = tmp_path / "run", tmp_path / "page.html"
    said = perc(
        "compare",
        mooncake,
        *SMALL,
        "--rules",
        rules,
        "--why",
        "--out",
        folder,
        "--json",
    )
    answer = json.loads(said.out)
    results = pl.read_parquet(folder / "results.parquet")
    classes = pl.read_parquet(folder / "classes.parquet")
    for row, answered in zip(results.to_dicts(), answer["rows"], strict=True):
        assert row["policy"] == answered["policy"]
        assert row["block_hit_ratio"] == answered["with_rules"]["block_hit_ratio"]
        assert row["without_recompute_s"] == answered["without"]["recompute_s"]
    tenants = classes.filter(pl.col("by") == "tenant", pl.col("policy") == "lfu")
    assert tenants["name"].to_list() == ["(no tenant)", "first"]
    about = json.loads((folder / "run.json").read_text())
    assert about["rules"] == rules.read_text()
    assert about["command"][-6:-4] == ["--rules", str(rules)]
    perc("report", folder, "--out", page)
    for words in ("By tenant", "By rule", "Why prompts missed"):
        assert words in page.read_text()
    assert perc("compare", folder, folder).code == 0


def test_check_replays_nothing(perc, mooncake, rules):
    said = perc("compare", "--rules", rules, "--check")
    assert said.code == 0 and "2 rule(s), 1 tenant(s), no mistakes" in said.out
    said = perc("compare", mooncake, "--rules", rules, "--check")
    assert "rule head [/b]: 10 of 10 requests" in said.words
    assert "blocks hits" not in said.words


def test_a_mistake_names_file_rule_key_and_value(refused, mooncake, rules):
    rules.write_text(RULES.replace("ttl_s = 60", "ttl_s = -1"))
    for flags in ([], ["--check"]):
        said = refused("compare", mooncake, "--rules", rules, *flags)
        assert f"{rules}: rules[2].ttl_s is -1; give seconds above 0" in said.err


def test_no_toml_and_no_file(refused, tmp_path, rules):
    rules.write_text("rules = yes")
    assert f"{rules}: Invalid value" in refused("compare", "--rules", rules).err
    said = refused("compare", "--rules", tmp_path / "gone.toml")
    assert "gone.toml" in said.err and "Give a TOML file of rules" in said.err


@pytest.mark.parametrize(
    "flags, said_of_it",
    [
        (["--policies", "arc"], "'arc' looks at the cache to choose"),
        (["--check", "--out", "runs"], "--check replays nothing, so it writes no"),
        (["--bytes-per-token", "0"], "0.0 bytes per token; give 2 * layers"),
    ],
)
def test_what_does_not_go_with_rules(refused, mooncake, rules, flags, said_of_it):
    said = refused("compare", mooncake, "--rules", rules, *flags)
    assert said_of_it in said.err


@pytest.mark.parametrize("flags", [["--check"], ["--bytes-per-token", "9"]])
def test_flags_of_rules_need_rules(refused, mooncake, flags):
    said = refused("compare", mooncake, *flags)
    assert f"{flags[0]} needs a file of rules: --rules rules.toml" in said.err


def test_without_names_those_policies_run_that_rules_can_stand_above(
    perc, mooncake, rules
):
    said = perc("compare", mooncake, "--capacities", "8", "--rules", rules, "--json")
    names = [row["policy"] for row in json.loads(said.out)["rows"]]
    assert names == ["lru", "fifo", "lfu", "perc_decay", "belady"]


def test_why_has_the_rules_among_the_causes(perc, tmp_path):
    """A pinned block that nobody wants takes the room of one that returns."""
    trace, rules = tmp_path / "trace.jsonl", tmp_path / "rules.toml"
    prompts = [[0], [1, 2], [1, 2]]
    rows = [
        {
            "timestamp": 1000 * i,
            "input_length": 512 * len(ids),
            "output_length": 1,
            "hash_ids": ids,
        }
        for i, ids in enumerate(prompts)
    ]
    trace.write_text("\n".join(map(json.dumps, rows)))
    rules.write_text("pin_budget = 1.0\n[[rules]]\nsession = { to = 0 }\npin = true\n")
    flags = ["--policies", "lru", "--capacities", "2", "--rules", rules, "--why"]
    answer = json.loads(perc("compare", trace, *flags, "--json").out)
    (row,), (why,) = answer["rows"], answer["misses"]["rows"]
    assert row["without"]["block_hit_ratio"] == 2 / 5
    assert row["with_rules"]["block_hit_ratio"] == 1 / 5
    assert {k: v["blocks"] for k, v in why["misses"].items() if v["blocks"]} == {
        "retention": 1,
        "cold": 3,
    }
    assert "miss: miss: miss: miss:" in perc("compare", trace, *flags).words


def test_rules_that_select_nothing_are_told(perc, mooncake, rules):
    rules.write_text('[[rules]]\nkind = "tool_use"\nttl_s = 5\n')
    said = perc("compare", mooncake, *SMALL, "--rules", rules)
    assert said.code == 0
    assert "note: rule 'rule 1' selects no request" in said.err
    assert "which has the kinds" in said.err


def test_an_empty_trace_has_nothing_to_report(perc, tmp_path, rules):
    trace = tmp_path / "none.parquet"
    perc("make", "zipf", "--requests", "0", "--out", trace)
    assert perc("compare", trace, "--rules", rules).code == 0
    assert perc("compare", trace, "--rules", rules, "--json").code == 0


@pytest.mark.skipif(not DOCUMENT.exists(), reason="run away from a checkout")
@pytest.mark.parametrize("workload", ["agent", "chat", "rag"])
def test_the_documented_example_runs(perc, tmp_path, workload):
    (text,) = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    rules, trace = tmp_path / "rules.toml", tmp_path / "trace.parquet"
    rules.write_text(text)
    perc("make", workload, "--requests", "60", "--out", trace)
    said = perc("compare", trace, *SMALL, "--rules", rules)
    assert said.code == 0 and "rule system prompt" in said.words
    assert ("selects no request" in said.err) == (workload != "agent")
