"""The definition itself, on cases small enough to check by hand (cases.md)."""

import warnings
from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perc
from perc.errors import TraceWarning
from perc.policies.registry import registry
from perc.step import pin, replay_steps
from perc.traces.build import Columns, build_trace
from perc.types import Features, Policy, Request


def trace_of(requests, **columns):
    """One request a row of block ids, one second apart, one token a block."""
    lengths = np.array([len(row) for row in requests], np.int64)
    return build_trace(
        Columns(
            arrival_s=np.arange(len(requests), dtype=float),
            input_tokens=lengths,
            output_tokens=np.ones(len(requests), np.int64),
            ids=np.array([block for row in requests for block in row], np.int64),
            lengths=lengths,
            **columns,
        ),
        block_tokens=1,
        source="by hand",
    )


def hits(name, requests, capacity, **columns):
    trace = trace_of(requests, **columns)
    return replay_steps(registry[name](), trace, capacity).blocks.tolist()


def test_cyclic_scan_one_block_too_large():
    """Case 1: LRU's zero is right, and the bound shows what is possible."""
    requests = [[i % 5] for i in range(100)]
    assert sum(hits("lru", requests, 4)) == 0
    assert sum(hits("belady", requests, 4)) == 72


def test_one_giant_prompt_flushes_from_the_tail():
    """Case 2: a chain loses its tail first; 0 of 4 would mean its head went first."""
    hot, giant = [0, 1, 2, 3], list(range(100, 112))
    requests = [hot] * 10 + [giant, hot]
    assert hits("lru", requests, 16)[-1] == 4
    assert hits("lru", requests, 14)[-1] == 2
    assert hits("lru", requests, 12)[-1] == 0
    assert hits("lru", requests, 12)[1:10] == [4] * 9


def test_priority_keeps_the_highest_of_a_prefix_users():
    """Case 10: a reuse at low priority does not strip the protection."""
    hi = [0, 1, 2, 3]
    fresh = [list(range(10 * k, 10 * k + 4)) for k in range(1, 6)]
    requests, priority = [hi, *fresh, hi], np.array([5, 0, 0, 0, 0, 0, 5])
    assert hits("lru", requests, 12)[-1] == 0
    assert hits("priority", requests, 12, priority=priority)[-1] == 4
    requests.insert(1, hi)
    assert hits("priority", requests, 12, priority=np.insert(priority, 1, 0))[-1] == 4


def test_classic_vector():
    """policies.md 3.1: hits of one-block requests in a cache of four."""
    requests = [["ABCDEFGH".index(x)] for x in "ABCDABEABCDEAFGABHAC"]
    assert "".join(map(str, hits("lru", requests, 4))) == "00001101100000010010"
    assert "".join(map(str, hits("fifo", requests, 4))) == "00001100000000010000"
    assert "".join(map(str, hits("lfu", requests, 4))) == "00001101100010011010"
    assert sum(hits("belady", requests, 4)) == 10
    assert "".join(map(str, hits("belady_bypass", requests, 4))) == (
        "00001101111010011011"
    )


def _by_table(params, f):
    return params[f.step]


def serve(policy, state, step, blocks):
    values = Features(step=jnp.full(len(blocks), step))
    return perc.step(policy, state, Request(jnp.array(blocks), values))


def test_a_pinned_block_is_no_victim_however_low_its_score():
    """Case 12: filtered before the score is looked at."""
    policy = Policy(jnp.array([0.0, 1, 2, 3, 4]), _by_table, "table", ("step",))
    state = perc.empty_cache(3, 5)
    for block in range(3):
        state, _ = serve(policy, state, block, [block])
    state = pin(state, jnp.array([0]))
    state, outcome = serve(policy, state, 3, [3])
    assert outcome.victims.tolist() == [1]
    assert outcome.victim_scores.tolist() == [1.0]
    state, outcome = serve(policy, pin(state, jnp.array([0]), -1), 4, [4])
    assert outcome.victims.tolist() == [0]


def test_when_all_is_pinned_the_newcomer_is_not_stored():
    policy = Policy(jnp.arange(5.0), _by_table, "table", ("step",))
    state = perc.empty_cache(2, 5)
    state, _ = serve(policy, state, 0, [0, 1])
    state = pin(state, jnp.array([0, 1]))
    after, outcome = serve(policy, state, 1, [2, 3])
    assert outcome.admitted.tolist() == [False, False]
    assert sorted(after.block.tolist()) == [0, 1]


def test_a_request_larger_than_the_cache_keeps_its_first_blocks():
    state = perc.empty_cache(3, 9)
    policy = registry["lru"]()
    state, _ = serve(policy, state, 0, [7, 8])
    state, outcome = serve(policy, state, 1, [0, 1, 2, 3, 4])
    assert sorted(state.block.tolist()) == [0, 1, 2]
    assert outcome.admitted.tolist() == [True, True, True, False, False]


def test_padding_touches_nothing():
    policy = registry["lru"]()
    state = perc.empty_cache(3, 9)
    state, _ = serve(policy, state, 0, [0, 1])
    padded, outcome = serve(policy, state, 1, [0, -1, -1])
    assert outcome.hit_blocks == 1
    assert sorted(padded.block.tolist()) == [-1, 0, 1]
    assert padded.slot[8] == -1


def test_a_hole_hides_what_lies_behind_it():
    """Blocks beyond the gap are resident, yet no hit."""
    policy = Policy(jnp.array([5.0, 0, 9]), _by_table, "table", ("step",))
    state = perc.empty_cache(3, 9)
    state, _ = serve(policy, state, 0, [0, 1, 2])
    state, _ = serve(policy, state, 1, [0])  # the root is now worth least
    state, outcome = serve(policy, state, 2, [3])
    assert outcome.victims.tolist() == [0]
    _, outcome = serve(policy, state, 2, [0, 1, 2])
    assert outcome.hit_blocks == 0
    assert outcome.resident.tolist() == [False, True, True]


def test_the_state_is_not_changed_in_place():
    policy = registry["lru"]()
    before = perc.empty_cache(3, 9)
    copy = jax.tree.map(np.array, before)
    serve(policy, before, 0, [0, 1])
    chex.assert_trees_all_equal(before, copy)


def test_blocks_of_no_known_number_are_passed_over():
    policy = registry["lru"]()
    state = perc.empty_cache(3, 5)
    state, _ = serve(policy, state, 0, [4])
    after, outcome = serve(policy, state, 1, [7])
    assert outcome.hit_blocks == 0 and not outcome.admitted.any()
    assert sorted(after.block.tolist()) == [-1, -1, 4]
    assert pin(state, jnp.array([5, 999, -1])).pins.tolist() == [0, 0, 0]
    assert pin(state, jnp.array([4]), by=-1).pins.tolist() == [0, 0, 0]


def test_outcome_says_what_is_new_and_what_is_padding():
    policy = registry["lru"]()
    state, _ = serve(policy, perc.empty_cache(3, 9), 0, [0, 1])
    _, outcome = serve(policy, state, 1, [0, 2])
    assert outcome.resident.tolist() == [True, False]
    assert outcome.admitted.tolist() == [True, True]
    assert outcome.victims.tolist() == [-1, -1]
    assert outcome.victim_scores.tolist() == [float("inf")] * 2


@pytest.mark.parametrize("requests", [[], [[]], [[], [1], []]])
def test_nothing_is_divided_by_nothing(requests):
    """Case 14."""
    trace = trace_of(requests)
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        result = perc.compare(trace, ["lru", "perc_decay", "belady"], [0, 2])
    assert all(row.block_hit_ratio == 0 for row in result.rows)
    hits = replay_steps(registry["perc_decay"](), trace, 2).blocks.tolist()
    assert hits == [0] * len(requests)


def test_prompts_that_fill_no_block_are_told():
    """Case 4: nothing is cacheable, and the warning names both lengths."""
    trace = replace(trace_of([[], []]), input_tokens=np.array([3, 5]), block_tokens=8)
    with pytest.warns(TraceWarning, match="has 5 tokens and fills no block of 8"):
        (row,) = perc.compare(trace, ["lru"], [4]).rows
    assert row.block_hit_ratio == 0 and row.recompute_tokens == 8
