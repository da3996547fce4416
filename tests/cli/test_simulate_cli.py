"""`perc simulate` as a person runs it."""

import json

import polars as pl
import pytest

import perc as core
from perc.traces import save


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
    ],
)
def test_bad_input_is_refused_with_a_remedy(perc, path, flags, message):
    said = perc("simulate", path, *flags)
    assert said.code == 2
    assert message in said.words
    assert "Traceback" not in said.err


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


def test_tiers_want_an_order_that_does_not_change(refused, path):
    words = ("--policies", "perc", "--tier", "cpu:16GiB:pcie5")
    assert "together with tiers" in refused("simulate", path, *words).words


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
