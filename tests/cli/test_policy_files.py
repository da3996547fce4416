"""Policy files wherever the command line takes the name of a policy."""

import json

import polars as pl
import pytest

from perc.grid import configurations, parse_grid
from perc.policies.store import save_named
from tests.cli.conftest import Run

FAST = ("--capacities", "8,16")


@pytest.fixture
def policy(tmp_path) -> str:
    return str(save_named(tmp_path / "mine.npz", "perc_decay", {"tau_s": 60.0}))


def rows_of(said) -> list[dict]:
    assert said.code == 0, said.err
    return json.loads(said.out)["rows"]


@pytest.mark.parametrize("command", ["compare", "curve"])
def test_a_file_hits_what_its_policy_hits(perc: Run, mooncake, policy, command):
    names = f"lru,{policy},perc_decay:tau_s=60"
    rows = rows_of(perc(command, mooncake, "--policies", names, *FAST, "--json"))
    assert {row["policy"] for row in rows} == {"lru", "mine", "perc_decay:tau_s=60"}
    by = {name: [r for r in rows if r["policy"] == name] for name in ("mine", "lru")}
    same = [r for r in rows if r["policy"].startswith("perc_decay")]
    for row, wanted in zip(by["mine"], same, strict=True):
        assert row | {"policy": ""} == wanted | {"policy": ""}


def test_the_table_names_it(perc: Run, mooncake, policy):
    said = perc("compare", mooncake, "--policies", f"{policy},belady", *FAST)
    assert said.code == 0 and "mine" in said.out


def test_plan_takes_it(perc: Run, mooncake, policy):
    words = ("--policies", f"lru,{policy}", "--bootstrap", "0", "--json")
    said = perc("plan", mooncake, *words)
    assert said.code == 0, said.err
    assert "mine" in {point["policy"] for point in json.loads(said.out)["points"]}


def test_rules_take_it(perc: Run, mooncake, policy, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nname = "all"\nttl_s = 10\n')
    words = ("--rules", rules, "--policies", policy, *FAST, "--json")
    assert "mine" in {
        row["policy"] for row in rows_of(perc("compare", mooncake, *words))
    }


def test_why_takes_it(perc: Run, mooncake, policy):
    said = perc("compare", mooncake, "--policies", policy, *FAST, "--why", "--json")
    assert said.code == 0 and '"mine"' in said.out


def test_files_of_one_stem_are_called_by_their_paths(perc: Run, mooncake, tmp_path):
    paths = [tmp_path / name / "p.npz" for name in ("lru", "fifo")]
    for path in paths:
        save_named(path, path.parent.name)
    names = ",".join(map(str, paths))
    rows = rows_of(perc("compare", mooncake, "--policies", names, *FAST, "--json"))
    assert {row["policy"] for row in rows} == set(map(str, paths))


def test_the_command_in_a_run_folder_repeats_it(perc: Run, mooncake, policy, tmp_path):
    out = tmp_path / "out"
    said = perc("compare", mooncake, "--policies", policy, *FAST, "--out", out)
    assert said.code == 0, said.err
    assert policy in json.loads((out / "run.json").read_text())["command"]


@pytest.mark.parametrize("command", ["compare", "curve", "plan"])
def test_a_bad_file_is_found_before_the_trace_is_read(refused, tmp_path, command):
    path = tmp_path / "bad.npz"
    path.write_bytes(b"PK")
    said = refused(command, tmp_path / "gone.jsonl", "--policies", f"lru,{path}")
    assert f"{path}: is no .npz file" in said.err and "gone.jsonl" not in said.err


def test_a_file_that_is_not_there(refused, mooncake):
    said = refused("compare", mooncake, "--policies", "gone.npz")
    assert "gone.npz: no such file; check the path" in said.err


def test_a_file_given_twice(refused, mooncake, policy):
    said = refused("compare", mooncake, "--policies", f"{policy},{policy}")
    assert "given twice" in said.err and policy in said.err


@pytest.mark.parametrize("settings", [":tau_s=1,2", ":tau_s=60", ":"])
def test_parameters_of_a_file_cannot_be_changed(refused, mooncake, policy, settings):
    said = refused("compare", mooncake, "--policies", policy + settings)
    assert f"{policy} is a file" in said.err and "Train another" in said.err


def test_a_file_cannot_be_tuned(refused, mooncake, policy):
    said = refused("tune", mooncake, policy)
    assert f"{policy} is a file, whose parameters are fixed" in said.err


def test_the_list_of_policies_mentions_files(perc: Run):
    assert "--policies mine.npz takes a policy file" in perc("policies").words


# Sweeps.

GRID = """
capacities = [0.05, 200]
[[traces]]
workload = "chat"
requests = 100
[[policies]]
name = "perc_decay"
tau_s = [60]
[[policies]]
name = "{path}"
{more}
"""


@pytest.fixture
def grid(tmp_path):
    def write(path, more=""):
        file = tmp_path / "grid.toml"
        file.write_text(GRID.format(path=path, more=more))
        return file

    return write


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_sweep_takes_files_as_they_are(perc: Run, grid, policy, tmp_path, engine):
    words = ("--out", tmp_path / "out", "--engine", engine, "--workers", 1)
    said = perc("sweep", grid(policy), *(words if engine == "processes" else words[:4]))
    assert said.code == 0, said.err
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert table["policy"].to_list() == ["perc_decay"] * 2 + ["mine"] * 2
    assert table["tau_s"].to_list() == [60, 60, None, None]
    hits = table["block_hit_ratio"].to_list()
    assert hits[:2] == hits[2:]


def test_another_file_of_the_name_is_another_configuration(tmp_path):
    def of(k: int) -> str:
        path = save_named(tmp_path / "p.npz", "lru_k", {"k": k})  # no parameter shows k
        chat = {"workload": "chat"}
        table = {"capacities": [50], "traces": [chat], "policies": [str(path)]}
        (found,) = configurations(parse_grid(table))
        return found.id

    assert of(2) == of(2) != of(3)


@pytest.mark.parametrize("more", ["tau_s = [1, 2]", "seed = 1"])
def test_a_sweep_cannot_vary_a_file(refused, grid, policy, tmp_path, more):
    said = refused("sweep", grid(policy, more), "--out", tmp_path / "out")
    assert f"policies[1]: {policy} is a file, whose parameters are fixed" in said.err
    assert not (tmp_path / "out").exists()


def test_a_sweep_finds_a_bad_file_first(refused, grid, tmp_path):
    said = refused("sweep", grid("gone.npz"), "--out", tmp_path / "out")
    assert "grid.toml: gone.npz: no such file" in said.err
    assert not (tmp_path / "out").exists()


def test_a_sweep_with_parameters_behind_a_path(refused, grid, policy, tmp_path):
    said = refused("sweep", grid(f"{policy}:tau=1,2"), "--out", tmp_path / "out")
    assert f"{policy} is a file: 'tau=1,2' cannot change" in said.err
