"""`perc lab` as a person runs it: exactly one JSON object on stdout."""

import json

import pytest


def printed(said):
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def test_the_usual_scenario(perc):
    found = printed(perc("lab"))
    assert list(found) == ["passes"]
    assert list(found["passes"][2].items()) == [
        ("order", "rev"),
        ("gpu_hits", 4),
        ("cpu_hits", 0),
        ("misses", 6),
        ("hit_docs", [9, 8, 7, 6]),
    ]
    words = ("--gpu", 21520, "--docs", 10, "--tokens", 5011, "--passes", "fwd,fwd,rev")
    assert printed(perc("lab", *words, "--cpu", 0)) == found


def test_cliffs(perc):
    assert printed(perc("lab", "cliff"))["50110"] == 10
    scan = ("--scan", "30065,30066")
    assert printed(perc("lab", "cpu-cliff", "--exclusive", *scan)) == {
        "30065": 10,
        "30066": 0,
    }
    assert printed(perc("lab", "cpu-cliff"))["56000"] == 0


def test_blocks_and_seconds(perc):
    plain = printed(perc("lab", "--cpu", 56000))["passes"]
    timed = printed(perc("lab", "--cpu", 56000, "--model", "qwen2.5-1.5b"))["passes"]
    assert [len(row.pop("ttft_s")) for row in timed] == [10, 10, 10]
    assert timed == plain
    with_host = ("lab", "--cpu", 56000, "--model", "qwen2.5-1.5b")
    for words in (("--card", "h100"), ("--host-link", "pcie3")):
        assert printed(perc(*with_host, *words)) != printed(perc(*with_host))
    cut = printed(perc("lab", "--block", 16))["passes"][2]
    assert cut["documents"][4] == {"doc": 5, "gpu_tokens": 1488, "cpu_tokens": 0}


def test_policies_and_order_change_something(perc):
    base = printed(perc("lab", "--passes", "fwd,fwd,fwd"))
    for words in (["--policy", "mru"], ["--cpu", 56000], ["--gpu", 60000]):
        assert printed(perc("lab", "--passes", "fwd,fwd,fwd", *words)) != base


def test_summarize_writes_a_file(perc, tmp_path):
    source, target = tmp_path / "ttft.jsonl", tmp_path / "out.json"
    row = {"pass": "pass1-cold", "doc": 0, "doc_tokens": 5011, "total_ms": 20}
    lines = [
        json.dumps(row | {"config": config, "ttft_ms": ms})
        for config, ms in (("baseline", 10.04), ("lmcache", 1.04))
    ]
    source.write_text("\n\n".join(lines))
    found = printed(perc("lab", "summarize", source, target))
    assert json.loads(target.read_text()) == found
    assert found["ratio"]["pass1-cold"] == {"p50": 9.65, "mean": 9.65}


@pytest.mark.parametrize(
    "words, message",
    [
        (["--passes", "up"], "no pass 'up'"),
        (["--docs", 0], "docs is 0"),
        (["cliff", "--scan", "a"], "--scan a: give whole numbers"),
        (["cliff", "x.jsonl"], "reads no file: x.jsonl"),
        (["summarize"], "takes two files"),
        (["summarize", "gone.jsonl", "o"], "gone.jsonl"),
        (["--model", "gpt-9"], "gpt-9"),
        (["--block", 16, "--policy", "mru"], "kept by lru"),
        (["--scan", "zzz"], "--scan zzz changes nothing for perc lab scenario"),
        (["--card", "h100"], "--card h100 changes nothing for a lab without seconds"),
        (["--host-link", "zzz"], "give --model as well"),
        (["cliff", "--model", "gpt-9"], "--model gpt-9 changes nothing"),
        (["--exclusive"], "--exclusive changes nothing for a lab without host memory"),
        (["cliff", "--gpu", 5], "--gpu 5 changes nothing for perc lab cliff"),
        (["cpu-cliff", "--cpu", 5], "--cpu 5 changes nothing"),
        (["cpu-cliff", "--block", 16], "--block 16 changes nothing"),
        (["summarize", "a", "b", "--exclusive"], "--exclusive changes nothing"),
    ],
)
def test_bad_input(refused, words, message):
    assert message in refused("lab", *words).words
