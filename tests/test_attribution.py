"""Every miss has one cause, and the causes sum to all misses."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.attribution import CAUSES, misses_by_cause
from perc.cost import PrefillCost
from perc.errors import InputError, TraceWarning
from perc.policies.registry import registry
from tests.oracles import cache, misses
from tests.strategies import rows_of, traces
from tests.test_step import trace_of

LINEAR = PrefillCost("a second a token", 1.0, 0.0)
PLENTY = 100


@st.composite
def cases(draw):
    """A trace, and leading hits of four caches that need not be consistent."""
    trace = draw(traces())
    trailing = draw(st.integers(0, 5))  # tokens that fill no block
    trace = replace(trace, input_tokens=trace.input_tokens + np.int32(trailing))
    length = (trace.stop - trace.start).tolist()
    hits = [
        np.array([draw(st.integers(0, n)) for n in length], np.int32) for _ in range(4)
    ]
    rules = draw(st.booleans())
    groups = draw(st.booleans())
    others = {}
    if rules:
        others["without_rules"] = hits[2]
    if groups:
        others["attention_alone"] = hits[3]
    return trace, hits[0], hits[1], others


@settings(deadline=None)
@given(cases())
def test_causes_are_those_of_plain_python(case):
    trace, hits, bound, others = case
    found = misses_by_cause(trace, hits, bound, cost=LINEAR, **others)
    rows = misses.count(
        rows_of(trace, trace.block),
        rows_of(trace, trace.tokens),
        trace.input_tokens.tolist(),
        hits,
        bound,
        **others,
    )
    for r, row in enumerate(rows):
        for c, cause in enumerate(CAUSES):
            blocks, tokens = row.get(cause, (0, 0))
            assert found.blocks[c, r] == blocks
            assert found.tokens[c, r] == tokens
            assert found.recompute_s[c, r] == tokens


@settings(deadline=None, max_examples=15)
@given(trace=traces(), capacity=st.integers(0, 8), name=st.sampled_from(["lru", "lfu"]))
def test_a_replay_is_attributed_as_two_plain_caches_say(trace, capacity, name):
    rows = rows_of(trace, trace.block)
    never = 10**9
    soonest = [
        [
            -next((s for s in range(r + 1, len(rows)) if b in rows[s]), never)
            for b in row
        ]
        for r, row in enumerate(rows)
    ]
    score = rows_of(trace, perc.scores(registry[name](), trace))
    hits, _ = cache.simulate(rows, score, capacity)
    bound, _ = cache.simulate(rows, soonest, capacity)
    expected = misses.count(
        rows, rows_of(trace, trace.tokens), trace.input_tokens.tolist(), hits, bound
    )
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        (why,) = perc.attribute(trace, name, capacity).rows
    for cause in CAUSES:
        parts = [row.get(cause, (0, 0)) for row in expected]
        assert why.misses[cause].blocks == sum(blocks for blocks, _ in parts)
        assert why.misses[cause].tokens == sum(tokens for _, tokens in parts)
    assert why.hit_blocks == sum(hits)
    beyond = [max(h - b, 0) for h, b in zip(hits, bound, strict=True)]
    assert why.beyond_bound_blocks == sum(beyond)


@settings(deadline=None, max_examples=25)
@given(
    trace=traces(),
    warmup=st.sampled_from([0.0, 0.5]),
    by=st.sampled_from([None, "kind", "turn"]),
)
def test_hits_and_causes_sum_to_what_was_asked(trace, warmup, by):
    policies = ["lru", "lfu_in_cache", "belady_bypass"]
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        found = perc.attribute(trace, policies, [3], by=by, warmup=warmup, cost=LINEAR)
        rows = perc.compare(trace, policies, [3], warmup=warmup, cost=LINEAR).rows
    counted = slice(int(warmup * trace.n_requests), None)
    for row in rows:
        parts = [
            why
            for why in found.rows
            if (why.policy, why.capacity_blocks) == (row.policy, row.capacity_blocks)
        ]
        missed = [cause for why in parts for cause in why.misses.values()]
        hit_blocks = sum(why.hit_blocks for why in parts)
        prompt_blocks = sum(why.prompt_blocks for why in parts)
        prompt_tokens = sum(why.prompt_tokens for why in parts)
        assert prompt_tokens == trace.input_tokens[counted].sum()
        assert hit_blocks == pytest.approx(row.block_hit_ratio * prompt_blocks)
        assert hit_blocks + sum(cause.blocks for cause in missed) == prompt_blocks
        assert sum(cause.tokens for cause in missed) == row.recompute_tokens
        assert sum(cause.recompute_s for cause in missed) == pytest.approx(
            row.recompute_s
        )


def test_the_gap_to_the_bound_is_the_cause_policy_less_what_lies_beyond(small_chat):
    lru, belady = perc.attribute(small_chat, "lru,belady", 300).rows
    gap = belady.hit_blocks - lru.hit_blocks
    assert gap == lru.misses["policy"].blocks - lru.beyond_bound_blocks > 0
    assert belady.misses["policy"].blocks == belady.beyond_bound_blocks == 0


def test_what_the_policy_hits_and_the_bound_misses_is_a_hit():
    """Of two blocks that fit, the bound gives 2 up for 1, which it needs sooner."""
    trace = trace_of([[1], [2], [3], [1], [2]], priority=np.array([0, 5, 0, 0, 0]))
    (why,) = perc.attribute(trace, "priority", 2).rows
    assert (why.hit_blocks, why.beyond_bound_blocks) == (1, 1)
    assert {name: miss.blocks for name, miss in why.misses.items() if miss.blocks} == {
        "policy": 1,
        "cold": 3,
    }


def test_cold_means_the_first_access_of_all_also_before_the_window():
    """The warm-up saw block 1, so its miss in the window is not cold."""
    trace = trace_of([[1], [2], [3], [1]])
    (why,) = perc.attribute(trace, "lru", 1, warmup=0.5).rows
    assert why.prompt_blocks == 2
    assert {name: miss.blocks for name, miss in why.misses.items() if miss.blocks} == {
        "capacity": 1,
        "cold": 1,
    }


def test_a_rule_is_blamed_before_the_policy_and_the_capacity():
    trace = trace_of([[1, 2, 3, 4], [1, 2, 3, 4]])
    found = misses_by_cause(
        trace, np.array([0, 1]), np.array([0, 3]), without_rules=np.array([0, 2])
    )
    last = dict(zip(CAUSES, found.blocks[:, 1].tolist(), strict=True))
    assert last == {
        "hybrid": 0,
        "retention": 1,
        "policy": 1,
        "capacity": 1,
        "cold": 0,
        "rounding": 0,
    }


def test_hits_under_rules_are_compared_with_the_same_policy_without():
    trace = trace_of([[1, 2, 3]] * 3)
    ruled = {"lru": {3: np.array([0, 1, 3]), 2: np.array([0, 0, 0])}}
    rows = perc.attribute(trace, "lru,fifo", [3, 2], ruled=ruled).rows
    assert [(why.policy, why.capacity_blocks, why.hit_blocks) for why in rows] == [
        ("lru", 2, 0),
        ("fifo", 2, 4),
        ("lru", 3, 4),
        ("fifo", 3, 6),
    ]
    assert [why.misses["retention"].blocks for why in rows] == [4, 0, 2, 0]
    assert [why.misses["capacity"].blocks for why in rows] == [2, 2, 0, 0]
    for wrong in ({"lru": {3: ruled["lru"][3]}}, {"lfu": ruled["lru"]}):
        with pytest.raises(InputError, match="lru, the capacities 2, 3. Give hits at"):
            perc.attribute(trace, "lru", [3, 2], ruled=wrong)


def test_a_cache_that_was_warm_before_the_trace_hits_what_is_new():
    """Hits of a recording may begin before the trace does: no cause is asked for."""
    trace = trace_of([[1, 2, 3]])
    found = misses_by_cause(trace, np.array([2]), np.array([0]))
    assert found.blocks.sum() == found.blocks[CAUSES.index("cold"), 0] == 1


def test_groups_are_kinds_or_turns():
    rows = [[n] for n in range(9)]
    labels = dict(kind=["a", "b", None] * 3, session=[0] * 9)
    trace = trace_of(rows, **labels)
    kinds = perc.attribute(trace, "lru", PLENTY, by="kind").rows
    assert [(why.group, why.prompt_blocks) for why in kinds] == [
        ("a", 3),
        ("b", 3),
        ("unknown", 3),
    ]
    turns = perc.attribute(trace, "lru", PLENTY, by="turn").rows
    assert [(why.group, why.prompt_blocks) for why in turns] == [
        *((str(turn), 1) for turn in range(1, 6)),
        ("6+", 4),
    ]


def test_recompute_is_priced_where_the_tokens_lie():
    """prefill(n) = n squared: tokens 2 and 3 of a prompt cost 1 to 9 less 1."""
    trace = trace_of([[1, 2, 3], [1, 2, 3]])
    square = PrefillCost("square", 0.0, 1.0)
    found = misses_by_cause(trace, np.array([0, 1]), np.array([0, 2]), cost=square)
    assert found.recompute_s[:, 0].tolist() == [0, 0, 0, 0, 9, 0]
    assert found.recompute_s[:, 1].tolist() == [0, 0, 3, 5, 0, 0]


@pytest.mark.parametrize(
    ("hits", "message"),
    [
        ([0, 4], "hits: 4 leading blocks of request 1, which has 3"),
        ([-1, 0], "hits: -1 leading blocks of request 0"),
        ([0], "give one whole number of leading blocks a request"),
        ([0.0, 1.0], "give one whole number"),
    ],
)
def test_hits_of_another_trace_are_refused(hits, message):
    trace = trace_of([[1, 2, 3], [1, 2, 3]])
    with pytest.raises(InputError, match=message):
        misses_by_cause(trace, np.array(hits), np.zeros(2, int))
    if len(hits) == 2 and isinstance(hits[0], int):
        with pytest.raises(InputError, match="policy: "):
            misses_by_cause(trace, np.zeros(2, int), np.array(hits))


def test_an_unknown_grouping_is_answered_with_the_known(small_chat):
    with pytest.raises(InputError, match="'session'; there are: kind, turn"):
        perc.attribute(small_chat, "lru", 10, by="session")  # pyright: ignore


def test_progress_is_told(small_chat):
    said = []
    perc.attribute(small_chat, "lru", 10, progress=lambda *a: said.append(a))
    assert said == [(0, 2, "belady"), (1, 2, "lru"), (2, 2, "done")]


def test_nothing_asked_is_nothing_missed():
    (why,) = perc.attribute(trace_of([]), "lru", 1).rows
    assert (why.prompt_tokens, why.hit_tokens) == (0, 0)
    assert all(miss.tokens == miss.blocks == 0 for miss in why.misses.values())
