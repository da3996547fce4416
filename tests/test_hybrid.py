"""A prompt resumes where every group of layers can, found token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError
from perc.hybrid import (
    full_attention,
    hybrid_hits,
    recurrent_state,
    reusable,
    sliding_window,
)
from tests.strategies import traces
from tests.test_step import trace_of


@st.composite
def groups_and_blocks(draw):
    group = st.one_of(
        st.builds(full_attention, st.integers(1, 4)),
        st.builds(recurrent_state, st.integers(1, 6)),
        st.builds(sliding_window, st.integers(1, 4), st.integers(1, 9)),
    )
    groups = draw(st.lists(group, min_size=1, max_size=3))
    row = st.lists(st.booleans(), max_size=8)
    return groups, [draw(row) for _ in groups]


def can_resume(group, resident, token):
    """Whether all tokens that the group must see before `token` are there."""
    if token % group.block_tokens or token > len(resident) * group.block_tokens:
        return False
    reach = token if group.reach_tokens is None else group.reach_tokens
    seen = range(max(token - reach, 0), token)
    return all(resident[t // group.block_tokens] for t in seen)


def best(groups, rows):
    return max(
        token
        for token in range(50)
        if all(can_resume(g, row, token) for g, row in zip(groups, rows, strict=True))
    )


@given(groups_and_blocks())
def test_reuse_is_the_last_token_at_which_all_resume(case):
    groups, rows = case
    found = reusable(groups, rows)
    assert found.tokens == best(groups, rows)
    pairs = list(zip(groups, rows, strict=True))
    assert found.alone == tuple(best([g], [row]) for g, row in pairs)
    others = [
        best(*zip(*pairs[:i], *pairs[i + 1 :], strict=True)) if len(pairs) > 1 else 0
        for i in range(len(pairs))
    ]
    assert found.limiting == tuple(
        group.name
        for group, without in zip(groups, others, strict=True)
        if without > found.tokens
    )


def test_a_window_needs_its_last_tokens_only():
    window = sliding_window(2, 4)  # the three tokens before
    assert reusable([window], [[False, False, True, True]]).tokens == 8
    assert reusable([window], [[True, True, False, True]]).tokens == 4
    assert reusable([sliding_window(2, 1)], [[False, False]]).tokens == 4


@given(trace=traces(), every=st.integers(1, 3), data=st.data())
def test_states_that_earlier_requests_kept(trace, every, data):
    lengths = (trace.stop - trace.start).tolist()
    hits = [data.draw(st.integers(0, n)) for n in lengths]
    checkpoint = (trace.depth + 1) % every == 0
    found = hybrid_hits(trace, np.array(hits, np.int32), checkpoint)
    kept = set()
    for r, hit in enumerate(hits):
        blocks = trace.block[trace.start[r] : trace.stop[r]].tolist()
        deepest = max((d + 1 for d in range(hit) if blocks[d] in kept), default=0)
        assert found[r] == deepest
        kept |= {block for d, block in enumerate(blocks) if (d + 1) % every == 0}


@pytest.mark.parametrize(
    "call",
    [
        lambda: full_attention(0),
        lambda: recurrent_state(-1),
        lambda: sliding_window(4, 0),
        lambda: reusable([], []),
        lambda: reusable([full_attention(4)], []),
        lambda: hybrid_hits(trace_of([[1]]), np.array([1, 1]), np.array([True])),
        lambda: hybrid_hits(trace_of([[1]]), np.array([1]), np.array([])),
    ],
)
def test_what_cannot_be_is_refused(call):
    with pytest.raises(InputError, match="; give "):
        call()
