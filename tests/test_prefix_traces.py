"""Token lists become a trace: what is shared, what is partial, what is wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.prefix_traces import trace_of_tokens
from tests.strategies import rows_of

PROMPTS = st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=8)


@settings(deadline=None, max_examples=60)
@given(PROMPTS, st.integers(1, 4))
def test_a_block_is_the_prefix_that_it_ends(prompts, size):
    trace = trace_of_tokens(prompts, block_tokens=size)
    seen: dict[tuple, int] = {}
    for prompt, blocks in zip(prompts, rows_of(trace, trace.block), strict=True):
        ends = range(size, len(prompt) + 1, size)
        assert blocks == [
            seen.setdefault(tuple(prompt[:end]), len(seen)) for end in ends
        ]
    assert trace.input_tokens.tolist() == [len(prompt) for prompt in prompts]
    assert (trace.tokens == size).all()


def test_columns_are_kept_and_sessions_inferred():
    prompts = [[1, 2, 3, 4], [7], [1, 2, 3, 4, 5, 6]]
    trace = trace_of_tokens(
        prompts, block_tokens=2, arrival_s=[5, 6, 8], output_tokens=[3, 0, 1]
    )
    assert trace.arrival_s.tolist() == [0, 1, 3]
    assert trace.output_tokens.tolist() == [3, 0, 1]
    assert trace.sessions_inferred and trace.turn.tolist() == [1, 1, 2]
    named = trace_of_tokens(prompts, block_tokens=2, session=["a", None, "b"])
    assert named.session.tolist() == [0, 1, 2] and not named.sessions_inferred


@pytest.mark.parametrize(
    "given_, said_of_it",
    [
        ({"block_tokens": 0}, "a block of 0 tokens; give 1 or more"),
        ({"arrival_s": [1.0]}, "1 of arrival_s for 2 prompts"),
        ({"output_tokens": [1, 2, 3]}, "3 of output_tokens for 2 prompts"),
        ({"session": ["a"]}, "1 of session for 2 prompts"),
        ({"arrival_s": [0.0, -1.0]}, "time stamp is -1.0, must be 0 or more"),
    ],
)
def test_bad_input(given_, said_of_it):
    with pytest.raises(InputError, match=said_of_it):
        trace_of_tokens([[1, 2], [3]], **given_)
