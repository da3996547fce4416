"""`agent` behaves like the Claude Code sessions that it was measured on."""

import numpy as np
import pytest

from perc.workloads import agent
from tests.workloads.facts import ideal_hit_ratio

# README of the real traces and callanjfox/kv-cache-tester, 512-token blocks.
IDEAL = 0.959
TOOL_GAP_S = {50: 16, 90: 106}
USER_GAP_S = {50: 174, 90: 2_546}


@pytest.fixture(scope="module")
def default():
    return agent()


def follow_ups(trace):
    """Pairs of rows (call, the next one of its session)."""
    order = np.lexsort((trace.turn, trace.session))
    same = np.diff(trace.session[order]) == 0
    return order[:-1][same], order[1:][same]


def gaps_of(trace):
    before, after = follow_ups(trace)
    return trace.arrival_s[after] - trace.arrival_s[before]


def test_nearly_all_is_reuse(default):
    assert ideal_hit_ratio(default) == pytest.approx(IDEAL, abs=0.02)


def test_kinds_are_stop_reasons(default):
    assert set(default.kinds) == {"tool_use", "end_turn"}
    ends = default.kind == default.kinds.index("end_turn")
    assert ends.mean() == pytest.approx(0.047, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "quantiles"), [("tool_use", TOOL_GAP_S), ("end_turn", USER_GAP_S)]
)
def test_gaps(kind, quantiles):
    # The end of a trace hides long gaps, but not when sessions hardly overlap.
    trace = agent(
        requests=20_000,
        seed=1,
        sessions_per_h=0.01,
        subagent_p=0.0,
        block_tokens=8_192,
    )
    before, _ = follow_ups(trace)
    chosen = trace.kind[before] == trace.kinds.index(kind)
    found = np.percentile(gaps_of(trace)[chosen], list(quantiles))
    np.testing.assert_allclose(found, list(quantiles.values()), rtol=0.15)


def test_prompts_grow_until_they_are_compacted():
    trace = agent(requests=2_000, context_tokens=60_000, seed=1)
    assert trace.input_tokens.max() <= 60_000
    before, after = follow_ups(trace)
    growth = trace.input_tokens[after] - trace.input_tokens[before]
    hits = np.bincount(trace.request[trace.prev >= 0], minlength=2_000)
    kept = hits[after] >= (trace.input_tokens // 512)[before]
    below = kept & (trace.input_tokens[after] < 60_000)
    assert (growth[below] >= trace.output_tokens[before][below]).all()
    compacted = after[~kept]
    assert 10 < len(compacted) < len(after) / 4
    # What survives is the system prompt, of 11,000 to 20,000 tokens.
    assert (hits[compacted] <= 20_000 // 512).all()
    assert (hits[compacted] >= 11_000 // 512).all()


def test_sub_agents_have_their_own_prefix_and_their_callers_wait():
    trace = agent(requests=1_500, subagent_p=0.1, system_prompts=1, seed=2)
    root = trace.block[trace.start]
    main = root == root[0]
    assert set(root) == {root[0], root[~main][0]}
    sessions = [set(trace.session[chosen]) for chosen in (main, ~main)]
    assert not sessions[0] & sessions[1]
    before, after = follow_ups(trace)
    sub, gaps = ~main[before], gaps_of(trace)
    growth = trace.input_tokens[after] - trace.input_tokens[before]
    below = sub & (trace.input_tokens[after] < 160_000)
    assert (growth[below] >= trace.output_tokens[before][below]).all()
    assert np.median(gaps[sub]) == pytest.approx(7, rel=0.15)
    # About 10 calls, 7 s and more each: nobody else waits that often that long.
    alone = agent(requests=1_500, subagent_p=0.0, system_prompts=1, seed=2)
    waits = [np.mean(g > 60) for g in (gaps[~sub], gaps_of(alone))]
    assert waits[0] > waits[1] + 0.03


def test_nobody_returns():
    trace = agent(requests=200, tool_return_p=0.0, user_return_p=0.0, subagent_p=0.0)
    assert (trace.turn == 1).all()
