"""The description of a sweep: what it expands to, and that every mistake is named."""

import json
import math

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.grid import Draw, configurations, describe, parse_grid, read_grid
from perc.policies.registry import registry
from perc.sweep_store import schema

CHAT = {"workload": "chat", "requests": 50}
TOML = """
capacities = [0.05, 100]
seeds = [3, 4]
warmup = 0.5

[[traces]]
workload = "chat"
requests = 50
seed = 1

[[policies]]
name = "lru"

[[policies]]
name = "perc_decay"
tau_s = { from = 10, to = 1000, steps = 3, scale = "log" }
cost_weight = [0, 0.5]

[[policies]]
name = "perc_decay"
tau_s = { low = 1, high = 2000, scale = "log", samples = 5 }
cost_weight = { low = 0, high = 1, samples = 5 }
"""


def grid_of(**changes):
    table = {"traces": [CHAT], "policies": ["lru"], "capacities": [100], **changes}
    return parse_grid({key: value for key, value in table.items() if value is not None})


def params_of(**policy):
    units = configurations(grid_of(policies=[{"name": "perc_decay", **policy}]))
    return [unit.params for unit in units]


def test_a_file_expands_in_order(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TOML)
    grid = read_grid(path)
    units = configurations(grid)
    assert [unit.policy for unit in units] == [0, *[1] * 6, *[2] * 10]
    assert [unit.params for unit in units[1:4]] == [
        {"tau_s": 10.0, "cost_weight": 0.0},
        {"tau_s": 10.0, "cost_weight": 0.5},
        {"tau_s": 100.0, "cost_weight": 0.0},
    ]
    assert [unit.seed for unit in units] == [*[None] * 7, *[3] * 5, *[4] * 5]
    assert grid.capacities == (0.05, 100) and grid.warmup == 0.5
    json.dumps(describe(grid))


def test_ids_are_the_same_everywhere():
    grid = grid_of(policies=["lru", {"name": "perc_decay", "tau_s": [60]}])
    # Written down once: they name rows in files that people keep.
    assert [unit.id for unit in configurations(grid)] == [
        "65d16776b9eac0c4",
        "ac905255e487d31c",
    ]


def test_ids_tell_everything_apart():
    grids = [
        grid_of(),
        grid_of(warmup=0.5),
        grid_of(seeds=[1]),
        grid_of(policies=["lfu"]),
        grid_of(traces=[{**CHAT, "requests": 51}]),
        grid_of(policies=[registry["lru"]()]),
        grid_of(traces=[perc.make("chat", requests=50)]),
    ]
    assert len({unit.id for grid in grids for unit in configurations(grid)}) == 7


def test_a_default_is_the_same_as_its_value():
    tau_s = registry["perc_decay"]().params["tau_s"].item()
    assert params_of() == params_of(tau_s=tau_s)
    both = [{"name": "perc_decay"}, {"name": "perc_decay", "tau_s": [tau_s, 1]}]
    assert len(configurations(grid_of(policies=both))) == 2


def test_what_depends_on_no_seed_runs_once():
    made = {**CHAT, "seed": 9}
    grid = grid_of(traces=[CHAT, made], policies=["lru", "random"], seeds=[1, 2])
    found = [(u.trace, u.trace_seed, u.policy, u.seed) for u in configurations(grid)]
    assert found == [
        (0, 1, 0, 1),
        (0, 1, 1, 1),
        (0, 2, 0, 2),
        (0, 2, 1, 2),
        (1, None, 0, None),
        (1, None, 1, 1),
        (1, None, 1, 2),
    ]


def test_ranges_include_both_ends():
    linear = {"from": 0, "to": 1, "steps": 5}
    assert [p["cost_weight"] for p in params_of(cost_weight=linear)] == [
        0.0,
        0.25,
        0.5,
        0.75,
        1.0,
    ]
    log = {"from": 1, "to": 1000, "steps": 4, "scale": "log"}
    assert [p["tau_s"] for p in params_of(tau_s=log)] == [1.0, 10.0, 100.0, 1000.0]


def test_draws_fill_their_range_evenly():
    for scale, middle in (("linear", 50.5), ("log", 10.0)):
        draw = Draw(1, 100, scale, 1000)
        values = [draw.value(0, "perc_decay", "tau_s", i) for i in range(1000)]
        assert 1 <= min(values) < 2 and 95 < max(values) <= 100
        assert 0.45 < np.mean(np.array(values) < middle) < 0.55


def test_draws_are_a_matter_of_seed_and_place():
    def draws(seeds, samples):
        spread = {"low": 0, "high": 1, "samples": samples}
        policy = {"name": "perc_decay", "cost_weight": spread}
        units = configurations(grid_of(policies=[policy], seeds=seeds))
        return [unit.params["cost_weight"] for unit in units]

    assert draws([1], 20)[:10] == draws([1], 10)
    assert draws([2], 10) == draws([1, 2], 10)[10:] != draws([1], 10)
    assert len({f"{value:.6g}" for value in draws([1], 20)}) == 20


def test_no_parameter_hides_a_column():
    fixed = set(schema(grid_of()))
    for name in registry:
        assert not fixed & set(grid_of(policies=[name]).parameters)


def test_numpy_numbers_are_numbers():
    sizes = [np.int64(5), np.float64(0.5)]
    assert grid_of(capacities=sizes).capacities == (5, 0.5)
    assert params_of(tau_s=np.array([1.0, 2.0]))[1]["tau_s"] == 2.0


PERC = {"name": "perc_decay"}
DRAW = {"low": 0, "high": 2, "samples": 1, "scale": "log"}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"capacity": [1]}, "no 'capacity'; it has: traces, policies, capacities"),
        ({"traces": None}, "traces is missing"),
        ({"traces": []}, "traces is empty"),
        ({"traces": "chat.parquet"}, r"traces is 'chat.parquet'; give a list"),
        ({"traces": ["nowhere.parquet"]}, r"traces\[0\].path .* no such file"),
        ({"traces": [{}]}, r"traces\[0\] must name a path or a workload"),
        ({"traces": [{"workload": "chatt"}]}, "'chatt'; there are chat, agent"),
        ({"traces": [{**CHAT, "request": 1}]}, "no 'request'; it has: requests"),
        ({"traces": [{**CHAT, "seed": "a"}]}, "seed is 'a'; give a whole number"),
        ({"traces": [3]}, r"traces\[0\] is 3; give a path or a table"),
        ({"traces": [{"path": __file__, "blocks": 1}]}, "no 'blocks'; it has: path"),
        ({"traces": [{"path": __file__, "format": "x"}]}, "format is 'x'; there are"),
        ({"traces": [{"path": __file__, "block_tokens": 1.5}]}, "a whole number"),
        ({"policies": ["lruu"]}, r"policies\[0\].name is 'lruu'; there are lru"),
        ({"policies": [{"tau_s": 1}]}, "name is None"),
        ({"policies": [{"name": ["lru"]}]}, r"name is \['lru'\]; there are lru"),
        ({"policies": ["lru", "lru"]}, "policies has 'lru' twice"),
        ({"policies": [3]}, "give a name or a table"),
        ({"policies": [{**PERC, "tau": 1}]}, "no 'tau'; it has: name, tau_s"),
        ({"policies": [{**PERC, "tau_s": []}]}, r"policies\[0\].tau_s is empty"),
        ({"policies": [{**PERC, "tau_s": ["a"]}]}, "tau_s is 'a'; give a number"),
        ({"policies": [{**PERC, "tau_s": True}]}, "tau_s is True; give a number"),
        ({"policies": [{**PERC, "tau_s": math.nan}]}, "give a finite number"),
        ({"policies": [{**PERC, "tau_s": [1, 1]}]}, "tau_s has 1 twice"),
        ({"policies": [{**PERC, "tau_s": [5, -1]}]}, r"policies\[0\]: .*tau_s is -1"),
        ({"policies": [{"name": "random", "seed": 1}]}, "give seeds = "),
        ({"policies": [{**PERC, "tau_s": {}}]}, "tau_s has nothing; give a list"),
        (
            {"policies": [{**PERC, "tau_s": {"from": 1, "to": 2}}]},
            "tau_s has from, to; give a list, a range {from, to, steps",
        ),
        (
            {"policies": [{**PERC, "tau_s": {"from": 2, "to": 1, "steps": 3}}]},
            "goes from 2 to 1; give two rising numbers",
        ),
        (
            {"policies": [{**PERC, "tau_s": {"from": 1, "to": 2, "steps": 1}}]},
            "steps is 1; give more",
        ),
        ({"policies": [{**PERC, "tau_s": DRAW}]}, "rising numbers above 0"),
        (
            {"policies": [{**PERC, "tau_s": {**DRAW, "scale": "ln"}}]},
            "scale is 'ln'; give linear or log",
        ),
        (
            {
                "policies": [
                    {
                        **PERC,
                        "tau_s": {"low": 0, "high": 2, "samples": 1},
                        "cost_weight": {"low": 0, "high": 2, "samples": 2},
                    }
                ]
            },
            "samples differ",
        ),
        ({"capacities": [1.5]}, "capacities has 1.5, no share"),
        ({"capacities": [-1]}, "-1 blocks; give 0 or more"),
        ({"capacities": ["5%"]}, "capacities is '5%'; give a number"),
        ({"capacities": 5}, r"capacities is 5; give a list, such as \[5\]"),
        ({"seeds": [-1]}, "seeds has -1"),
        ({"seeds": [0.5]}, "seeds is 0.5; give a whole number"),
        ({"warmup": 1}, "warmup is 1.0; give a share from 0, below 1"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(changes, words):
    with pytest.raises(InputError, match=words):
        grid_of(**changes)


@pytest.mark.parametrize("text", [b"capacities = [", b"\xff", None])
def test_a_file_that_is_no_toml_is_named(tmp_path, text):
    path = tmp_path / "grid.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match="grid.toml: .*Give a TOML file"):
        read_grid(path)


def test_a_mistake_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text("capacities = []\n")
    with pytest.raises(InputError, match="grid.toml: traces is missing"):
        read_grid(path)
