"""Three engines, one semantics: plain Python, `step` and the rank bit set."""

import warnings
from typing import cast

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import TraceWarning
from perc.features import NEVER
from perc.policies.registry import registry
from perc.replay import replay_one
from perc.step import replay_steps
from perc.types import Policy
from tests.oracles import cache as oracle
from tests.oracles import sized as sized_oracle
from tests.strategies import rows_of, traces
from tests.test_step import trace_of


def _few_scores(params, f):
    """Many ties, not monotone in anything, different along a prompt."""
    return (f.step * 7 + f.depth * params) % 5


flags = st.tuples(st.booleans(), st.booleans(), st.booleans())


@settings(deadline=None, max_examples=150)
@given(traces(), st.sampled_from([0, 2, 5]), st.integers(1, 4), flags)
def test_engines_agree(trace, capacity, salt, flag):
    bypass, refresh, chain = flag
    policy = Policy(
        np.int32(salt), _few_scores, "few", ("step", "depth"), refresh, chain, bypass
    )
    score = perc.scores(policy, trace)
    hits, victims = oracle.simulate(
        rows_of(trace, trace.block),
        rows_of(trace, score),
        capacity,
        bypass=bypass,
        refresh=refresh,
    )
    fast = perc.replay(
        trace, perc.ranks(trace, score), [capacity], bypass=bypass, refresh=refresh
    )
    slow = replay_steps(policy, trace, capacity)
    assert fast.blocks[0].tolist() == hits
    assert np.asarray(slow.blocks).tolist() == hits
    evicted = sum(len(row) for row in victims)
    assert int(fast.evictions[0]) == int(slow.evictions) == evicted


@settings(deadline=None, max_examples=60)
@given(
    traces(), st.sampled_from([0, 4, 9]), st.integers(1, 4), st.booleans(), st.data()
)
def test_blocks_of_different_sizes(trace, capacity, salt, bypass, data):
    sizes = st.lists(
        st.integers(1, 4), min_size=trace.n_blocks, max_size=trace.n_blocks
    )
    size_of = np.array(data.draw(sizes), np.int32)
    policy = Policy(np.int32(salt), _few_scores, "few", ("step", "depth"))
    score = perc.scores(policy, trace)
    expected = sized_oracle.simulate(
        rows_of(trace, trace.block),
        rows_of(trace, score),
        size_of,
        capacity,
        bypass=bypass,
    )
    found = perc.replay(
        trace, perc.ranks(trace, score), [capacity], bypass=bypass, sizes=size_of
    )
    assert (found.blocks[0].tolist(), int(found.evictions[0])) == expected


def _dead_below(params, f):
    """Dead blocks below all others, the living in an order that changes nothing."""
    return jnp.where(f.next_use == NEVER, -jnp.inf, (f.step * 7) % 5)


@settings(deadline=None, max_examples=60)
@given(traces(max_requests=40), st.booleans(), st.sampled_from([0, 1, 3, 5, 8]))
def test_orders_that_rank_the_dead_below_all_others(trace, bypass, capacity):
    """The engine only counts what is never used again; hits and evictions stay."""
    policy = Policy((), _dead_below, "dead below", ("next_use", "step"))
    score = perc.scores(policy, trace)
    hits, victims = oracle.simulate(
        rows_of(trace, trace.block), rows_of(trace, score), capacity, bypass=bypass
    )
    found = perc.replay(trace, perc.ranks(trace, score), [capacity], bypass=bypass)
    assert found.blocks[0].tolist() == hits
    assert int(found.evictions[0]) == sum(map(len, victims))


@pytest.mark.parametrize("sizes", [[0, 1], [2**30, 2**30], [1]])
def test_sizes_that_cannot_be_are_refused(sizes):
    trace = trace_of([[0], [1]])
    with pytest.raises(ValueError, match="sizes"):
        perc.replay(trace, perc.ranks(trace, trace.request), [1], sizes=np.array(sizes))


def test_shapes_follow_ranks_and_capacities(small_chat):
    ranks = perc.ranks(small_chat, np.stack([small_chat.request, small_chat.depth]))
    assert ranks.shape == (2, small_chat.n_accesses)
    hits = perc.replay(small_chat, ranks, [10, 100, 1000])
    assert hits.blocks.shape == (2, 3, small_chat.n_requests)
    assert hits.evictions.shape == (2, 3)
    one = perc.replay(small_chat, ranks[1], [100])
    assert np.array_equal(one.blocks[0], hits.blocks[1, 1])


def test_other_orders_capacities_and_traces_compile_nothing_new(small_chat):
    """Traces of similar size are padded to one shape, so they share the program."""
    other = perc.make("chat", requests=290, seed=5)
    before: int = replay_one._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    for trace in (small_chat, other):
        for seed in range(2):
            score = np.random.default_rng(seed).random(trace.n_accesses)
            for capacity in (10, 200):
                perc.replay(trace, perc.ranks(trace, score), [capacity])
    after: int = replay_one._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    assert after - before <= 1


def test_replaying_twice_is_identical(small_chat):
    score = perc.scores(registry["perc_decay"](), small_chat)
    again = perc.scores(registry["perc_decay"](), small_chat)
    assert score.tobytes() == again.tobytes()
    first, second = (
        perc.replay(small_chat, perc.ranks(small_chat, s), [100]).blocks
        for s in (score, again)
    )
    assert first.tobytes() == second.tobytes()


def test_negative_capacity_and_foreign_ranks_are_refused(small_chat):
    ranks = perc.ranks(small_chat, small_chat.request)
    for capacity in cast(list[int], [-1, 0.5]):
        with pytest.raises(ValueError, match="whole number of blocks, 0 or more"):
            perc.replay(small_chat, ranks, [capacity])
    with pytest.raises(ValueError, match="same trace"):
        perc.replay(small_chat, ranks[:-1], [1])


@pytest.mark.parametrize("spoil", [lambda r: r + 10, lambda r: r * 0, lambda r: r / 2])
def test_what_is_no_permutation_is_refused(small_chat, spoil):
    """An engine would loop for ever on ranks that two blocks share."""
    ranks = perc.ranks(small_chat, small_chat.request)
    with pytest.raises(ValueError, match="scores become ranks by"):
        perc.replay(small_chat, spoil(ranks), [50])


def test_a_hole_ends_the_hit():
    """[0, 1, 2] with its middle gone hits one block, though two are resident."""
    trace = trace_of([[0, 1, 2], [3], [0, 1, 2]])
    score = np.array([9, 0, 9, 5, 9, 9, 9], np.float32)
    hits = perc.replay(trace, perc.ranks(trace, score), [3]).blocks
    assert hits.tolist() == [[0, 0, 1]]


def test_a_capacity_beyond_all_accesses_holds_everything(small_chat):
    ranks = perc.ranks(small_chat, small_chat.request)
    for sizes in ([2**40], [5, 2**40]):
        found = perc.replay(small_chat, ranks, sizes)
        assert found.blocks[-1].sum() == np.count_nonzero(small_chat.prev >= 0)
        assert found.evictions[-1] == 0


def test_empty_trace_has_no_hits():
    trace = perc.make("chat", requests=0)
    hits = perc.replay(trace, np.zeros(0, np.int32), [5])
    assert hits.blocks.shape == (1, 0)


@pytest.mark.real_trace
def test_reference_hits_of_the_conversation_trace(traces_folder):
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    sizes = [1_000, 3_000, 10_000, 30_000, 50_000, 100_000]
    expected = {  # policies.md section 7; fifo there lets the newcomer go
        ("lru", False): [12_847, 18_850, 61_046, 93_978, 102_290, 104_924],
        ("lru", True): [12_847, 18_850, 61_046, 93_978, 102_290, 104_924],
        ("fifo", True): [12_572, 18_261, 52_294, 84_745, 96_216, 102_794],
        ("lfu", True): [23_738, 34_015, 54_217, 80_750, 98_968, 104_755],
        ("lfu", False): [22_320, 33_590, 54_034, 80_750, 98_968, 104_755],
        ("belady", False): [51_705, 84_121, 105_710, 105_710, 105_710, 105_710],
        ("belady", True): [55_019, 84_953, 105_710, 105_710, 105_710, 105_710],
    }
    for (name, bypass), hits in expected.items():
        policy = registry[name]()
        order = perc.ranks(trace, perc.scores(policy, trace))
        found = perc.replay(trace, order, sizes, bypass=bypass, refresh=policy.refresh)
        assert found.blocks.sum(axis=1).tolist() == hits, (name, bypass)


@pytest.mark.real_trace
@pytest.mark.parametrize(
    ("file", "sizes", "lru", "forced", "bypass"),
    [
        (
            "claude_code_v6_interleaved24h_b512.jsonl.xz",
            [466, 932, 1865, 3731],
            [29.2, 57.7, 83.6, 92.8],
            [44.3, 73.1, 89.8, 94.8],
            [55.4, 76.1, 90.1, 94.8],
        ),
        ("ragpulse_b16.jsonl.xz", [8891], [31.5], [31.6], [31.6]),
        (
            "lmcache_agent_b16.jsonl.xz",
            [262, 1311],
            [49.8, 83.4],
            [50.0, 83.6],
            [51.6, 83.8],
        ),
        (
            "mooncake_conversation_trace.jsonl.gz",
            [1827, 9139, 18279, 45697],
            [5.2, 19.6, 27.9, 35.3],  # 15,136 and 101,978 hits; rounding once
            [24.0, 36.6, 36.6, 36.6],
            [24.6, 36.6, 36.6, 36.6],
        ),
    ],
)
def test_reference_ratios_of_real_traces(
    traces_folder, file, sizes, lru, forced, bypass
):
    # The derived 16-token files do not tell their block size.
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        trace = perc.load(
            traces_folder / file, block_tokens=16 if "b16" in file else None
        )
    found = perc.compare(trace, ["lru", "belady", "belady_bypass"], sizes)
    for name, expected in zip(
        ("lru", "belady", "belady_bypass"), (lru, forced, bypass), strict=True
    ):
        ratios = [r.block_hit_ratio for r in found.rows if r.policy == name]
        assert [round(100 * ratio, 1) for ratio in ratios] == expected, name


@pytest.mark.real_trace
def test_step_equals_replay_on_the_conversation_trace(traces_folder):
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    for name in ("perc_decay", "fifo", "belady_bypass"):
        policy = registry[name]()
        order = perc.ranks(trace, perc.scores(policy, trace))
        fast = perc.replay(
            trace, order, [1000], bypass=policy.bypass, refresh=policy.refresh
        )
        slow = replay_steps(policy, trace, 1000)
        assert np.array_equal(fast.blocks[0], slow.blocks), name
