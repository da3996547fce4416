"""`perc compare`: answers in the form that was promised."""

import json
import os
import pty
import signal
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, Said, start

ROW = [
    "policy",
    "capacity_blocks",
    "block_hit_ratio",
    "token_hit_ratio",
    "recompute_tokens",
    "recompute_s",
    "gap_closed",
]
SMALL = ("--policies", "lru,belady", "--capacities", "8,10")


@pytest.fixture(scope="module")
def default_run() -> Said:
    """`perc compare` and nothing else, as most people first call it."""
    process = start("compare")
    out, err = process.communicate(timeout=120)
    return Said(process.returncode, out, err)


def test_without_a_trace_it_finishes_and_says_what_to_do_next(default_run):
    assert default_run.code == 0
    assert "making synthetic chat traffic" in default_run.err
    assert "done in" in default_run.err and "Traceback" not in default_run.err
    assert "Next: perc compare YOUR_TRACE" in default_run.words
    assert "perc compare --help" in default_run.words


def test_the_default_run_fits_80_columns(default_run):
    assert max(len(line.rstrip()) for line in default_run.out.splitlines()) <= 80
    assert "…" not in default_run.out


def test_the_default_run_sums_up(default_run):
    assert "Largest gain at" in default_run.words
    assert "LRU needs" in default_run.words and "to match it" in default_run.words
    assert "lfu loses to LRU at" in default_run.words
    for policy in ("lru", "fifo", "lfu", "perc", "belady*"):
        assert default_run.out.split().count(policy) >= 5
    assert "recompute_s: seconds to prefill" in default_run.words
    assert "counted: requests 1 to 12031" in default_run.words


def test_json_is_exactly_one_object_of_the_promised_keys(perc, mooncake):
    said = perc("compare", mooncake, *SMALL, "--json")
    assert said.code == 0
    found = json.loads(said.out)
    assert list(found) == ["trace", "definitions", "rows"]
    assert [list(row) for row in found["rows"]] == [ROW] * 4
    assert found["trace"]["source"] == str(mooncake)
    assert [(r["capacity_blocks"], r["policy"]) for r in found["rows"]] == [
        (8, "lru"),
        (8, "belady"),
        (10, "lru"),
        (10, "belady"),
    ]
    assert "Best" not in said.out and "done in" in said.err


def test_json_and_table_tell_the_same(perc, mooncake):
    rows = json.loads(perc("compare", mooncake, *SMALL, "--json").out)["rows"]
    table = perc("compare", mooncake, *SMALL).out
    for row in rows:
        assert f"{row['block_hit_ratio']:.2%}" in table
        assert f"{row['token_hit_ratio']:.2%}" in table


def test_table_fits_80_columns_and_cuts_no_number(perc, mooncake):
    long = "perc_published:horizon_s=10:default_rate_per_s=0.01:shortest_gap_s=0.1"
    said = perc("compare", mooncake, "--policies", f"lru,{long}", "--capacities", "16")
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80
    assert "54.29%" in said.out and "60.52%" in said.out and "…" not in said.out
    assert "no gap" in said.out


def test_help_lists_every_flag_and_policy(perc):
    said = perc("compare", "--help")
    assert said.code == 0
    for flag in ("policies", "capacities", "warmup", "json", "out", "format"):
        assert f"--{flag}" in said.out
    for word in ("lru", "perc_published", "belady_bypass", "synthetic", "5%"):
        assert word in said.words


def test_policy_parameters_name_the_rows(perc, mooncake):
    policies = "perc_decay:tau_s=60,perc_decay:tau_s=0:cost_weight=0.5,perc"
    said = perc("compare", mooncake, "--policies", policies, "--json")
    names = [row["policy"] for row in json.loads(said.out)["rows"]]
    assert names[:3] == policies.split(",")


def test_switches_and_words_are_parameters_too(perc, mooncake):
    names = "gdsf:retained=true,gdsf:retained=0,priority:merge=override"
    said = perc("compare", mooncake, "--policies", names, "--capacities", "4", "--json")
    rows = json.loads(said.out)["rows"]
    assert [row["policy"] for row in rows] == names.split(",")


def test_parameters_change_what_runs(perc, tmp_path):
    trace = tmp_path / "chat.parquet"
    perc("make", "chat", "--requests", "300", "--out", trace)
    policies = "lru,perc_decay:tau_s=0,perc_decay:tau_s=500"
    said = perc(
        "compare", trace, "--policies", policies, "--capacities", "5%", "--json"
    )
    lru, zero, long = (row["block_hit_ratio"] for row in json.loads(said.out)["rows"])
    assert zero == lru != long


def test_warm_up_is_passed_on(perc, mooncake):
    said = perc("compare", mooncake, *SMALL, "--warmup", "0.5", "--json")
    counted = json.loads(said.out)["definitions"]["counted"]
    assert counted.startswith("requests 6 to 10 (warm-up share 0.5)")


def test_flags_from_a_file_give_way_to_later_ones(perc, mooncake, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f"trace = '{mooncake}'\n"
        'policies = ["lru", "lfu"]\ncapacities = [8, 0.5]\njson = true\nwarmup = 0.5\n'
    )
    rows = json.loads(perc("compare", f"@{file}").out)["rows"]
    assert [r["policy"] for r in rows] == ["lru", "lfu"]  # 8 is half of 16: once
    rows = json.loads(perc("compare", f"@{file}", "--capacities", "9").out)["rows"]
    assert {r["capacity_blocks"] for r in rows} == {9}


def test_a_trace_without_priorities_is_told(perc, mooncake):
    said = perc("compare", mooncake, "--policies", "priority", "--capacities", "8")
    assert "note: the trace has no priorities" in said.err
    said = perc("compare", mooncake, *SMALL)
    assert "priorities" not in said.err


def test_capacities_below_the_longest_request_are_told(perc, mooncake):
    said = perc("compare", mooncake, "--policies", "lru", "--capacities", "0,3,7,16")
    assert said.code == 0
    assert (
        "note: caches of 0, 3 blocks are smaller than the longest request (7 blocks)"
        in said.err
    )
    assert "keeps its first blocks" in said.err


def test_a_capacity_of_0_hits_nothing(perc, mooncake):
    said = perc("compare", mooncake, "--capacities", "0", "--json")
    rows = json.loads(said.out)["rows"]
    assert {row["block_hit_ratio"] for row in rows} == {0.0}
    assert {row["recompute_tokens"] for row in rows} == {16073}
    assert {row["gap_closed"] for row in rows} == {None}


def test_unsorted_times_are_sorted_and_told(perc, mooncake, tmp_path):
    lines = mooncake.read_text().splitlines()
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("\n".join([lines[-1], *lines[:-1]]) + "\n")
    said = perc("compare", shuffled, *SMALL, "--json")
    assert f"note: {shuffled}: 1 request(s) arrive before" in said.err
    rows = json.loads(perc("compare", mooncake, *SMALL, "--json").out)["rows"]
    assert json.loads(said.out)["rows"] == rows


def test_an_empty_synthetic_trace_is_compared(perc, tmp_path):
    trace = tmp_path / "none.parquet"
    perc("make", "zipf", "--requests", "0", "--out", trace)
    said = perc("compare", trace, "--json")
    assert said.code == 0
    assert json.loads(said.out)["trace"]["requests"] == 0


@pytest.mark.parametrize("name", ["bailian.jsonl", "blocks.jsonl", "ragpulse"])
def test_other_formats_are_compared(perc, name):
    said = perc("compare", DATA / name, "--policies", "lru", "--capacities", "100")
    assert said.code == 0 and "an infinite cache hits" in said.words


def test_a_closed_pipe_leaves_no_traceback(mooncake):
    for flags in ([], ["--json"]):
        process = start("compare", mooncake, *SMALL, *flags)
        assert process.stdout and process.stderr
        process.stdout.close()  # as `| head` does when it has seen enough
        err = process.stderr.read()
        process.stderr.close()
        process.wait(timeout=60)
        assert "Traceback" not in err and "Exception" not in err


def test_ctrl_c_exits_with_130():
    process = start("compare")
    assert process.stderr
    first = process.stderr.readline()
    assert "no trace given" in first
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == ("", "perc: interrupted\n")


def test_progress_goes_to_the_terminal_and_not_into_the_answer(mooncake):
    ours, theirs = pty.openpty()
    process = start("compare", mooncake, *SMALL, "--json", stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"replaying" in seen and b"done in" in seen
    assert list(json.loads(out)) == ["trace", "definitions", "rows"]


def test_the_installed_command_works_with_a_stream_closed(mooncake):
    perc = Path(sysconfig.get_path("scripts")) / "perc"
    for closed in (">&-", "2>&-"):
        line = f"exec '{perc}' compare '{mooncake}' --policies lru --json {closed}"
        process = subprocess.run(
            line, shell=True, capture_output=True, text=True, timeout=60
        )
        assert process.returncode == 0, process.stderr
        assert "Traceback" not in process.stderr
        assert not process.stdout or len(json.loads(process.stdout)) == 3


def test_policies_are_listed_with_their_parameters(perc):
    said = perc("policies")
    assert said.code == 0
    assert "tau_s=200.0" in said.out and "belady_bypass" in said.out


def test_version(perc):
    said = perc("--version")
    assert said.code == 0 and said.out.startswith("perc ")
