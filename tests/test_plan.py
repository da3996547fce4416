"""Capacities for a target: by hand, against brute force, and what is said of them."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perc.compare import run
from perc.cost import DEFAULT_COST, PrefillCost
from perc.curves import lru_curve
from perc.errors import InputError
from perc.metrics import measure
from perc.plan import Plan, default_capacities, plan
from perc.plan_curves import knee, larger_never_hits_less
from perc.plan_needs import crossings, quantile, ttft_s
from perc.policies.registry import registry
from perc.traces.build import Columns, build_trace
from tests.strategies import traces

FLAT = PrefillCost("a second a token", 1.0, 0.0)
MONOTONE = [name for name, make in registry.items() if larger_never_hits_less(make())]
A_BLOCK = 2**30 / 4  # bytes per token that make a block of 4 tokens one GiB


@pytest.fixture(scope="module")
def abcaba():
    """Requests of one block each: a b c a b a, of 4, 3 and 2 tokens, two sessions.

    LRU hits nothing with 1 block, the last a with 2, and a b a with 3. Belady hits
    a and a with 2.
    """
    columns = Columns(
        arrival_s=np.arange(6.0),
        input_tokens=np.array([4, 3, 2, 4, 3, 4]),
        output_tokens=np.ones(6, np.int64),
        ids=np.array([0, 1, 2, 0, 1, 0]),
        lengths=np.ones(6, np.int64),
        session=["x", "y", "x", "y", "x", "y"],
    )
    return build_trace(columns, block_tokens=4, source="a b c a b a")


def sizes(found: Plan) -> list[tuple[str, float, int | None]]:
    return [(n.policy, n.target, n.capacity_blocks) for n in found.needs]


def test_needs_by_hand(abcaba):
    found = plan(
        abcaba,
        ["lru", "belady"],
        target_hit_ratio=2 / 6,
        target_token_hit_ratio=0.55,
        ttft_budget_s=3.0,
        ttft_percentile=80,
        bytes_per_token=A_BLOCK,
        cost=FLAT,
    )
    assert [need.goal for need in found.needs[:3]] == [
        "block_hit_ratio",
        "token_hit_ratio",
        "ttft_p80_s",
    ]
    assert sizes(found) == [
        ("lru", 2 / 6, 3),
        ("lru", 0.55, 3),  # 4 + 3 + 4 of 20 tokens
        ("lru", 3.0, 3),  # 4 3 2 0 0 0: five of six are at most 3
        ("belady", 2 / 6, 2),
        ("belady", 0.55, 3),
        ("belady", 3.0, 2),  # 4 3 2 0 3 0
    ]
    lru, *_, waits = found.needs
    assert lru.capacity_gib == 3.0 and lru.of_lru == 1.0
    assert (lru.reached, lru.best) == (0.5, 0.5)
    assert (waits.reached, waits.best, waits.of_lru) == (3.0, 3.0, 2 / 3)
    assert "bisection" in lru.method


def test_never_is_said_with_the_ceiling(abcaba):
    need = plan(abcaba, ["lru"], target_hit_ratio=0.51).needs[0]
    assert need.capacity_blocks is need.capacity_gib is need.reached is None
    assert need.of_lru is None and need.best == 0.5


def test_points_by_hand(abcaba):
    found = plan(
        abcaba,
        ["belady"],
        capacities=[1, 2],
        bytes_per_token=A_BLOCK,
        cost=FLAT,
        bootstrap=0,
    )
    one, two, three = found.points
    assert [p.capacity_gib for p in found.points] == [1.0, 2.0, 3.0]
    assert (one.block_hit_ratio, two.block_hit_ratio) == (0, 2 / 6)
    assert two.token_hit_ratio == 8 / 20
    assert two.over_lru == pytest.approx(1 / 6)
    assert (two.recompute_s, two.ttft_mean_s) == (12.0, 2.0)  # 4 3 2 0 3 0
    assert (two.ttft_p50_s, two.ttft_p95_s) == (2.0, 4.0)
    # From 2 to 3 GiB one b of 3 tokens more, in 5 s.
    assert two.saved_s_per_gib_hour == pytest.approx(3 * 3600 / 5)
    assert two.hit_ratio_per_gib == pytest.approx(1 / 6)
    assert three.saved_s_per_gib_hour is three.hit_ratio_per_gib is None
    assert two.block_hit_ratio_low is two.over_lru_high is None


def test_the_targets_without_a_target_are_shares_of_the_ideal(abcaba):
    found = plan(abcaba, ["lru"])
    assert [need.goal for need in found.needs] == ["share_of_ideal"] * 3
    assert sizes(found) == [("lru", 0.5, 3), ("lru", 0.8, 3), ("lru", 0.95, 3)]
    assert found.ideal_block_hit_ratio == 0.5


def test_warm_up_counts_the_end_only(abcaba):
    found = plan(abcaba, ["lru"], target_hit_ratio=1.0, warmup=0.5)
    assert sizes(found) == [("lru", 1.0, 3)]
    assert found.points[-1].block_hit_ratio == 1.0
    assert found.definitions["counted"].startswith("requests 4 to 6")


def test_nothing_ever_returns():
    columns = Columns(
        arrival_s=np.zeros(3),
        input_tokens=np.full(3, 4),
        output_tokens=np.ones(3, np.int64),
        ids=np.arange(3),
        lengths=np.ones(3, np.int64),
    )
    trace = build_trace(columns, block_tokens=4, source="once each")
    found = plan(trace, ["lru"])
    assert found.ideal_block_hit_ratio == 0 and not found.knees
    assert {need.capacity_blocks for need in found.needs} == {None}
    assert {point.saved_s_per_gib_hour for point in found.points} == {None}  # no time


@settings(deadline=None, max_examples=40)
@given(
    traces(max_requests=10, max_depth=4),
    st.sampled_from(MONOTONE),
    st.floats(0.01, 1),
    st.sampled_from([0.0, 0.4]),
)
def test_the_capacity_is_the_smallest_that_does(trace, policy, share, warmup):
    assume(trace.n_accesses)
    skip = int(warmup * trace.n_requests)
    budget_s = share * float(ttft_s(trace, np.zeros_like(trace.start), FLAT).max())
    assume(budget_s > 0)
    found = plan(
        trace,
        [policy],
        target_hit_ratio=share,
        target_token_hit_ratio=share,
        ttft_budget_s=budget_s,
        ttft_percentile=70,
        capacities=[1],
        warmup=warmup,
        cost=FLAT,
        bootstrap=0,
    )
    every = run(registry[policy](), trace, range(trace.n_blocks + 1), cost=FLAT)
    rows = [measure(trace, hits, warmup_requests=skip, cost=FLAT) for hits in every]
    waits = ttft_s(trace, every, FLAT)[:, skip:]
    met = (
        [row.block_hit_ratio >= share - 1e-9 for row in rows],
        [row.token_hit_ratio >= share - 1e-9 for row in rows],
        [(wait <= budget_s).mean() >= 0.7 - 1e-9 for wait in waits],
    )
    for need, holds in zip(found.needs, met, strict=True):
        assert need.capacity_blocks == (holds.index(True) if any(holds) else None)


@settings(deadline=None, max_examples=40)
@given(traces(max_requests=12, max_depth=4), st.sampled_from(MONOTONE))
def test_what_is_bisected_never_hits_less_with_more(trace, policy):
    hits = run(registry[policy](), trace, range(trace.n_blocks + 1))
    assert (np.diff(hits, axis=0) >= 0).all()


def test_fifo_is_not_bisected(small_chat):
    assert "fifo" not in MONOTONE and "perc" not in MONOTONE
    assert {"lru", "perc_decay", "belady_bypass"} <= {*MONOTONE}
    grid = [50, 200, 400, 800]
    found = plan(small_chat, ["fifo"], capacities=grid, target_hit_ratio=0.06)
    need = found.needs[0]
    ratios = {p.capacity_blocks: p.block_hit_ratio for p in found.points}
    held = [s for s in ratios if all(ratios[t] >= 0.06 for t in ratios if t >= s)]
    assert need.capacity_blocks == min(held)
    assert "grid" in need.method


def test_lru_agrees_with_its_exact_curve(small_chat):
    curve = lru_curve(small_chat) / small_chat.n_accesses
    for need in plan(small_chat, ["lru"], bootstrap=0).needs:
        size = int(np.searchsorted(curve, need.target * curve[-1] - 1e-12))
        assert need.capacity_blocks == size


def test_intervals_hold_the_estimates_and_lru_differs_from_itself_by_0(small_chat):
    found = plan(small_chat, ["lru", "perc", "belady"])
    for p in found.points:
        for name in ("block_hit_ratio", "token_hit_ratio", "over_lru"):
            low, high = (getattr(p, f"{name}_{end}") for end in ("low", "high"))
            assert low <= getattr(p, name) <= high
        if p.policy == "lru":
            assert p.over_lru_low == p.over_lru_high == 0.0
    for need in found.needs:
        assert need.low_blocks is not None and need.capacity_blocks is not None
        assert need.low_blocks <= need.capacity_blocks
        assert need.high_blocks is None or need.capacity_blocks <= need.high_blocks
    belady = found.needs[-1]
    assert belady.of_lru_high is not None and belady.of_lru_high < 1


def test_lru_is_the_yardstick_without_being_asked_for(small_chat):
    alone = plan(small_chat, ["perc"], capacities=[100, 400], bootstrap=50)
    beside = plan(small_chat, ["perc", "lru"], capacities=[100, 400], bootstrap=50)
    assert alone.points == beside.points[: len(alone.points)]
    assert {point.policy for point in alone.points} == {"perc"}


def test_reruns_are_bit_identical_and_fit_json(small_chat):
    first, second = (plan(small_chat, bootstrap=50).as_dict() for _ in range(2))
    text = json.dumps(first, allow_nan=False)
    assert text == json.dumps(second, allow_nan=False)
    other = plan(small_chat, bootstrap=50, seed=1).as_dict()
    assert other["knees"] == first["knees"] and other["points"] != first["points"]


def test_the_default_is_llama_3_8b(small_chat):
    found = plan(small_chat, ["lru"], capacities=[8], bootstrap=0)
    assert "131,072 bytes (Llama-3-8B at 16 bits)" in found.definitions["capacity_gib"]
    assert found.points[0].capacity_gib == 8 * 512 * 131072 / 2**30
    other = plan(small_chat, ["lru"], capacities=[8], bytes_per_token=1, bootstrap=0)
    assert "Llama" not in other.definitions["capacity_gib"]


def test_the_grid_reaches_from_the_longest_request_to_everything(small_chat):
    grid = default_capacities(small_chat)
    assert grid[0] == small_chat.longest_request and grid[-1] == small_chat.n_blocks
    assert 24 <= len(grid) <= 32 and grid == sorted(grid)


def test_the_knee_by_hand():
    assert knee([1, 10, 100, 1000], [0, 0.6, 0.8, 0.9]) == 1
    assert knee([0, 1, 10, 100, 1000], [0, 0, 0.1, 0.8, 0.9]) == 3
    assert knee([1, 10, 100], [0, 0.1, 0.9]) is None  # hits rise ever faster
    assert knee([1, 10, 100], [0, 0.4, 0.8]) is None  # along the chord
    assert knee([1, 10, 100], [0.5, 0.5, 0.5]) is None
    assert knee([1, 10], [0, 1]) is None


def test_crossings_by_hand():
    draws = np.array([[0.0, 0.0, 0.5, 0.0], [0.4, 0.1, 0.2, 0.3], [0.4, 0.3, 0.6, 0.1]])
    found = crossings([0, 10, 20], draws, 0.2)
    assert found.tolist() == [5.0, 15.0, 0.0, np.inf]


@given(st.lists(st.integers(0, 9), min_size=1), st.floats(0.01, 1))
def test_the_quantile_is_the_smallest_value_that_holds(values, share):
    found = quantile(np.array(values, float), share)
    held = [v for v in values if np.mean(np.array(values) <= v) >= share - 1e-9]
    assert found == min(held)


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"target_hit_ratio": 0.0}, "target hit ratio of 0.0"),
        ({"target_hit_ratio": 1.5}, "target hit ratio of 1.5"),
        ({"target_token_hit_ratio": float("nan")}, "target hit ratio of nan"),
        ({"ttft_budget_s": 0.0}, "TTFT budget of 0.0 s"),
        ({"ttft_budget_s": 1.0, "ttft_percentile": 101}, "percentile of 101"),
        ({"bytes_per_token": 0}, "0 bytes per token"),
        ({"bootstrap": -1}, "-1 bootstrap samples"),
        ({"warmup": 1.0}, "warm-up share of 1.0"),
        ({"capacities": [-1]}, "capacity of -1"),
        ({"policies": ["best"]}, "no policy is called 'best'"),
    ],
)
def test_bad_input_is_named(abcaba, wrong, words):
    with pytest.raises(InputError, match=words):
        plan(abcaba, **wrong)


def test_a_trace_without_blocks_is_refused(abcaba):
    empty = dataclasses.replace(abcaba, block=abcaba.block[:0])
    with pytest.raises(InputError, match="no block ids"):
        plan(empty)


@pytest.mark.real_trace
def test_the_conversation_trace(traces_folder):
    from perc.traces import load

    trace = load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    found = plan(trace, ["lru"], bootstrap=0, cost=DEFAULT_COST)
    # Agreed on by three programs: half of the ideal takes LRU this many blocks.
    assert found.needs[0].capacity_blocks == 8295
