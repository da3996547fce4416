"""llama.cpp#28139: 0 / 0 is NaN, no comparison with it holds, a cache was skipped."""

import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import perc
from perc import paging
from perc.errors import TraceWarning
from perc.lookups import count_lookups
from perc.metrics import measure
from tests.public_reports.traffic import hits_of, trace_of

POLICIES = ["lru", "lfu_in_cache", "perc", "belady"]


@pytest.mark.parametrize("requests", [[], [[]] * 3])
def test_traces_without_blocks(requests):
    """llama.cpp#28139."""
    trace = trace_of(requests)
    with warnings.catch_warnings(action="ignore", category=TraceWarning):
        rows = perc.compare(trace, POLICIES, [0, 4]).rows
        whys = perc.attribute(trace, POLICIES, [0, 4]).rows
    for row in rows:
        ratios = (row.block_hit_ratio, row.token_hit_ratio, row.recompute_s)
        assert ratios == (0.0, 0.0, 0.0) and row.gap_closed is None
    for why in whys:
        assert why.hit_tokens == why.prompt_tokens == 0
        assert not any(miss.recompute_s for miss in why.misses.values())


def test_a_window_without_requests():
    """llama.cpp#28139."""
    trace = trace_of([[0], [0]])
    found = measure(trace, np.array([0, 1]), warmup_requests=2)
    assert (found.block_hit_ratio, found.token_hit_ratio) == (0.0, 0.0)
    assert (found.recompute_tokens, found.recompute_s) == (0, 0.0)


def test_a_look_up_in_an_empty_cache():
    """llama.cpp#28139."""
    assert paging.look_up(paging.empty_pool(2), jnp.array([0, 1])).tolist() == [-1, -1]
    ratio = count_lookups([]).block_hit_ratio
    assert ratio == 0.0 and not math.isnan(ratio)


def test_an_empty_slot_does_not_hide_the_stored_prompt():
    """llama.cpp#28139. After P and Q, a look-up of P still hits all of P."""
    p, q = [0, 1], [2, 3]
    assert hits_of("lru", trace_of([p, q, p]), 8) == [0, 0, 2]
    assert hits_of("lru", trace_of([p, q, [], p]), 4) == [0, 0, 0, 2]
