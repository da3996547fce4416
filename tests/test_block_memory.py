"""Memory in blocks: published values, and what no sequence can waste."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.block_memory import blocks_needed, fragmentation, pool_blocks
from perc.errors import InputError

GIB, MIB = 2**30, 2**20
LLAMA_2_7B = 2 * 32 * 32 * 128 * 2  # bytes a token


def test_fragmentation_of_a_lognormal_sample():
    sample = np.random.default_rng(0).lognormal(5, 0.8, 10_000).astype(int)
    lengths = np.clip(sample, 1, 2048)
    assert lengths.mean() == pytest.approx(203.8633)
    found = fragmentation(lengths, max_tokens=2048, block_tokens=16)
    assert found.contiguous == pytest.approx(0.900457, abs=5e-7)
    assert found.paged == pytest.approx(0.035191, abs=5e-7)
    assert found.worst_paged_tokens == 15


@given(
    lengths=st.lists(st.integers(0, 60), max_size=8),
    block_tokens=st.integers(1, 20),
)
def test_fragmentation_is_what_is_reserved_and_empty(lengths, block_tokens):
    found = fragmentation(lengths, max_tokens=60, block_tokens=block_tokens)
    blocks = [len(range(0, n, block_tokens)) for n in lengths]
    waste = [b * block_tokens - n for b, n in zip(blocks, lengths, strict=True)]
    reserved = sum(blocks) * block_tokens
    assert found.paged == (sum(waste) / reserved if reserved else 0)
    empty = sum(60 - n for n in lengths)
    assert found.contiguous == (empty / (60 * len(lengths)) if lengths else 0)
    assert found.worst_paged_tokens == max(waste, default=0) < block_tokens


@pytest.mark.parametrize(
    ("tokens", "blocks"),
    [(1, 1), (32, 1), (33, 2), (256, 8), (512, 16), (1024, 32), (8192, 256), (0, 1)],
)
def test_blocks_of_16_mib_that_a_prompt_needs(tokens, blocks):
    """CachePilot's values."""
    sizes = dict(bytes_per_token=LLAMA_2_7B, block_bytes=16 * MIB)
    assert blocks_needed(tokens, **sizes) == blocks


@pytest.mark.parametrize(
    ("gib", "expected"), [(16, (1024, 358, 666)), (24, (1536, 537, 999))]
)
def test_pools_with_a_pinned_share_of_35_percent(gib, expected):
    """CachePilot's values."""
    assert pool_blocks(gib * GIB, 16 * MIB, pinned_bytes=0.35 * gib * GIB) == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: pool_blocks(10, 0),
        lambda: pool_blocks(10, 1, pinned_bytes=11),
        lambda: pool_blocks(10, 1, pinned_bytes=-1),
        lambda: blocks_needed(-1, bytes_per_token=1, block_bytes=1),
        lambda: blocks_needed(1, bytes_per_token=0, block_bytes=1),
        lambda: blocks_needed(1, bytes_per_token=1, block_bytes=float("nan")),
        lambda: fragmentation([5], max_tokens=4, block_tokens=1),
        lambda: fragmentation([-1], max_tokens=4, block_tokens=1),
        lambda: fragmentation([1], max_tokens=4, block_tokens=0),
    ],
)
def test_sizes_that_cannot_be_are_refused(call):
    with pytest.raises(InputError, match="; give "):
        call()
