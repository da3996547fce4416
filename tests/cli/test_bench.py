"""`perc bench`, as a person would call it."""

import json

import pytest

from perc.cachepilot.workloads import NAMES

QUICK = ("--requests", 40, "--seeds", 2, "--vram-gib", 12)
R1 = """
mode = "estimated"
requests = 1000
vram-gib = 16
concurrent = 48
policies = ["perc", "lru", "priority"]
"""


@pytest.mark.parametrize("command", ["bench", "compare"])
def test_published_table_from_a_file(perc, tmp_path, command):
    """48 sessions, from TOML: no option of CachePilot reaches 48."""
    (tmp_path / "r1.toml").write_text(R1)
    said = perc(command, f"@{tmp_path / 'r1.toml'}")
    assert said.code == 0
    assert "ESTIMATED" in said.words
    for digits in ("1,011.820409", "1,350.780454", "1,039.380127"):
        assert digits in said.out
    for events in (" 991 ", " 975 ", " 993 "):
        assert events in said.out


def test_published_table_as_json(perc, tmp_path):
    (tmp_path / "r1.toml").write_text(R1)
    said = perc("bench", f"@{tmp_path / 'r1.toml'}", "--variant", "seeded", "--json")
    found = json.loads(said.out)
    assert "ESTIMATED" in found["note"]
    assert [row["evictions"] for row in found["rows"]] == [971, 975, 994]


def test_compare_and_bench_estimate_the_same(perc):
    words = (
        "--mode",
        "estimated",
        "--seeds",
        2,
        "--workload",
        "chat",
        "--vram-gib",
        16,
    )
    said = [perc(command, *words, "--json") for command in ("bench", "compare")]
    assert said[0].code == said[1].code == 0
    assert said[0].out == said[1].out
    assert len(json.loads(said[0].out)["rows"]) == 10


@pytest.mark.parametrize(
    "flags",
    [
        ("--workload", "chat"),
        ("--requests", "150"),
        ("--vram-gib", "14"),
        ("--pinned-share", "0.5"),
        ("--concurrent", "20"),
        ("--kv", "int8"),
        ("--variant", "seeded"),
        ("--seed", "1"),
        ("--seeds", "2"),
    ],
    ids=" ".join,
)
def test_every_flag_of_an_estimate_changes_something(perc, flags):
    base = ("compare", "--mode", "estimated", "--requests", 200, "--vram-gib", 16)
    base += ("--concurrent", 48, "--json")
    assert perc(*base).out != perc(*base, *flags).out


@pytest.mark.parametrize(
    "words, answer",
    [
        (("x.jsonl", "--mode", "estimated"), "x.jsonl: not read in --mode estimated"),
        (("--mode", "estimated", "--why"), "--why changes nothing"),
        (("--mode", "estimated", "--out", "o"), "--out o changes nothing"),
        (
            ("--mode", "estimated", "--rules", "r.toml"),
            "--rules r.toml changes nothing",
        ),
        (("--mode", "estimated", "--capacities", "8"), "or take --mode replay"),
        (("--mode", "estimated", "--block-tokens", "8"), "--block-tokens 8 changes"),
        (("--mode", "estimated", "--policies", "belady"), "there are perc, lru"),
        (("--mode", "estimated", "--policies", ","), "give such as perc,lru"),
        (("--mode", "estimated", "--seeds", "0"), "seeds is 0"),
        (("x.jsonl", "--vram-gib", "3"), "--vram-gib 3.0 changes nothing"),
        (("a", "b", "--seed", "3"), "or take --mode estimated"),
        (("a", "b", "--json"), "--json changes nothing for two runs"),
        (("a", "b", "--warmup", "0.5"), "--warmup 0.5 changes nothing for two runs"),
    ],
)
def test_compare_refuses_what_is_of_the_other_mode(refused, words, answer):
    assert answer in refused("compare", *words).words


def test_realised_is_the_default(perc):
    said = perc("bench", *QUICK)
    assert said.code == 0
    for name in ("perc", "lru", "priority", "mru", "largest", "random"):
        assert f"\n {name} " in said.out or f"\n{name} " in said.out
    assert "perc loses" in said.words or "Nothing is decided" in said.words
    assert "…" not in said.out  # it fits into 80 columns


def test_realised_as_json(perc):
    found = json.loads(perc("bench", *QUICK, "--json", "--policies", "lru").out)
    assert found["equal_work"] is True
    assert [(row["policy"], row["seed"]) for row in found["rows"]] == [
        ("perc", 42),
        ("perc", 43),
        ("lru", 42),
        ("lru", 43),
    ]
    assert {row["completed"] for row in found["rows"]} == {40}


def test_other_tables_fit(perc):
    blocks = perc("bench", "blocks")
    assert "1,169.173253" in blocks.out and "5,659.718798" in blocks.out
    assert "ESTIMATED" in blocks.words
    thrash = perc("bench", "--mode", "thrash", "--requests", 20, "--concurrent", 48)
    estimated = perc("bench", "--mode", "estimated", "--vram-gib", 16)
    for said in (blocks, thrash, estimated):
        assert said.code == 0
        assert "…" not in said.out


@pytest.mark.parametrize("name", NAMES)
def test_every_workload(perc, name):
    assert perc("bench", *QUICK, "--policies", "lru", "--workload", name).code == 0


@pytest.mark.parametrize(
    "words, names",
    [
        (("--workload", "prose"), "longctx"),
        (("--policies", "garbage"), "largest, priority, random"),
        (("--policies", ","), "perc,lru"),
        (("--batch", "garbage"), "low_latency"),
        (("--admission", "maybe"), "fits"),
        (("--kv", "int3"), "fp8"),
        (("--card", "abacus"), "h100"),
        (("--seeds", "0"), "seeds"),
        (("--seeds", "1"), "interval"),
        (("--spike-at", "300"), "below"),
        (("--variant", "seeded"), "changes nothing"),
        (("--mode", "thrash", "--batch", "adaptive"), "changes nothing"),
        (("--mode", "estimated", "--card", "h100"), "changes nothing"),
        (("--mode", "estimated", "--policies", "random"), "largest, priority."),
        (("--mode", "estimated", "--rate", "5"), "--rate 5.0 changes nothing"),
        (("--mode", "estimated", "--spike-at", "3"), "or take --mode realised"),
        (("--mode", "thrash", "--spike-at", "3"), "--spike-at 3 changes nothing"),
        (
            ("--mode", "thrash", "--variant", "seeded"),
            "changes nothing for mode thrash",
        ),
        (("--spike-multiplier", "2"), "give --spike-at as well"),
        (("blocks", "--vram-gib", "3"), "blocks, which takes"),
        (("blocks", "--mode", "thrash"), "--mode thrash changes nothing"),
        (("blocks", "--policies", "lru"), "--policies lru changes nothing"),
        (("--vram-gib", "0.01"), "memory"),
    ],
)
def test_bad_input(refused, words, names):
    assert names in refused("bench", *words).words
