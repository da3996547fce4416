"""`chat` behaves like the Mooncake conversation trace that it was fitted to."""

import time

import numpy as np
import pytest

from perc.workloads import chat
from tests.oracles.lru import lru_hit_ratio
from tests.workloads.facts import (
    continuation,
    follow_up_gaps_s,
    ideal_hit_ratio,
    share_never_reused,
)

# The real trace (kvcache-ai/Mooncake, FAST'25), as its README in the folder of real
# traces gives it: 512-token blocks, sessions by prefix extension.
REQUESTS, BLOCKS, ACCESSES = 12_031, 182_790, 288_500
IDEAL, NEVER_REUSED = 0.3664, 0.76
GAP_S = {10: 39, 50: 123, 90: 474, 99: 1_455}
CONTINUE_P = [0.25, 0.39, 0.49, 0.56, 0.60]
SPAN_S = 3_537
LRU = {1_000: 0.0445, 10_000: 0.2116, 50_000: 0.3546, 100_000: 0.3637}

# How far the model may be off.
IDEAL_TOLERANCE = 0.02
NEVER_REUSED_TOLERANCE = 0.03
SIZE_TOLERANCE = 0.1  # relative
GAP_TOLERANCE = 0.15  # relative
CONTINUE_TOLERANCE = 0.03
LRU_TOLERANCE = 0.02


@pytest.fixture(scope="module")
def default():
    return chat()


def test_sizes(default):
    assert default.n_requests == REQUESTS
    assert default.n_blocks == pytest.approx(BLOCKS, rel=SIZE_TOLERANCE)
    assert default.n_accesses == pytest.approx(ACCESSES, rel=SIZE_TOLERANCE)
    assert default.arrival_s[-1] == pytest.approx(SPAN_S, rel=SIZE_TOLERANCE)


def test_reuse(default):
    assert ideal_hit_ratio(default) == pytest.approx(IDEAL, abs=IDEAL_TOLERANCE)
    never = share_never_reused(default)
    assert never == pytest.approx(NEVER_REUSED, abs=NEVER_REUSED_TOLERANCE)


def test_reuse_splits_like_the_real_one(default):
    """31 % of all accesses reuse the session itself, 2.8 % block 0, 2.8 % others."""
    first = default.turn[default.request] == 1
    hit = default.prev >= 0
    own = (hit & ~first).mean()
    root = (hit & first & (default.depth == 0)).mean()
    others = (hit & first & (default.depth > 0)).mean()
    assert own == pytest.approx(0.31, abs=0.02)
    assert root == pytest.approx(0.028, abs=0.003)
    assert others == pytest.approx(0.028, abs=0.006)


def test_turns(default):
    found = continuation(default, len(CONTINUE_P))
    np.testing.assert_allclose(found, CONTINUE_P, atol=CONTINUE_TOLERANCE)


def test_gaps(default):
    found = np.percentile(follow_up_gaps_s(default), list(GAP_S))
    np.testing.assert_allclose(found, list(GAP_S.values()), rtol=GAP_TOLERANCE)


@pytest.mark.parametrize("capacity", LRU)
def test_lru(default, capacity):
    found = lru_hit_ratio(default, capacity)
    assert found == pytest.approx(LRU[capacity], abs=LRU_TOLERANCE)


def test_sessions_are_under_way_at_the_start(default):
    """The real trace: 14 % follow-ups in the first 3 min, 28 % in minutes 6 to 9."""
    follows = default.turn > 1
    first = follows[default.arrival_s < 180].mean()
    later = follows[(default.arrival_s >= 360) & (default.arrival_s < 540)].mean()
    assert first == pytest.approx(0.14, abs=0.05)
    assert later == pytest.approx(0.28, abs=0.05)


def test_a_turn_holds_all_of_the_one_before():
    trace = chat(requests=800, seed=2, block_tokens=16)
    order = np.lexsort((trace.turn, trace.session))
    pairs = np.flatnonzero(np.diff(trace.session[order]) == 0)
    assert len(pairs) > 50
    for before, after in zip(order[pairs], order[pairs + 1], strict=True):
        full = trace.input_tokens[before] // 16
        old, new = (trace.block[trace.start[r] :][:full] for r in (before, after))
        assert np.array_equal(old, new)
        said = trace.input_tokens[before] + trace.output_tokens[before]
        assert trace.input_tokens[after] >= min(said, 126_000)


def test_all_share_the_system_prompt_and_no_more():
    trace = chat(requests=300, block_tokens=16, branch_p=0.0)
    shared = 890 // 16
    first = (trace.turn == 1)[trace.request]
    hits = np.bincount(trace.request[first & (trace.prev >= 0)], minlength=300)
    assert set(hits[1:][trace.turn[1:] == 1]) == {shared}


def test_without_continuation_there_are_no_sessions():
    trace = chat(requests=300, continue_p=(0.0,), branch_p=0.0)
    assert (trace.turn == 1).all()
    assert ((trace.prev >= 0) <= (trace.depth == 0)).all()


def test_arrivals_in_steps():
    trace = chat(requests=300, arrival_step_s=3.0)
    assert not np.mod(trace.arrival_s, 3.0).any()
    free = chat(requests=300)
    assert np.abs(trace.arrival_s - free.arrival_s).max() <= 3.0


def test_takes_less_than_a_second():
    chat(requests=10)  # imports what it needs
    start = time.perf_counter()
    chat(seed=1)
    assert time.perf_counter() - start < 1.0


@pytest.mark.real_trace
def test_against_the_real_trace(default, traces_folder):
    from perc.traces import load

    real = load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    assert ideal_hit_ratio(default) == pytest.approx(
        ideal_hit_ratio(real), abs=IDEAL_TOLERANCE
    )
    assert share_never_reused(default) == pytest.approx(
        share_never_reused(real), abs=NEVER_REUSED_TOLERANCE
    )
    for trace in (default, real):
        assert trace.n_accesses == pytest.approx(ACCESSES, rel=SIZE_TOLERANCE)
    gaps = [np.percentile(follow_up_gaps_s(t), list(GAP_S)) for t in (default, real)]
    np.testing.assert_allclose(*gaps, rtol=GAP_TOLERANCE)
    for capacity in (1_000, 10_000):
        assert lru_hit_ratio(default, capacity) == pytest.approx(
            lru_hit_ratio(real, capacity), abs=LRU_TOLERANCE
        )
