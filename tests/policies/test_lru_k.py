"""LRU-K: which use counts, and what an eviction forgets (policies.md 2.7, L13)."""

import numpy as np
import pytest
from hypothesis import given, settings

from perc.errors import InputError
from perc.online import replay_online
from perc.policies.lru_k import lru_k
from tests.strategies import traces
from tests.test_step import trace_of


@settings(deadline=None, max_examples=20)
@given(trace=traces(max_requests=40))
def test_with_retained_history_a_larger_cache_never_hits_less(trace):
    found = replay_online(trace, lru_k(retained=True), range(9)).blocks.sum(axis=1)
    assert (np.diff(found) >= 0).all()


def test_a_block_that_returns_is_known_again_or_not():
    """0 is used at 0 and 3, leaves for 2, and returns at 5; 1 is used at 1 and 2."""
    trace = trace_of([[b] for b in [0, 1, 1, 0, 2, 0, 3, 0]])
    # 3 comes: with its history 0 was used twice since 3, and 1 since 1; else 0 once.
    for retained, last in ((False, 0), (True, 1)):
        found = replay_online(trace, lru_k(retained=retained), [2]).blocks[0]
        assert found.tolist() == [0, 0, 1, 1, 0, 0, 0, last]


def test_the_kth_last_use_decides_not_the_first_or_the_last():
    """0 is used at 0, 1, 6; 1 at 2, 3, 5. The second last uses are 1 and 3."""
    ids = [0, 0, 1, 1, 2, 1, 0, 3, 4, 1, 0]
    trace = trace_of([[b] for b in ids])
    found = replay_online(trace, lru_k(), [3]).blocks[0]
    assert found.tolist() == [0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1]
    third = replay_online(trace, lru_k(k=3), [2]).blocks[0]
    assert third.tolist() == [0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("k", [0, 9, 2.5])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(InputError, match="lru_k: k is .*, must be a whole number"):
        lru_k(k=k)
