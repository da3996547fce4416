"""Hits to ratios, tokens and seconds: by hand, and as an identity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cost import DEFAULT_COST, PrefillCost, roofline_prefill
from perc.errors import InputError
from perc.metrics import measure, ratio, tokens_of_hits, warmup_requests
from perc.traces.build import Columns, build_trace
from tests.strategies import traces

# Prefill seconds of Llama-3-8B on an H100 at half its peak, worked out by hand.
PREFILL = [(512, 0.01676), (2_048, 0.06871), (8_192, 0.30151), (32_768, 1.63277)]


@pytest.fixture
def two_prompts():
    """Blocks of 4 tokens: 10 tokens in 3 blocks, 9 in 2 (one token fills none)."""
    columns = Columns(
        arrival_s=np.array([0.0, 1.0]),
        input_tokens=np.array([10, 9]),
        output_tokens=np.array([1, 1]),
        ids=np.array([0, 1, 2, 0, 3]),
        lengths=np.array([3, 2]),
    )
    return build_trace(columns, block_tokens=4, source="by hand")


def test_ratios_and_tokens_by_hand(two_prompts):
    found = measure(two_prompts, np.array([0, 1]))
    assert found.block_hit_ratio == 1 / 5
    assert found.token_hit_ratio == 4 / 19
    assert found.recompute_tokens == 15


def test_a_partial_last_block_counts_its_own_tokens(two_prompts):
    assert tokens_of_hits(two_prompts, np.array([3, 2])).tolist() == [10, 8]
    assert tokens_of_hits(two_prompts, np.array([2, 0])).tolist() == [8, 0]
    full = measure(two_prompts, np.array([3, 2]))
    assert full.block_hit_ratio == 1.0
    assert full.token_hit_ratio == 18 / 19  # the token without a block is never there
    assert full.recompute_tokens == 1


def test_warm_up_leaves_out_both_hits_and_what_was_asked(two_prompts):
    found = measure(two_prompts, np.array([3, 1]), warmup_requests=1)
    assert found.block_hit_ratio == 1 / 2
    assert found.token_hit_ratio == 4 / 9
    assert found.recompute_tokens == 5


def test_warming_up_on_everything_counts_nothing(two_prompts):
    found = measure(two_prompts, np.array([3, 2]), warmup_requests=2)
    assert (found.block_hit_ratio, found.token_hit_ratio) == (0.0, 0.0)
    assert (found.recompute_tokens, found.recompute_s) == (0, 0.0)


def test_an_empty_trace_gives_zeros():
    found = measure(perc.make("chat", requests=0), np.zeros(0, np.int32))
    assert (found.block_hit_ratio, found.token_hit_ratio) == (0.0, 0.0)
    assert (found.recompute_tokens, found.recompute_s) == (0, 0.0)


def test_ratio_of_nothing_is_zero():
    assert ratio(0, 0) == 0.0
    assert ratio(1, 4) == 0.25


def test_recompute_seconds_are_those_of_the_missing_end(two_prompts):
    cost = PrefillCost("square", 1.0, 0.5)  # n + n**2 / 2
    found = measure(two_prompts, np.array([2, 0]), cost=cost)
    assert found.recompute_s == (10 + 50) - (8 + 32) + (9 + 40.5)


@pytest.mark.parametrize("tokens, seconds", PREFILL)
def test_default_prefill_seconds(tokens, seconds):
    assert float(DEFAULT_COST.prefill_s(np.array(tokens))) == pytest.approx(
        seconds, abs=5e-6
    )


def test_late_tokens_are_dearer_than_early_ones():
    first, last = DEFAULT_COST.recompute_s(np.array([512, 8192]), np.array([0, 7680]))
    assert last > first


def test_half_the_utilisation_takes_twice_as_long():
    fast, slow = (
        roofline_prefill(
            "x",
            parameters=1e9,
            layers=2,
            query_heads=4,
            head_size=8,
            dense_flops=1e12,
            mfu=mfu,
        )
        for mfu in (0.5, 0.25)
    )
    n = np.array([100, 10_000])
    assert slow.prefill_s(n) == pytest.approx(2 * fast.prefill_s(n))
    assert fast.s_per_token == pytest.approx(2e9 / 5e11)
    assert fast.s_per_token2 == pytest.approx(2 * 2 * 4 * 8 / 5e11)


def test_large_counts_do_not_overflow():
    n = 3
    columns = Columns(
        arrival_s=np.zeros(n),
        input_tokens=np.full(n, 2**31 - 1),
        output_tokens=np.zeros(n, np.int64),
        ids=np.zeros(n, np.int64),
        lengths=np.ones(n, np.int64),
    )
    trace = build_trace(columns, block_tokens=2**31 - 1, source="large")
    assert measure(trace, np.array([0, 0, 1])).recompute_tokens == 2 * (2**31 - 1)
    assert measure(trace, np.array([1, 1, 1])).token_hit_ratio == 1.0


@settings(deadline=None, max_examples=60)
@given(traces(), st.data())
def test_recomputed_and_cached_tokens_make_what_was_asked(trace, data):
    lengths = (trace.stop - trace.start).tolist()
    hits = [data.draw(st.integers(0, n)) for n in lengths]
    skip = data.draw(st.integers(0, len(hits)))
    found = measure(trace, np.array(hits, np.int32), warmup_requests=skip)
    cached = sum(
        int(trace.tokens[trace.start[r] + d])
        for r in range(skip, len(hits))
        for d in range(hits[r])
    )
    asked = int(trace.input_tokens[skip:].sum())
    assert found.recompute_tokens + cached == asked
    assert found.token_hit_ratio == (cached / asked if asked else 0.0)
    assert 0 <= found.token_hit_ratio <= 1 and found.recompute_s >= 0


@pytest.mark.parametrize("share, requests", [(0, 0), (0.5, 150), (0.999, 299)])
def test_warm_up_share_in_requests(small_chat, share, requests):
    assert warmup_requests(small_chat, share) == requests


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan")])
def test_warm_up_share_out_of_range(small_chat, share):
    with pytest.raises(InputError, match=f"share of {share}; give 0 .* below 1"):
        warmup_requests(small_chat, share)
