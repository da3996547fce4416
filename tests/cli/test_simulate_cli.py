"""`perc simulate` as a person runs it."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest

import perc as core
from perc.cli.serving_setup import order_note
from perc.policies import store
from perc.policies.learned import learned
from perc.traces import save
from tests.policies.test_learned import network


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A small trace of agents."""
    file = tmp_path_factory.mktemp("traces") / "agent.parquet"
    save(core.make("agent", requests=60, seed=1), file)
    return str(file)


def figures(said):
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_the_table_has_a_row_a_policy_and_load(perc, path):
    said = perc("simulate", path, "--load", "1,8", "--slo-ttft", "5")
    assert said.code == 0, said.err
    for words in (
        "llama-3.1-8b on 1 x h100",
        "TTFT <= 5 s",
        "Simulated: costs of a roofline",
    ):
        assert words in said.words
    assert said.out.count("lru") == 2
    assert said.out.count("perc_decay") == 2


def test_json_tells_every_figure_with_its_sample(perc, path):
    found = figures(perc("simulate", path, "--policies", "lru", "--json"))
    (run,) = found["runs"]
    assert run["submitted"] == run["completed"] + run["rejected"] == 60
    assert run["ttft_s_n"] == 60
    assert run["ttft_s_p50"] <= run["ttft_s_p99"]
    assert run["ttft_p50_s_low"] <= run["ttft_s_p50"] <= run["ttft_p50_s_high"]
    assert found["server"]["order"] == "fcfs"


def test_classes_share_the_requests_out(perc, path):
    words = ("simulate", path, "--policies", "lru", "--by", "turn")
    (run,) = figures(perc(*words, "--json"))["runs"]
    counts = [
        v for k, v in run.items() if k.startswith("ttft_s_of_") and k[-2:] == "_n"
    ]
    assert len(counts) > 1 and sum(counts) == 60
    assert "TTFT p50, s" in perc(*words).words


def test_policies_that_price_idle_blocks(perc, path):
    words = ("simulate", path, "--blocks", 250, "--json", "--policies")
    lru, aged, one = figures(perc(*words, "lru,perc,perc:smoothing=1"))["runs"]
    assert lru["completed"] == aged["completed"] == 60
    assert lru["evictions"] > 0 and aged["evictions"] > 0
    assert aged["token_hit_ratio"] != lru["token_hit_ratio"]
    assert one["policy"] == "perc:smoothing=1"


def test_twice_the_same(perc, path):
    words = ("simulate", path, "--poisson", 2, "--seed", 4, "--json")
    assert figures(perc(*words))["runs"] == figures(perc(*words))["runs"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--load", "20"],
        ["--poisson", "5"],
        ["--spike", "10", "--spike-multiplier", "50"],
        ["--closed-loop"],
        ["--order", "program", "--max-running", "2"],
        ["--batching", "static"],
        ["--token-budget", "512"],
        ["--max-running", "1"],
        ["--max-queue", "0", "--max-running", "1"],
        ["--whole-prompts", "--token-budget", "512"],
        ["--blocks", "400"],
        ["--gpu", "l4", "--kv", "fp8"],
        ["--mfu", "0.3"],
        ["--overhead", "0.01"],
    ],
    ids=" ".join,
)
def test_every_flag_changes_something(perc, path, flags):
    base = ("simulate", path, "--policies", "lru", "--json")
    assert figures(perc(*base))["runs"] != figures(perc(*base, *flags))["runs"]


def test_a_folder_holds_the_run(perc, path, tmp_path):
    said = perc("simulate", path, "--out", tmp_path / "run", "--policies", "lru")
    assert said.code == 0, said.err
    folder = tmp_path / "run"
    assert {file.name for file in folder.iterdir()} == {
        "run.json",
        "results.parquet",
        "requests.parquet",
        "series.parquet",
        "series.png",
    }
    assert pl.read_parquet(folder / "requests.parquet").height == 60
    series = pl.read_parquet(folder / "series.parquet")
    assert series["time_s"].is_sorted()
    (run,) = json.loads((folder / "run.json").read_text())["runs"]
    assert series["tokens"][-1] == run["output_tokens"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--policies", "arc"], "does not follow"),
        (["--load", "fast"], "'fast' is no number"),
        (["--load", "0"], "load is 0"),
        (["--gpu", "abacus"], "abacus"),
        (["--model", "llama-3.1-70b"], "leaves no room"),
        (["--spike", "60"], "a spike at request 60 of 60"),
        (["--token-budget", "3"], "token_budget of 3"),
        (["--slo-ttft", "nan"], "a limit of ttft_s nan"),
        (["--slo-e2e", "-1"], "a limit of e2e_s -1.0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--policies", ""], "no policy given"),
        (["--spike-multiplier", "9"], "without --spike changes nothing"),
        (["--tier-prefetch"], "without --tier changes nothing"),
        (["--price", "0.1"], "of lru, perc_decay none is a learned policy"),
        (["--price", "-0.1"], "--price is -0.1, must be above 0"),
        (["--price", "nan"], "--price is nan"),
        (["--closed-loop", "--poisson", "5"], "--poisson 5 with --closed-loop"),
        (["--closed-loop", "--spike", "9"], "--spike 9 with --closed-loop"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(perc, path, flags, message):
    said = perc("simulate", path, *flags)
    assert said.code == 2
    assert message in said.words
    assert "Traceback" not in said.err


def test_a_price_is_of_learned_policies_beside_others(perc, refused, path, tmp_path):
    """They are served as leases then; the others as without a price."""
    file = tmp_path / "mine.npz"
    store.save(file, learned(network(), guard=None))
    words = ("simulate", path, "--blocks", 250, "--policies", f"lru,{file}")
    free, priced = (
        figures(perc(*words, *more, "--json"))["runs"]
        for more in ((), ("--price", 0.05))
    )
    assert free[0] == priced[0]
    assert free[1] != priced[1]
    assert "--price is -1" in refused(*words, "--price", "-1").words


@pytest.mark.parametrize(
    "order, priorities, due, note",
    [
        ("priority", False, False, "priority is fcfs"),
        ("priority", True, False, None),
        ("deadline", False, False, "deadline is fcfs"),
        ("deadline", True, False, "deadline is priority"),
        ("deadline", False, True, None),
        ("fcfs", False, False, None),
    ],
)
def test_an_order_that_the_trace_has_nothing_for(order, priorities, due, note):
    trace = core.make("agent", requests=9, seed=1)
    n = trace.n_requests
    if priorities:
        trace = dataclasses.replace(trace, priority=np.arange(n, dtype=np.int32))
    if due:
        trace = dataclasses.replace(trace, deadline_s=np.full(n, 5.0))
    said = order_note(trace, order)
    assert said is note or (said or "").endswith(f"{note}.")


def test_the_note_goes_beside_the_table(perc, path):
    base = ("simulate", path, "--policies", "lru", "--json")
    said = perc(*base, "--order", "priority")
    assert "note: all priorities are equal" in said.err
    assert figures(said)["runs"] == figures(perc(*base))["runs"]
    assert "note:" not in perc(*base, "--order", "program").err


def test_json_has_the_shields_that_the_table_tells(perc, path):
    words = ("simulate", path, "--policies", "lru", "--blocks", 250)
    words += ("--closed-loop", "--retain", "--retain-default", 60)
    (run,) = figures(perc(*words, "--json"))["runs"]
    told = perc(*words).words
    assert run["shields"] > 0
    assert f"{run['shields']} turns left a shield" in told
    assert f"{run['shields_in_time']} next turns found one" in told
    assert f"{run['shields_expired']} expired" in told
    ends = ("in_time", "late", "expired", "released", "refused")
    assert {f"shields_{end}" for end in ends} < set(run)


def test_tiers_below_the_gpu(perc, path):
    base = ("simulate", path, "--policies", "lru", "--blocks", 250)
    cpu = ("--tier", "cpu:16GiB:pcie5")
    (plain,) = figures(perc(*base, "--json"))["runs"]
    (run,) = figures(perc(*base, *cpu, "--json"))["runs"]
    assert run["tier_cpu_hit_blocks"] > 0
    assert run["token_hit_ratio"] > plain["token_hit_ratio"]
    disk = ("--tier", "disk:200GiB:nvme4:int4", "--tier-prefetch")
    said = perc(*base, *cpu, *disk, "--load", "2")
    assert said.code == 0, said.err
    assert said.out.count("GPU") == 1 and said.out.count("disk") == 1
    assert "requests waited" in said.words


def test_tiers_beside_an_order_that_changes(perc, path):
    words = ("simulate", path, "--policies", "perc", "--blocks", 250, "--json")
    (run,) = figures(perc(*words, "--tier", "cpu:16GiB:pcie5"))["runs"]
    assert run["completed"] == 60 and run["tier_cpu_hit_blocks"] > 0


def test_tiers_in_the_folder(perc, path, tmp_path):
    words = ("simulate", path, "--policies", "lru", "--blocks", 250)
    said = perc(*words, "--tier", "cpu:16GiB:pcie5", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    frame = pl.read_parquet(tmp_path / "run" / "requests.parquet")
    assert frame["loaded_blocks"].sum() > 0
    results = pl.read_parquet(tmp_path / "run" / "results.parquet")
    assert 0 < results["memory_share"][0] <= 1
    assert (frame["load_wait_s"] >= 0).all()
    stated = json.loads((tmp_path / "run" / "run.json").read_text())
    assert stated["server"]["offload"]["tiers"][0]["name"] == "cpu"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--tier", "cpu:64GiB"], "give name:size:link"),
        (["--tier", "cpu:64GiB:pcie9"], "pcie9"),
        (["--tier", "cpu:64GiB:pcie5:int3"], "int3"),
        (["--tier", "cpu:1KiB:pcie5"], "cannot hold one block"),
        (["--tier", "cpu:64GiB:pcie5", "--tier-prefetch"], "two tiers"),
        (["--tier", "cpu:1GiB:pcie5", "--tier", "cpu:2GiB:nvme4"], "of its own"),
        (["--tier", "GPU:64GiB:pcie5"], "of its own"),
    ],
)
def test_impossible_tiers_are_refused(refused, path, words, message):
    assert message in refused("simulate", path, *words).words
