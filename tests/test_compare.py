"""The comparison: rows, the gap between LRU and the bound, and equal work."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.compare import Comparison, Row, compare, resolve, run
from perc.cost import PrefillCost
from perc.errors import InputError
from perc.metrics import measure
from perc.policies.registry import registry
from perc.traces.build import Columns, build_trace
from perc.types import Policy
from tests.oracles import cache as oracle
from tests.strategies import rows_of, traces
from tests.test_step import trace_of

FLAT = PrefillCost("a second a token", 1.0, 0.0)
ALL = list(registry)


def _largest_leaves_first(params, f):
    return -1.0 * f.tokens


def _newest_leaves_first(params, f):
    return -1.0 * f.step


WORST = Policy((), _largest_leaves_first, "worst", uses=("tokens",))
NEWEST_BYPASS = Policy((), _newest_leaves_first, "newest", ("step",), bypass=True)


@pytest.fixture(scope="module")
def abcaba():
    """Requests of one block each: a b c a b a, of 4, 3 and 2 tokens.

    With 2 blocks LRU hits the last a only; belady gives up b for c and hits a twice;
    belady_bypass does not store c and hits a, b, a; `WORST` hits nothing.
    """
    ids = np.array([0, 1, 2, 0, 1, 0])
    columns = Columns(
        arrival_s=np.arange(6.0),
        input_tokens=np.array([4, 3, 2, 4, 3, 4]),
        output_tokens=np.ones(6, np.int64),
        ids=ids,
        lengths=np.ones(6, np.int64),
    )
    return build_trace(columns, block_tokens=4, source="a b c a b a")


def gaps(result: Comparison) -> dict[tuple[str, int], float | None]:
    return {(row.policy, row.capacity_blocks): row.gap_closed for row in result.rows}


def test_rows_by_hand(abcaba):
    result = compare(abcaba, ["lru", WORST, "belady"], [2], cost=FLAT)
    assert result.rows == [
        Row("lru", 2, 1 / 6, 4 / 20, 16, 16.0, 0.0),
        Row("worst", 2, 0.0, 0.0, 20, 20.0, -1.0),
        Row("belady", 2, 2 / 6, 8 / 20, 12, 12.0, 1.0),
    ]


def test_rows_go_by_capacity_then_as_the_policies_were_given(abcaba):
    result = compare(abcaba, ["belady", "lfu", "lru"], [3, 1])
    assert [(row.capacity_blocks, row.policy) for row in result.rows] == [
        (1, "belady"),
        (1, "lfu"),
        (1, "lru"),
        (3, "belady"),
        (3, "lfu"),
        (3, "lru"),
    ]


def test_no_gap_is_none_and_not_a_number(abcaba):
    result = compare(abcaba, ["lru", "belady", WORST], [0, 1, 3])
    assert set(gaps(result).values()) == {None}


def test_a_bypassing_policy_is_measured_against_the_bypassing_bound(abcaba):
    found = gaps(compare(abcaba, [NEWEST_BYPASS, "belady", "belady_bypass"], [1, 2]))
    assert found["newest", 2] == found["belady_bypass", 2] == found["belady", 2] == 1.0
    assert found["belady", 1] is None and found["belady_bypass", 1] == 1.0


def test_lru_and_the_bound_run_but_have_no_row_unless_asked(abcaba):
    seen = []
    result = compare(abcaba, [WORST], [2], progress=lambda *now: seen.append(now))
    assert [row.policy for row in result.rows] == ["worst"]
    assert result.rows[0].gap_closed == -1.0
    assert seen == [(0, 3, "worst"), (1, 3, "lru"), (2, 3, "belady"), (3, 3, "done")]


def test_each_policy_runs_once(abcaba):
    seen = []
    names = ["belady_bypass", "belady", "lru"]
    compare(abcaba, names, [2], progress=lambda *now: seen.append(now[2]))
    assert seen == [*names, "done"]


def test_a_foreign_policy_called_lru_does_not_move_the_gap(abcaba):
    impostor = dataclasses.replace(WORST, name="lru")
    assert gaps(compare(abcaba, [impostor], [2])) == {("lru", 2): -1.0}


def test_unknown_policy_is_answered_with_the_known_ones(abcaba):
    with pytest.raises(InputError, match="'lruu'. There are: lru, .*belady"):
        compare(abcaba, ["lru", "lruu"])


def test_one_name_twice_is_refused(abcaba):
    with pytest.raises(InputError, match="'lfu' is given twice. Name each once"):
        compare(abcaba, ["lfu", "lru", registry["lfu"]()])


def test_no_policy_is_refused():
    with pytest.raises(InputError, match="no policy given; for example"):
        resolve([])


def test_variants_with_names_of_their_own_stand_side_by_side(abcaba):
    make = registry["perc_decay"]
    variants = [
        dataclasses.replace(make(tau_s=t), name=f"perc {t}") for t in (0.0, 9.0)
    ]
    result = compare(abcaba, [*variants, "lru"], [2])
    assert [row.policy for row in result.rows] == ["perc 0.0", "perc 9.0", "lru"]


def test_a_trace_without_blocks_says_why():
    columns = Columns(
        arrival_s=np.arange(2.0),
        input_tokens=np.array([100, 100]),
        output_tokens=np.ones(2, np.int64),
        ids=np.zeros(0, np.int64),
        lengths=np.zeros(2, np.int64),
    )
    trace = build_trace(columns, block_tokens=16, source="lengths.csv")
    with pytest.raises(InputError, match="lengths.csv has no block ids.*perc make"):
        compare(trace)


def test_where_blocks_are_required_nothing_to_replay_is_refused():
    empty = perc.make("chat", requests=0)
    with pytest.raises(InputError, match="has no requests"):
        perc.plan(empty, bytes_per_token=1.0)
    short = dataclasses.replace(
        empty,
        arrival_s=np.zeros(1),
        input_tokens=np.array([3]),
        output_tokens=np.ones(1, np.int64),
        start=np.zeros(1, np.int32),
        stop=np.zeros(1, np.int32),
    )
    with pytest.raises(InputError, match="has 3 tokens and fills no block"):
        perc.plan(short, bytes_per_token=1.0)


def test_an_empty_trace_gives_zeros():
    result = compare(perc.make("chat", requests=0), ALL)
    assert [row.policy for row in result.rows] == ALL  # every share of nothing is 0
    for row in result.rows:
        assert row == Row(row.policy, 0, 0.0, 0.0, 0, 0.0, None)
    assert result.lru_blocks_to_match(0.0) == 0


def test_clairvoyant_policies_are_told_apart(abcaba):
    result = compare(abcaba, ["belady", "lru", "belady_bypass"], [2])
    assert result.clairvoyant == ("belady", "belady_bypass")


def test_as_dict_is_what_the_issue_promises(abcaba):
    found = compare(abcaba, ["lru"], [2], warmup=0.5, cost=FLAT).as_dict()
    assert list(found) == ["trace", "definitions", "rows"]
    assert list(found["rows"][0]) == [
        "policy",
        "capacity_blocks",
        "block_hit_ratio",
        "token_hit_ratio",
        "recompute_tokens",
        "recompute_s",
        "gap_closed",
    ]
    assert found["trace"]["source"] == "a b c a b a"
    assert found["trace"]["distinct_blocks"] == 3
    assert found["trace"]["ideal_block_hit_ratio"] == 0.5
    assert "a second a token" in found["definitions"]["recompute_s"]
    assert "requests 4 to 6 (warm-up share 0.5)" in found["definitions"]["counted"]
    json.dumps(found, allow_nan=False)


def test_warm_up_cuts_the_counts_and_not_the_cache(abcaba):
    rows = compare(abcaba, ["lru"], [3], warmup=0.5, cost=FLAT).rows
    assert rows == [Row("lru", 3, 1.0, 1.0, 0, 0.0, None)]


def test_warm_up_equals_measuring_the_end_of_the_whole_replay(small_chat):
    sizes, skip = [50, 400], 120
    result = compare(small_chat, ["perc", "lfu"], sizes, warmup=0.4)
    for row in result.rows:
        policy = registry[row.policy]()
        hits = run(policy, small_chat, sizes)[sizes.index(row.capacity_blocks)]
        found = measure(small_chat, hits, warmup_requests=skip)
        assert row.block_hit_ratio == found.block_hit_ratio
        assert row.recompute_tokens == found.recompute_tokens
        assert row.recompute_s == found.recompute_s
    blocks = (small_chat.stop - small_chat.start)[skip:].sum()
    assert result.counted_blocks == blocks


def test_every_policy_serves_the_same_tokens(small_chat):
    result = compare(small_chat, ALL, [0, 37, 0.1, 0.5, 1.0], warmup=0.1)
    asked = int(small_chat.input_tokens[30:].sum())
    for row in result.rows:
        assert row.recompute_tokens + round(row.token_hit_ratio * asked) == asked


def test_hits_are_kept_on_demand_and_are_those_of_the_rows(small_chat):
    names, sizes = ["perc", "lfu"], [60, 300]
    plain = compare(small_chat, names, sizes)
    kept = compare(small_chat, names, sizes, keep_hits=True)
    assert plain.hits is None and kept.hits is not None
    assert list(kept.hits) == ["lru", "perc", "lfu"]
    assert plain.rows == kept.rows
    for name, hits in kept.hits.items():
        (policy,) = resolve([name])
        assert np.array_equal(hits, run(policy, small_chat, sizes))


def test_everything_fits_then_every_policy_is_ideal(small_chat):
    result = compare(small_chat, ALL, [small_chat.n_blocks])
    ideal = result.trace["ideal_block_hit_ratio"]
    assert {row.block_hit_ratio for row in result.rows} == {ideal}


def test_reruns_are_bit_identical(small_chat):
    first, second = (compare(small_chat, ALL, [0.02, 0.1]) for _ in range(2))
    assert json.dumps(first.as_dict()) == json.dumps(second.as_dict())
    assert first.lru_hits.tobytes() == second.lru_hits.tobytes()


def test_priority_without_priorities_is_lru(small_chat):
    rows = compare(small_chat, ["lru", "priority"], [50, 500]).rows
    for lru, priority in zip(rows[::2], rows[1::2], strict=True):
        assert priority == dataclasses.replace(lru, policy="priority")


@settings(deadline=None, max_examples=40)
@given(traces(max_requests=10, max_depth=4), st.sampled_from([0.0, 0.3, 0.8]))
def test_lru_blocks_to_match_is_the_smallest_that_does(trace, warmup):
    if trace.n_requests and not trace.n_accesses:
        return  # refused, see above
    result = compare(trace, ["lru"], [0], warmup=warmup)
    skip = int(warmup * trace.n_requests)
    chains, scores = rows_of(trace, trace.block), rows_of(trace, trace.request)
    hits = [
        sum(oracle.simulate(chains, scores, size)[0][skip:])
        for size in range(trace.n_blocks + 1)
    ]
    assert result.lru_hits.tolist() == hits
    counted = sum(len(chain) for chain in chains[skip:])
    assert result.counted_blocks == counted
    for k in range(counted + 1):
        smallest = next((size for size, n in enumerate(hits) if n >= k), None)
        assert result.lru_blocks_to_match(k / counted if counted else 0.0) == smallest


def test_lru_matches_its_own_rows_with_no_more_than_their_blocks(small_chat):
    result = compare(small_chat, ["lru"], [10, 100, 1000])
    for row in result.rows:
        match = result.lru_blocks_to_match(row.block_hit_ratio)
        assert match is not None and match <= row.capacity_blocks
    assert result.lru_blocks_to_match(0.999) is None


def test_fifo_is_fifo_by_name_and_is_no_lru():
    """0 1 0 2 0 with two slots: LRU keeps the 0 that FIFO drops."""
    trace = trace_of([[0], [1], [0], [2], [0]])
    lru, fifo, belady = compare(trace, ["lru", "fifo", "belady"], [2]).rows
    assert (lru.block_hit_ratio, fifo.block_hit_ratio) == (0.4, 0.2)
    assert fifo.gap_closed is None  # LRU is the bound here
    (alone,) = compare(trace_of([[0], [1], [0], [2], [1], [0]]), ["fifo"], [2]).rows
    assert alone.gap_closed is not None


def test_a_cache_that_matches_reaches_the_ratio():
    result = compare(trace_of([[0], [1], [0], [1], [1], [0]]), ["lru"], [1])
    hits = result.lru_hits / result.counted_blocks
    for ratio in (0.0, 0.1, 0.25, 1 / 6, 0.5, 4 / 6, 0.9):
        size = result.lru_blocks_to_match(ratio)
        reached = [k for k, h in enumerate(hits) if h >= ratio - 1e-9]
        assert size == (reached[0] if reached else None), ratio
