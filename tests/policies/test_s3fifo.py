"""`s3fifo` where the ghosts' ring wraps and fills with gaps, and in both orders."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.online import replay_online
from perc.policies.s3fifo import s3fifo
from tests.oracles import listed
from tests.strategies import rows_of, traces
from tests.test_online_hlo import compiled
from tests.test_replay_hlo import state_copies
from tests.test_step import trace_of

ACCESSES = 2_000  # over at most 64 blocks, whose ghost ring has room for 128


def assert_equals_oracle(ids, capacity, **options):
    cache = listed.S3Fifo(capacity, **options)
    trace = trace_of([[block] for block in ids])
    found = replay_online(trace, s3fifo(**options), [capacity])
    hits, victims = listed.simulate([[block] for block in ids], cache)
    assert found.blocks[0].tolist() == hits
    assert found.evictions[0] == sum(map(len, victims))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    blocks=st.integers(5, 64),
    capacity=st.integers(1, 30),
    small=st.sampled_from([0.01, 0.1, 0.5, 0.9]),
    ghost=st.sampled_from([0.0, 0.5, 0.9, 3.0, 20.0]),
    threshold=st.integers(1, 5),
)
def test_long_streams_equal_the_oracle(seed, blocks, capacity, **options):
    draw = np.random.default_rng(seed)
    skewed = blocks * draw.random(ACCESSES) ** draw.uniform(1, 4)
    assert_equals_oracle(skewed.astype(int).tolist(), capacity, **options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("capacity", [4, 8])
def test_gaps_behind_an_old_ghost_are_closed(seed, capacity):
    """Block 0 stays the oldest ghost while others return, leave gaps and fill the ring.

    Then newcomers push out the ghosts, of which block 0 must be the first.
    """
    draw = np.random.default_rng(seed)
    others = draw.integers(1, 3 * capacity, ACCESSES).tolist()  # never too many ghosts
    newcomers = draw.integers(0, 64, 500).tolist()
    assert_equals_oracle([0, *others, *newcomers], capacity, small=0.5, ghost=2.0)


@pytest.mark.parametrize("root_first", [False, True])
@settings(deadline=None, max_examples=60)
@given(trace=traces(max_requests=60), capacity=st.integers(1, 12))
def test_both_orders_inside_a_request_equal_the_oracle(root_first, trace, capacity):
    """A parent may leave before its child: a hit must not count behind such a hole."""
    policy = s3fifo()
    rule = dataclasses.replace(policy.rule, root_first=root_first)
    policy = dataclasses.replace(policy, rule=rule)
    hits, victims = listed.simulate(
        rows_of(trace, trace.block), listed.S3Fifo(capacity), root_first=root_first
    )
    found = replay_online(trace, policy, [capacity])
    assert found.blocks[0].tolist() == hits
    assert found.evictions[0] == sum(map(len, victims))


def test_all_state_is_updated_in_place():
    text = compiled(s3fifo()) or ""
    assert state_copies(text, {2048, 2049, 3 * 4096}) == []


def test_a_small_queue_of_the_whole_cache_is_refused():
    with pytest.raises(InputError, match="small is 1.0, must be below 1"):
        s3fifo(small=1.0)
