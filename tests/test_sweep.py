"""A sweep: rows that `perc.replay` confirms, the same however it is run or killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import perc
from perc import sweep_store
from perc.errors import InputError
from perc.grid import parse_grid
from perc.metrics import measure, warmup_requests
from perc.policies.registry import registry
from perc.sweep import sweep
from perc.sweep_store import RESULTS
from perc.types import Policy

DATA = Path(__file__).parent / "data"
CHAT = {"workload": "chat", "requests": 120}
PERC = {"name": "perc_decay", "tau_s": [10, 100], "cost_weight": [0, 0.5]}
SMALL = {"traces": [CHAT], "policies": ["lru", PERC], "capacities": [40, 0.25]}
# 802 configurations of a few milliseconds, kept often, so that kills meet all states.
KILLED = """
import sys
from importlib import import_module
module = import_module("perc.sweep")
module.PART_S = 0.02
module.sweep(
    [{"workload": "chat", "requests": 60, "seed": 1}, {"workload": "zipf"}],
    ["lru", {"name": "perc_decay", "tau_s": {"low": 1, "high": 900, "samples": 400}}],
    [10, 0.2],
    warmup=0.25,
    out=sys.argv[1],
)
"""


def start(code: str, *words: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def test_rows_are_those_of_replay():
    names = [name for name in registry if isinstance(registry[name](), Policy)]
    table = sweep([CHAT], names, [1, 40, 0.25], seeds=[7], warmup=0.3)
    assert len(table) == 3 * len(names)
    trace = perc.make("chat", requests=120, seed=7)
    skip = warmup_requests(trace, 0.3)
    for row in table.iter_rows(named=True):
        seeds = {"seed": 7} if row["policy"] == "random" else {}
        policy = registry[row["policy"]](**seeds)
        order = perc.ranks(trace, perc.scores(policy, trace))
        size = row["capacity_blocks"]
        hits = perc.replay(
            trace, order, [size], bypass=policy.bypass, refresh=policy.refresh
        )
        found = measure(trace, np.asarray(hits.blocks[0]), warmup_requests=skip)
        for name, value in vars(found).items():
            assert row[name] == value, name
        assert row["evictions"] == hits.evictions[0]
        assert (row["seed"], row["warmup"]) == (7, 0.3)


def test_rows_of_online_policies_are_those_of_the_engine():
    """One name of each kind of rule, with parameters, out of one shared layout."""
    policies = [
        {"name": "perc", "smoothing": [20, 500], "horizon_s": [60, 3600]},
        {"name": "gdsf", "cost_weight": [0, 0.5]},
        {"name": "hazard", "horizon_s": 100},
        "arc",
        "random",
    ]
    table = sweep([CHAT], policies, [1, 40, 0.25], seeds=[7], warmup=0.3)
    assert len(table) == 3 * (4 + 2 + 1 + 1 + 1)
    trace = perc.make("chat", requests=120, seed=7)
    skip = warmup_requests(trace, 0.3)
    given = ("smoothing", "horizon_s", "cost_weight")
    for row in table.iter_rows(named=True):
        values = {name: row[name] for name in given if row[name] is not None}
        seeds = {"seed": 7} if row["policy"] == "random" else {}
        policy = registry[row["policy"]](**values, **seeds)
        hits = perc.replay_online(trace, policy, [row["capacity_blocks"]])
        found = measure(trace, np.asarray(hits.blocks[0]), warmup_requests=skip)
        assert {name: row[name] for name in vars(found)} == vars(found), row
        assert row["evictions"] == hits.evictions[0]


def test_lru_and_the_bound_stand_beside_every_row():
    chat = {"workload": "chat", "requests": 300}
    table = sweep([chat], ["lru", "lfu", "belady"], [0.05, 0.25])
    names = ["lru_block_hit_ratio", "bound_block_hit_ratio"]
    for size in table["capacity_blocks"].unique():
        at = table.filter(capacity_blocks=size)
        ratios = dict(at.select("policy", "block_hit_ratio").iter_rows())
        assert at.select(names).unique().rows() == [(ratios["lru"], ratios["belady"])]
        gaps = dict(at.select("policy", "gap_closed").iter_rows())
        assert (gaps["lru"], gaps["belady"]) == (0.0, 1.0)
        share = (ratios["lfu"] - ratios["lru"]) / (ratios["belady"] - ratios["lru"])
        assert gaps["lfu"] == share


def test_where_there_is_no_gap_none_is_closed():
    table = sweep([CHAT], ["lru"], [10**6])
    assert table["gap_closed"].to_list() == [None]


def test_the_table_is_tidy():
    policies = ["lru", PERC, {"name": "random"}]
    table = sweep([CHAT, DATA / "mooncake.jsonl"], policies, [16, 8], seeds=[1, 2])
    assert table.columns == [
        "trace",
        "trace_sha256",
        "seed",
        "policy",
        "tau_s",
        "cost_weight",
        "capacity_blocks",
        "warmup",
        "block_hit_ratio",
        "token_hit_ratio",
        "recompute_tokens",
        "recompute_s",
        "lru_block_hit_ratio",
        "bound_block_hit_ratio",
        "gap_closed",
        "evictions",
        "config",
    ]
    assert len(table) == 2 * (2 * 6 + 7)
    assert table.select("config", "capacity_blocks").is_unique().all()
    lru = table.filter(policy="lru")
    assert lru["tau_s"].to_list() == [None] * 6
    assert lru["seed"].to_list() == [1, 1, 2, 2, None, None]
    assert lru["capacity_blocks"].to_list() == [8, 16] * 3
    assert lru["trace"].unique(maintain_order=True).to_list() == [
        "chat(requests=120, seed=1)",
        "chat(requests=120, seed=2)",
        str(DATA / "mooncake.jsonl"),
    ]


def test_traces_and_policies_may_be_objects(small_chat):
    policy = registry["perc_decay"](tau_s=60)
    table = sweep([small_chat], [policy], [100])
    expected = sweep([small_chat], [{"name": "perc_decay", "tau_s": 60}], [100])
    assert table["block_hit_ratio"].equals(expected["block_hit_ratio"])
    assert table["config"][0] != expected["config"][0]


def test_an_empty_trace_has_rows():
    table = sweep([{"workload": "zipf", "requests": 0}], ["lru", "perc"], [10])
    assert table["block_hit_ratio"].to_list() == [0.0, 0.0]


def test_a_trace_without_blocks_is_refused():
    with pytest.raises(InputError, match="no block ids"):
        sweep([DATA / "azure.csv"], ["lru"], [10])


def test_progress_counts_every_configuration():
    seen = []
    sweep(parse_grid(SMALL), progress=lambda *call: seen.append(call))
    assert [(done, total) for done, total, _ in seen[:3]] == [(0, 5), (0, 5), (1, 5)]
    assert seen[-1] == (5, 5, "merging")


def test_a_finished_sweep_is_read_again(tmp_path):
    first = sweep(parse_grid(SMALL), out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [RESULTS, "sweep.json"]
    said = json.loads((tmp_path / "sweep.json").read_text())
    assert said["grid"]["capacities"] == [40, 0.25]

    def work(*call):
        raise AssertionError("worked again")

    assert_frame_equal(sweep(parse_grid(SMALL), out=tmp_path, progress=work), first)
    assert_frame_equal(pl.read_parquet(tmp_path / RESULTS), first)


def test_another_grid_in_the_folder_is_refused(tmp_path):
    sweep(parse_grid(SMALL), out=tmp_path)
    with pytest.raises(InputError, match="sweep of another grid. Choose another"):
        sweep(parse_grid({**SMALL, "warmup": 0.5}), out=tmp_path)


def test_other_versions_are_refused(tmp_path, monkeypatch):
    sweep(parse_grid(SMALL), out=tmp_path)
    monkeypatch.setattr(sweep_store, "version", lambda name: "0.0")
    with pytest.raises(InputError, match="was begun with perc-kv .*, this is 0.0"):
        sweep(parse_grid(SMALL), out=tmp_path)


def test_two_sweeps_in_one_folder_are_refused(tmp_path):
    with sweep_store.claimed(tmp_path):
        with pytest.raises(InputError, match="another sweep is at work"):
            sweep(parse_grid(SMALL), out=tmp_path)


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another folder"):
        sweep(parse_grid(SMALL), out=tmp_path / "file")


def interrupt_after(count: int):
    def progress(done: int, total: int, what: str) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


def test_an_interrupt_keeps_what_is_done(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        sweep(parse_grid(SMALL), out=tmp_path, progress=interrupt_after(3))
    assert len(sweep_store.finished(tmp_path)) == 3
    (tmp_path / "parts" / ".half-1.parquet").write_bytes(b"PAR1")
    seen = []
    table = sweep(
        parse_grid(SMALL), out=tmp_path, progress=lambda *call: seen.append(call)
    )
    assert seen[0][:2] == (3, 5)
    assert_frame_equal(table, sweep(parse_grid(SMALL)))


def test_a_trace_that_changed_meanwhile_is_refused(tmp_path):
    path = tmp_path / "trace.parquet"
    perc.save(perc.make("chat", requests=50), path)
    grid = parse_grid({**SMALL, "traces": [str(path)]})
    with pytest.raises(KeyboardInterrupt):
        sweep(grid, out=tmp_path / "out", progress=interrupt_after(2))
    perc.save(perc.make("chat", requests=51), path)
    with pytest.raises(InputError, match="has changed since this sweep began"):
        sweep(grid, out=tmp_path / "out")


def test_killed_again_and_again_no_row_is_lost_or_doubled(tmp_path):
    seed = random.randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    whole = start(KILLED, tmp_path / "whole")
    folder = tmp_path / "killed"
    kills = 0
    for _ in range(3):
        process = start(KILLED, folder)
        before = set(folder.glob("parts/*"))
        while process.poll() is None and set(folder.glob("parts/*")) <= before:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2 and not (folder / RESULTS).exists()
    kept = len(sweep_store.finished(folder))
    assert 0 < kept < 802
    finish(start(KILLED, folder))
    finish(whole)
    table = pl.read_parquet(folder / RESULTS)
    assert table.select("config", "capacity_blocks").is_unique().all()
    assert len(table) == 2 * 802
    one, other = (tmp_path / name / RESULTS for name in ("whole", "killed"))
    assert one.read_bytes() == other.read_bytes()


OTHER_ENGINE = """
import sys
from perc.sweep import sweep
if __name__ == "__main__":
    sweep(
        [{"workload": "chat", "requests": 120}, {"workload": "zipf", "requests": 50}],
        ["lru", "fifo", "belady_bypass", {"name": "perc_decay", "tau_s": [1, 10, 100]}],
        [1, 40, 0.25],
        out=sys.argv[1],
        engine=sys.argv[2],
        workers=int(sys.argv[3]) or None,
    )
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    finish(start(OTHER_ENGINE, folder, "local", 0))
    return folder


def rows_of(folder: Path) -> bytes:
    return (folder / RESULTS).read_bytes()


def test_two_devices_give_the_same_rows(tmp_path, expected):
    flag = "--xla_force_host_platform_device_count=2"
    finish(start(OTHER_ENGINE, tmp_path, "local", 0, XLA_FLAGS=flag))
    assert rows_of(tmp_path) == rows_of(expected)


def test_processes_give_the_same_rows(tmp_path, expected):
    script = tmp_path / "script.py"  # spawned processes import the main module
    script.write_text(OTHER_ENGINE)
    process = subprocess.run(
        [sys.executable, script, tmp_path / "out", "processes", "2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    assert rows_of(tmp_path / "out") == rows_of(expected)


TWO_NODES = """
import os, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
os.environ["RAY_ADDRESS"] = cluster.address
"""


def test_ray_on_this_machine_gives_the_same_rows(tmp_path, expected):
    pytest.importorskip("ray")
    finish(start(OTHER_ENGINE, tmp_path, "ray", 2))
    assert rows_of(tmp_path) == rows_of(expected)


def test_a_ray_cluster_of_two_gives_the_same_rows(tmp_path, expected):
    pytest.importorskip("ray")
    ends = "cluster.shutdown()"
    finish(start(TWO_NODES + OTHER_ENGINE + ends, tmp_path, "ray", 0))
    assert rows_of(tmp_path) == rows_of(expected)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"engine": "spark"}, "no engine 'spark'; there are local, processes, ray"),
        ({"workers": 2}, "2 workers for engine local; give 1 or more with"),
        ({"engine": "processes", "workers": 0}, "0 workers for engine processes"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        sweep(parse_grid(SMALL), **options)


def test_without_ray_the_install_command_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'perc-kv\[ray\]'"):
        sweep(parse_grid(SMALL), engine="ray")


LARGE = """
from perc.sweep import sweep
shares = [0.001 * 1.5**k for k in range(15)]
chat = {"workload": "chat", "requests": 1_480_000}
table = sweep([chat], ["perc_decay"], [2000, *shares])
assert len(table) == 16, table
"""


@pytest.mark.slow
def test_36_million_accesses_at_16_capacities_take_less_than_8_gib():
    process = start(LARGE)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    assert process.returncode == 0, process.stderr.read()
    process.stderr.close()
    assert usage.ru_maxrss < 8 * 2**20  # KiB
