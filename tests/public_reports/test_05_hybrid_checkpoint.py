"""vllm#45238: the only checkpoint lies where prompts differ, and nothing hits."""

import numpy as np
import pytest

from perc.attribution import CAUSES, misses_by_cause
from perc.hybrid import full_attention, hybrid_hits, recurrent_state, reusable
from tests.public_reports.traffic import fresh, hits_of, trace_of

PROMPTS, TOKENS, BLOCK, CHECKPOINT = 64, 2200, 528, 1584


def prompts(shared_tokens):
    """64 prompts of 2,200 tokens that share their first tokens, in full blocks."""
    full, shared = TOKENS // BLOCK, shared_tokens // BLOCK
    assert full == 4  # 2,112 tokens
    own = fresh(PROMPTS, full)
    rows = [[*range(shared), *row[shared:]] for row in own]
    return trace_of(rows, block_tokens=BLOCK, input_tokens=[TOKENS] * PROMPTS)


@pytest.mark.parametrize(
    ("shared", "attention", "reused"), [(1600, 1584, 1584), (1500, 1056, 0)]
)
def test_reused_tokens(shared, attention, reused):
    """vllm#45238. At 1,500 shared tokens attention finds two blocks, and no state."""
    trace = prompts(shared)
    hits = np.array(hits_of("lru", trace, 1000))
    checkpoint = (trace.depth + 1) * BLOCK == CHECKPOINT
    both = hybrid_hits(trace, hits, checkpoint)
    assert (hits * BLOCK).tolist() == [0, *[attention] * 63]
    assert (both * BLOCK).tolist() == [0, *[reused] * 63]

    bound = np.array(hits_of("belady", trace, 1000))
    misses = misses_by_cause(trace, both, bound, attention_alone=hits)
    tokens = dict(zip(CAUSES, misses.tokens[:, 1:].sum(axis=1).tolist(), strict=True))
    assert tokens == {
        "hybrid": 63 * (attention - reused),
        "retention": 0,
        "policy": 0,
        "capacity": 0,
        "cold": 63 * (2112 - attention),
        "rounding": 63 * (2200 - 2112),
    }


@pytest.mark.parametrize(
    ("shared", "reused", "limiting"),
    [(1600, 1584, ()), (1500, 0, ("recurrent state",))],
)
def test_the_group_that_decides_is_named(shared, reused, limiting):
    """vllm#45238. One look-up, group by group."""
    groups = [full_attention(BLOCK), recurrent_state(BLOCK)]
    blocks = [BLOCK * (i + 1) <= shared for i in range(4)]
    states = [BLOCK * (i + 1) == CHECKPOINT <= shared for i in range(4)]
    found = reusable(groups, [blocks, states])
    assert (found.tokens, found.limiting) == (reused, limiting)
