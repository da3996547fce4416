"""Tiers in one LRU order, beside lists that hand blocks down."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.policies.registry import registry
from perc.tiers import Tier, lru_tier_hits
from tests.strategies import rows_of, traces

BLOCK = 64


def hand_down(requests, sizes):
    """Lists of blocks, most recent first; what does not fit goes to the next one.

    Returns the blocks of each request's leading run that each tier held.
    """
    tiers = [[] for _ in sizes]
    found = []
    for blocks in requests:
        places = []
        for block in blocks:
            place = next((t for t, held in enumerate(tiers) if block in held), None)
            if place is None:
                break
            places.append(place)
        found.append([places.count(t) for t in range(len(sizes))])
        down = list(blocks)  # the root in front
        for t, size in enumerate(sizes):
            stays = [block for block in tiers[t] if block not in blocks]
            tiers[t], down = (down + stays)[:size], (down + stays)[size:]
    return found


@settings(deadline=None, max_examples=50)
@given(trace=traces(max_requests=30), sizes=st.lists(st.integers(0, 5), max_size=3))
def test_hits_are_those_of_lists_that_hand_blocks_down(trace, sizes):
    tiers = [
        Tier(f"tier {t}", size * BLOCK + (BLOCK - 1) * (size > 0), BLOCK)
        for t, size in enumerate(sizes)
    ]
    found = lru_tier_hits(trace, tiers)
    expected = hand_down(rows_of(trace, trace.block), sizes)
    assert found.T.tolist() == expected if sizes else found.shape == (0, len(expected))


def test_more_memory_than_blocks_hits_all_that_was_seen(small_chat):
    tier = Tier("disk", 2**62, 1)
    found = lru_tier_hits(small_chat, [tier, tier])
    assert found[0].sum() == np.count_nonzero(small_chat.prev >= 0)
    assert found[1].sum() == 0


def test_one_tier_is_lru(small_chat):
    policy = registry["lru"]()
    order = perc.ranks(small_chat, perc.scores(policy, small_chat))
    (expected,) = perc.replay(small_chat, order, [300]).blocks
    (found,) = lru_tier_hits(small_chat, [Tier("hbm", 300, 1)])
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((63, 64), "tier 'dram': 63 bytes cannot hold one block of 64 bytes"),
        ((-1, 64), "tier 'dram': -1 bytes cannot hold"),
        ((64, 0), "tier 'dram': a block of 0 bytes"),
    ],
)
def test_a_tier_holds_a_block_or_is_none(sizes, message):
    with pytest.raises(InputError, match=message):
        Tier("dram", *sizes)
