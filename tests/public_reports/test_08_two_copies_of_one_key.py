"""kvcached#401, vllm#55092: one content in two blocks, removed while a copy is left."""

import jax.numpy as jnp
import numpy as np
import pytest

from perc import paging
from perc.errors import InputError
from perc.traces.build import Columns, build_trace

KEY = jnp.array([7])


def removed(given):
    return [key for key in np.asarray(given.removed).tolist() if key >= 0]


def test_a_key_goes_with_its_last_copy():
    """ovg-project/kvcached#401, vllm#55092."""
    pool, first = paging.allocate(paging.empty_pool(4), 1)
    pool, second = paging.allocate(pool, 1)
    p1, p2 = first.blocks[:1], second.blocks[:1]
    pool, stored = paging.name(pool, p1, KEY)
    assert stored.tolist() == [7]
    pool, stored = paging.name(pool, p2, KEY)
    assert stored.tolist() == [-1]  # it was there
    pool = paging.release(paging.release(pool, p1), p2)
    count = paging.census(pool)
    assert (int(count.keys), int(count.keyed)) == (1, 2)

    pool, gone = paging.evict(pool, 1)
    assert gone.blocks[0] == p1[0] and removed(gone) == []
    assert paging.look_up(pool, KEY).tolist() == p2.tolist()

    pool, gone = paging.evict(pool, 1)
    assert gone.blocks[0] == p2[0] and removed(gone) == [7]
    assert paging.look_up(pool, KEY).tolist() == [-1]


def test_two_copies_that_go_together_are_one_removal():
    """vllm#55092."""
    pool, given = paging.allocate(paging.empty_pool(2), 2)
    pool, stored = paging.name(pool, given.blocks, jnp.array([7, 7]))
    assert stored.tolist() == [7, -1]
    _, gone = paging.evict(paging.release(pool, given.blocks), 2)
    assert removed(gone) == [7]


def columns(ids):
    return Columns(
        arrival_s=np.arange(2.0),
        input_tokens=np.array([1, 3]),
        output_tokens=np.ones(2, np.int64),
        ids=np.array(ids),
        lengths=np.array([1, 3]),
    )


def test_a_repeated_id_in_a_chained_trace_is_refused_with_its_row():
    """ovg-project/kvcached#401."""
    with pytest.raises(InputError, match="report, line 2: a block id occurs twice"):
        build_trace(columns([9, 1, 2, 1]), block_tokens=1, source="report")


def test_content_ids_may_repeat_and_are_told_apart():
    """ovg-project/kvcached#401. A block is (its parent, its content)."""
    trace = build_trace(
        columns([9, 1, 2, 1]), block_tokens=1, source="report", chained=False
    )
    assert trace.block.tolist() == [0, 1, 2, 3]
