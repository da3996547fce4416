"""vllm#43689, LMCache#2942: a tier with no room for a block waits for room for ever."""

import pytest

import perc
from perc.errors import InputError
from perc.tiers import Tier, lru_tier_hits

BLOCK_BYTES = 64 * 2**20


@pytest.fixture(scope="module")
def traffic():
    return perc.make("agent", requests=60)


def test_a_tier_of_less_than_a_block_is_refused():
    """LMCache#2942. The error names the tier and the size of a block."""
    message = "tier 'dram': 67,108,863 bytes cannot hold one block of 67,108,864 bytes"
    with pytest.raises(InputError, match=message):
        Tier("dram", BLOCK_BYTES - 1, BLOCK_BYTES)


def test_a_tier_of_no_bytes_is_no_tier(traffic):
    """Review of vllm#43689. Equal in every integer to the run without it."""
    hbm = Tier("hbm", 300 * BLOCK_BYTES, BLOCK_BYTES)
    none = Tier("dram", 0, BLOCK_BYTES)
    (alone,) = lru_tier_hits(traffic, [hbm])
    with_it = lru_tier_hits(traffic, [hbm, none])
    assert with_it[0].tolist() == alone.tolist() and alone.any()
    assert not with_it[1].any()
