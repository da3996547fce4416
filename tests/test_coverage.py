"""docs/coverage.md names code and tests that exist; the demos give what they should."""

import ast
import dataclasses
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.hardware import accelerator, link
from perc.model_shapes import model
from perc.policies.lru import lru
from perc.prefix_traces import trace_of_tokens
from perc.roofline import roofline
from perc.serving.metrics import Limits, itl, latencies, meets
from perc.serving.offload import LowerTier, Offload
from perc.serving.served import Served
from perc.serving.settings import Batching, Server
from perc.serving.simulate import simulate
from perc.serving.state import ITL_BINS, State, Sums, note_gap

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "coverage.md"
DEMOS = ROOT / "docs" / "guide" / "demos.py"
SCRIPTS = 25
SECTIONS = ("The 25 scripts", "CachePilot", "The KV-offload lab", "KVopt")
MISSING = "**missing**"


def rows(section: str) -> list[list[str]]:
    """Cells of the table under a heading, without its head."""
    text = DOCUMENT.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def all_rows() -> list[list[str]]:
    if not DOCUMENT.is_file():
        return []
    return [row for section in SECTIONS for row in rows(section)]


@cache
def names(path: Path) -> set[str]:
    """Functions, classes and variables of a module."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def absent(reference: str) -> bool:
    """Whether `path`, `path:name` or `path::name` does not exist."""
    path, _, name = reference.replace("::", ":").partition(":")
    file = ROOT / path
    return not file.is_file() or bool(name and name not in names(file))


def faults(row: list[str]) -> list[str]:
    """What is wrong with a row."""
    feature, code, tests, left_out = row
    named = [re.findall(r"`([^`]+)`", cell) for cell in (code, tests)]
    if code == MISSING:
        return [] if not tests and left_out else [f"{feature}: missing, but of what?"]
    wrong = [reference for found in named for reference in found if absent(reference)]
    if not all(named):
        wrong.append(f"{feature}: no code or no test")
    if any(not path.startswith("tests/") for path in named[1]):
        wrong.append(f"{feature}: a test lies in tests/")
    return wrong


pytestmark = pytest.mark.skipif(
    not DOCUMENT.is_file(), reason="run away from a checkout"
)


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row[0])
def test_code_and_tests_of_a_row_exist(row):
    assert faults(row) == []


@pytest.mark.parametrize(
    "code, tests, left_out",
    [
        ("`perc/gone.py:x`", "`tests/test_coverage.py::rows`", ""),
        ("`perc/paging.py:gone`", "`tests/test_coverage.py::rows`", ""),
        ("`perc/paging.py:hold`", "`tests/test_coverage.py::gone`", ""),
        ("`perc/paging.py:hold`", "", ""),
        ("`perc/paging.py:hold`", "`perc/paging.py:hold`", ""),
        ("", "`tests/test_coverage.py::rows`", ""),
        (MISSING, "", ""),
        (MISSING, "`tests/test_coverage.py::rows`", "a thing"),
    ],
)
def test_the_check_sees_what_is_wrong(code, tests, left_out):
    assert faults(["a feature", code, tests, left_out])


def test_every_script_has_a_row():
    numbers = [int(row[0].split()[0]) for row in rows("The 25 scripts")]
    assert numbers == list(range(1, SCRIPTS + 1))


def test_a_row_says_one_thing_once():
    features = [row[0] for row in all_rows()]
    assert len(features) == len(set(features))


def test_what_a_row_lacks_is_said_in_the_end():
    lacking = [row for row in all_rows() if row[1] == MISSING]
    ending = DOCUMENT.read_text().split("\n## What is missing\n")[1]
    for row in lacking:
        number = row[0].split()[0]
        word = f"cript {number}" if number.isdigit() else row[0].split()[0]
        assert word in ending, row[0]


# The demos of the scripts, with their acceptance values


def test_nibbles_of_script_16(demos):
    for byte in range(256):
        pair = demos.unpack_nibbles(np.array([byte], np.uint8), 2)
        assert -8 <= pair.min() and pair.max() <= 7
        assert demos.pack_nibbles(pair).tolist() == [byte]
    for n in range(20):
        values = np.random.default_rng(n).integers(-8, 8, n).astype(np.int8)
        packed = demos.pack_nibbles(values)
        assert packed.nbytes == (n + 1) // 2
        assert demos.unpack_nibbles(packed, n).tolist() == values.tolist()
    with pytest.raises(ValueError, match="-8 to 7"):
        demos.pack_nibbles(np.array([8]))


@pytest.fixture(scope="module")
def demos():
    """docs/guide/demos.py as a module."""
    place = importlib.util.spec_from_file_location("demos", DEMOS)
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", ["-1", str(2**32), "x"])
def test_seeds_that_no_demo_takes(demos, monkeypatch, capsys, seed):
    monkeypatch.setattr("sys.argv", ["demos.py", "9", "--seed", seed])
    with pytest.raises(SystemExit) as end:
        demos.main()
    assert end.value.code == 2 and "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["26", "0", "x"])
def test_scripts_that_there_are_not(demos, monkeypatch, capsys, script):
    monkeypatch.setattr("sys.argv", ["demos.py", script])
    with pytest.raises(SystemExit) as end:
        demos.main()
    told = f"{script} is no script; give numbers from 1 to 25"
    assert end.value.code == 2 and told in capsys.readouterr().err


ACCEPTED = {
    3: {"identical": True, "work": [24_512, 255], "ratio": pytest.approx(96.125, 1e-5)},
    4: {"tokens": 10, "injective": True},
    6: {"largest": 448.0, "least": 2.0**-9, "nan_codes": [0x7F, 0xFF]},
    7: {"memory_ratio": 4.0},
    8: {"kept": [0, 1, 16, 17, 18, 19], "places": [0, 1, 2, 3, 4, 5]},
    9: {
        "mean_tokens": pytest.approx(203.8633),
        "contiguous": pytest.approx(0.900457, abs=1e-6),
        "paged": pytest.approx(0.035191, abs=1e-6),
        "worst_paged_tokens": 15,
    },
    10: {"copy_verified": True, "triad_verified": True},
    11: {"copied": 1, "free_used_pinned": [12, 4, 0]},
    12: {
        "static": 190,
        "static_busy": 0.533,
        "continuous": 145,
        "continuous_busy": 0.698,
        "bound": 102,
    },
    15: {
        "int8_tensor": 0.08287,
        "int8_token": 0.02243,
        "int8_channel": 0.00842,
        "int4_tensor": 0.50478,
        "int4_token": 0.30986,
        "int4_channel": 0.14983,
    },
    16: {"numbers": 128, "bytes": 64, "round_trip": True},
    18: {"gpu": [0, 0, 4], "cpu": [0, 10, 6], "hardware": "simulated"},
    19: {"equal": True, "copied": True, "device": "cpu"},
    21: {"hardware": "simulated", "refused": 3, "left": 0},
    24: {
        "ttft_s": 0.10,
        "tpot_s": 0.05,
        "itl_s": [0.04, 0.04, 0.07],
        "p50_p95_p99": pytest.approx([5.5, 59.05, 91.81]),
    },
}


@pytest.mark.parametrize("number", range(1, SCRIPTS + 1))
def test_demo_of_a_script(demos, number):
    found = demos.run(number, 0)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert rows("The 25 scripts")[number - 1][0] == f"{number} {found['name']}"
    wanted = ACCEPTED.get(number, {})
    assert {name: found[name] for name in wanted} == wanted
    if number == 1:
        assert found["max_abs_error"] <= 1e-5 and found["future_changes"] == 0
        assert found["sizes"] == list(range(1, 13))
    if number == 2:
        assert found["relative_error"] <= 1e-5
    if number == 5:
        fit = [found[name]["sequences_of_4096"] for name in demos.MODELS]
        assert fit == [27, 13, 104, 0, 107, 586]
    if number == 6:
        assert found["relative_error"] <= 2.0**-4
    if number in (7, 13):
        assert found["max_abs_error"] <= 1e-5
    if number == 17:
        assert found["h2o"] > found["window"]
    if number == 20:
        times = [list(way.values()) for way in list(found.values())[3:]]
        assert times == [
            [8.394, 33.559],
            [1.195, 4.774],
            [10.740, 42.953],
            [42.960, 171.809],
        ]
    if number == 22:
        assert found["a=0.8"]["expected"] == 3.3616
        for one in (found["a=0.5"], found["a=0.8"]):
            assert one["drawn"] == pytest.approx(one["expected"], rel=0.01)
    if number == 25:
        assert list(found.values())[3:] == [
            "llama.cpp",
            "TensorRT-LLM",
            "SGLang",
            "Dynamo",
            "vLLM",
        ]


@pytest.mark.parametrize("seed", range(1, 11))
def test_heavy_hitters_of_script_17_are_worth_it_at_any_seed(demos, seed):
    found = demos.run(17, seed)
    assert found["h2o"] >= found["window"]


def test_errors_of_script_15_after_a_sample(demos):
    """Its second set of values: the generator has drawn script 9's sample before."""
    rng = np.random.default_rng(0)
    rng.lognormal(5, 0.8, 10_000)
    assert demos.quantisation_errors(rng) == {
        "int8_tensor": 0.09917,
        "int8_token": 0.02245,
        "int8_channel": 0.00968,
        "int4_tensor": 0.50968,
        "int4_token": 0.30991,
        "int4_channel": 0.17405,
    }


def eight_at_once(lengths: list[int], batching: Batching) -> Served:
    """Requests that arrive together and make so many tokens, four in a batch."""
    trace = trace_of_tokens(
        [[at] for at in range(8)],
        block_tokens=1,
        arrival_s=[0.0] * 8,
        output_tokens=lengths,
    )
    cost = roofline(model("llama-3.1-8b"), accelerator("h100"))
    return simulate(trace, lru(), Server(5000, max_running=4, batching=batching), cost)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 60), min_size=8, max_size=8))
def test_continuous_batching_never_takes_more_steps(lengths):
    """Script 12, any lengths: fewer or equal, and no fewer than slots allow."""
    static = eight_at_once(lengths, "static").totals["steps"]
    continuous = eight_at_once(lengths, "max_throughput").totals["steps"]
    assert static == max(lengths[:4]) + max(lengths[4:])
    bound = max(-(-sum(lengths) // 4), *lengths)
    assert bound <= continuous <= static


def test_a_single_token_has_no_tpot_and_meets_any():
    """Script 24, n = 1: left out of the mean, 0 for goodput."""
    served = eight_at_once([1, 5, 1, 5, 5, 5, 5, 5], "max_throughput")
    tpot = latencies(served)["tpot_s"]
    single = served.made_tokens == 1
    assert single.sum() == 2 and np.array_equal(np.isnan(tpot), single)
    assert np.array_equal(meets(served, Limits(tpot_s=0.0)), single)


def test_tokens_of_script_24_by_the_simulators_metrics():
    """Tokens at 0.10, 0.14, 0.18 and 0.25 s after the arrival."""
    tokens = 7.0 + np.array([0.10, 0.14, 0.18, 0.25])
    nothing: Any = [None] * len(State._fields)
    with jax.enable_x64(True):
        state = State(*nothing)._replace(
            itl_bins=jnp.zeros(ITL_BINS, jnp.int64),
            sums=Sums(*[jnp.float64(0.0)] * len(Sums._fields)),
        )
        for gap_s in np.diff(tokens):
            state = note_gap(state, gap_s, jnp.int64(1))
    served = eight_at_once([4] * 8, "max_throughput")
    served = dataclasses.replace(
        served,
        arrived_s=np.full(8, 7.0),
        first_token_s=np.full(8, tokens[0]),
        ended_s=np.full(8, tokens[-1]),
        itl_counts=np.asarray(state.itl_bins),
        totals=served.totals | {"itl_s": float(state.sums.itl_s)},
    )
    found, between = latencies(served), itl(served)
    assert found["ttft_s"].tolist() == pytest.approx([0.10] * 8)
    assert found["tpot_s"].tolist() == pytest.approx([0.05] * 8)
    assert between.n == 3 and between.mean == pytest.approx(0.05)
    assert between.p50 == pytest.approx(0.04, rel=0.006)  # a bin of 1 %
    assert served.itl_counts[served.itl_counts > 0].tolist() == [2, 1]
    near = {"ttft_s": 0.11, "tpot_s": 0.051, "e2e_s": 0.26}
    assert meets(served, Limits(**near)).all()
    for name in near:  # every objective, not most of them
        assert not meets(served, Limits(**near | {name: 0.01})).any()


@pytest.mark.parametrize("lead_s", [0.0, 0.4, 1.0, 2.0, 3.0])
def test_prefetch_of_the_simulator_hides_its_lead(lead_s):
    """Script 18: a request whose blocks are on a disk queues for its lead.

    The server sees who came at the end of a step, so a stall is up to a step longer.
    """
    documents = [
        [1000 * doc + at for at in range(16 * blocks)]
        for doc, blocks in ((0, 12), (1, 12), (2, 12), (3, 10), (0, 12))
    ]
    cost = roofline(model("llama-3.1-8b"), accelerator("l4"))
    tiers = LowerTier("cpu", 14, 0.0), LowerTier("disk", 100, 0.1, latency_s=0.5)
    server = Server(
        14, max_running=1, token_budget=256, offload=Offload(tiers, prefetch=True)
    )

    def last_arrives(at_s):
        trace = trace_of_tokens(
            documents,
            block_tokens=16,
            arrival_s=[0.0, 100.0, 200.0, 300.0, at_s],
            output_tokens=[1, 1, 1, 60, 1],
        )
        return simulate(trace, lru(), server, cost)

    transfer_s = 0.5 + 12 * 0.1
    alone = last_arrives(400.0)
    assert alone.below is not None
    assert alone.below.wait_s[4] == pytest.approx(transfer_s)
    found = last_arrives(alone.ended_s[3] - lead_s)
    assert found.below is not None and found.below.loaded_blocks[4] == 12
    late = found.below.wait_s[4] - max(0.0, transfer_s - lead_s)
    assert -1e-9 <= late < 0.07 and (late <= 1e-9 or 0 < lead_s < transfer_s)


def test_a_copy_stalls_for_what_its_lead_does_not_hide(demos):
    """Script 18: nothing where the lead is as long as the transfer."""
    copy_s = float(link("pcie5").time_s(5_011 * 28_672))
    assert 0.001 < copy_s < 1
    stalls = demos.run(18, 0)["stall_s_by_lead"]
    assert stalls == {"0 ms": copy_s, "1 ms": copy_s - 0.001, "1000 ms": 0.0}


def test_a_seed_gives_the_same_demo_and_another_one_another(demos):
    assert demos.run(14, 3) == demos.run(14, 3) != {**demos.run(14, 4), "seed": 3}


def test_the_three_lines_of_script_4(demos):
    assert demos.layout_lines() == [
        "LayerKVCache created successfully.",
        "Stored tokens: 10",
        "Head 0 key offset for token 0: 0",
    ]


def test_a_layout_and_a_registration_refuse_what_is_not_there(demos):
    cache = demos.LayerKVCache(heads=2, max_tokens=4, head_size=8)
    cache.store(4)
    with pytest.raises(ValueError, match="room for 4"):
        cache.store(1)
    with pytest.raises(ValueError, match="there is none"):
        cache.offset(2, 0)
    table = demos.Registrations()
    key = table.register(10)
    table.deregister(key)
    with pytest.raises(KeyError):
        table.read_s(key, 0, 1)
    with pytest.raises(KeyError):
        table.deregister(key)
    assert table.register(1) != key
