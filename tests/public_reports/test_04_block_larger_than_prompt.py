"""vllm#48401, vllm#40696: prompts below the block size never hit."""

import warnings

import pytest

import perc
from perc.errors import TraceWarning
from tests.public_reports.traffic import hits_of, trace_of

BLOCK = 8320


def test_a_block_larger_than_every_prompt():
    """vllm#48401. Ten identical prompts of 4,096 tokens: no block, no hit, no 0 / 0."""
    trace = trace_of([[]] * 10, block_tokens=BLOCK, input_tokens=[4096] * 10)
    with pytest.warns(TraceWarning) as said:
        (row,) = perc.compare(trace, ["lru"], [4]).rows
    (only,) = said
    assert "the longest prompt has 4096 tokens" in str(only.message)
    assert "no block of 8320" in str(only.message)
    assert (row.block_hit_ratio, row.token_hit_ratio) == (0.0, 0.0)
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        (why,) = perc.attribute(trace, "lru", 4).rows
    assert why.prompt_blocks == 0
    assert why.misses["rounding"].tokens == why.prompt_tokens == 40_960
    assert why.misses["rounding"].blocks == 0


def test_one_block_a_prompt():
    """vllm#40696. Of 16,384 tokens one block hits, 8,320 tokens, from the second on."""
    trace = trace_of([[7]] * 10, block_tokens=BLOCK, input_tokens=[16_384] * 10)
    assert hits_of("lru", trace, 4) == [0, *[1] * 9]
    (why,) = perc.attribute(trace, "lru", 4).rows
    assert why.hit_tokens == 9 * 8320
    assert why.misses["cold"].tokens == 8320
    assert why.misses["rounding"].tokens == 10 * (16_384 - 8320)
