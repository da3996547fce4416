"""Hit ratios of groups, against loops over requests."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.breakdown import LAST_TURN, LONGEST, block_intervals, breakdown
from perc.compare import resolve, run

SIZES = [20, 120]


@pytest.fixture(scope="module")
def chat():
    trace = perc.make("chat", requests=300)
    names = ["lru", "lfu", "belady"]
    found = zip(names, resolve(names), strict=True)
    return trace, {name: run(policy, trace, SIZES) for name, policy in found}


def width(low, high):
    assert low is not None and high is not None
    return high - low


def group_of(trace, by, r):
    length = int((trace.session == trace.session[r]).sum())
    turn = int(trace.turn[r])
    spans = [(1, "1"), (3, "2-3"), (7, "4-7"), (LONGEST - 1, "8-15")]
    return {
        "all": "all",
        "kind": trace.kinds[trace.kind[r]],
        "turn": str(turn) if turn < LAST_TURN else f"{LAST_TURN}+",
        "session length": next((s for n, s in spans if length <= n), f"{LONGEST}+"),
        "priority": f"{int(trace.priority[r])}",
    }[by]


@settings(max_examples=15, deadline=None)
@given(skip=st.integers(0, 299), data=st.data())
def test_each_group_is_what_a_loop_over_its_requests_sums(chat, skip, data):
    trace, hits = chat
    rows = breakdown(trace, hits, SIZES, skip=skip)
    assert {row.by for row in rows} <= {"all", "turn", "session length"}
    row = data.draw(st.sampled_from(rows))
    k = SIZES.index(row.capacity_blocks)
    asked, served = 0, {row.policy: 0, "lru": 0}
    members = 0
    for r in range(skip, trace.n_requests):
        if group_of(trace, row.by, r) != row.group:
            continue
        members += 1
        asked += int(trace.input_tokens[r])
        for name in served:
            first = int(trace.start[r])
            blocks = slice(first, first + int(hits[name][k, r]))
            served[name] += int(trace.tokens[blocks].sum())
    assert (row.requests, row.input_tokens) == (members, asked)
    ratios = {name: tokens / asked if asked else 0 for name, tokens in served.items()}
    assert row.token_hit_ratio == pytest.approx(ratios[row.policy])
    assert row.gain == pytest.approx(ratios[row.policy] - ratios["lru"])


def test_together_they_are_what_compare_says(chat):
    trace, hits = chat
    rows = perc.compare(trace, list(hits), SIZES).rows
    parts = [part for part in breakdown(trace, hits, SIZES) if part.by == "all"]
    for row, part in zip(rows, parts, strict=True):
        assert (row.policy, row.capacity_blocks) == (part.policy, part.capacity_blocks)
        assert part.token_hit_ratio == pytest.approx(row.token_hit_ratio)
        assert part.low is not None and part.high is not None
        assert part.low < part.token_hit_ratio < part.high


def test_a_gain_is_judged_on_equal_traffic(chat):
    trace, hits = chat
    for part in breakdown(trace, hits, SIZES):
        if part.policy == "lru":
            assert (part.gain, part.gain_low, part.gain_high) in (
                (0, 0, 0),
                (0, None, None),
            )
    wide = [p for p in breakdown(trace, hits, SIZES) if p.by == "all"]
    bound = next(p for p in wide if p.policy == "belady")
    lru = next(p for p in wide if p.policy == "lru")
    # Paired: narrower than the interval of two independent samples.
    assert width(bound.gain_low, bound.gain_high) ** 2 < (
        width(bound.low, bound.high) ** 2 + width(lru.low, lru.high) ** 2
    )


def test_one_session_has_no_interval():
    trace = perc.make("chat", requests=300)
    hits = np.zeros((1, trace.n_requests), np.int32)
    last = trace.n_requests - 1
    assert block_intervals(trace, hits, skip=last) == [(None, None)]
    part = breakdown(trace, {"lru": hits}, [9], skip=last)[0]
    assert part.requests == 1 and part.low is None
