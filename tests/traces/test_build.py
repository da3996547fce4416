"""Interning, links and inferred sessions against readable plain-Python oracles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError, TraceWarning
from perc.traces.build import Columns, build_trace, factorize

BLOCK_TOKENS = 4
# Random prefix trees: few edges at each node, so that requests share prefixes.
prompts = st.lists(st.lists(st.integers(0, 2), max_size=7), max_size=25)


def columns_of(rows: list[list], input_tokens=None, **kwargs) -> Columns:
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = [x for row in rows for x in row]
    exact = all(isinstance(x, int) and abs(x) < 2**62 for x in ids)
    return Columns(
        arrival_s=kwargs.pop("arrival_s", np.arange(len(rows), dtype=float)),
        input_tokens=lengths * BLOCK_TOKENS if input_tokens is None else input_tokens,
        output_tokens=np.ones(len(rows), np.int64),
        ids=np.array(ids, np.int64 if exact else object),
        lengths=lengths,
        **kwargs,
    )


def build(rows: list[list], chained=True, **kwargs):
    columns = columns_of(rows, **kwargs)
    return build_trace(
        columns, block_tokens=BLOCK_TOKENS, source="here", chained=chained
    )


def trie_numbers(rows: list[list]) -> list[int]:
    """Oracle: one node for every (parent, id), numbered as they come."""
    nodes: dict = {}
    numbers = []
    for row in rows:
        node = None
        for x in row:
            node = nodes.setdefault((node, x), len(nodes))
            numbers.append(node)
    return numbers


def chained_ids(rows: list[list[int]], salt: int) -> list[list[int]]:
    """Ids that name the whole prefix, spread over 60 bits."""
    return [
        [hash((salt, *row[: d + 1])) % 2**60 for d in range(len(row))] for row in rows
    ]


@given(prompts)
def test_content_ids_are_interned_like_a_trie(rows):
    assert build(rows, chained=False).block.tolist() == trie_numbers(rows)


@given(prompts, st.integers(0, 99))
def test_chained_ids_are_interned_like_a_trie(rows, salt):
    trace = build(chained_ids(rows, salt))
    assert trace.block.tolist() == trie_numbers(rows)


@given(prompts)
def test_ids_beyond_64_bits_and_strings_stay_exact(rows):
    wide = [[2**80 + x for x in row] for row in rows]
    words = [[f"id {x}" for x in row] for row in rows]
    for ids in (wide, words):
        assert build(ids, chained=False).block.tolist() == trie_numbers(rows)


@given(prompts)
def test_prev_and_next_name_the_neighbouring_accesses(rows):
    trace = build(rows, chained=False)
    last: dict[int, int] = {}
    prev, after = [], [-1] * trace.n_accesses
    for i, block in enumerate(trace.block.tolist()):
        prev.append(last.get(block, -1))
        if block in last:
            after[last[block]] = i
        last[block] = i
    assert trace.prev.tolist() == prev
    assert trace.next.tolist() == after


def follow_ups(rows: list[list[int]], input_tokens: list[int]) -> list[tuple[int, int]]:
    """Oracle: session and turn of each request, by prefix extension."""
    last_user: dict[tuple, int] = {}
    found: list[tuple[int, int]] = []
    n_sessions = 0
    for r, row in enumerate(rows):
        shared = 0
        while shared < len(row) and tuple(row[: shared + 1]) in last_user:
            shared += 1
        place = None
        if shared >= 2:
            candidate = last_user[tuple(row[:shared])]
            if shared >= input_tokens[candidate] // BLOCK_TOKENS:
                session, turn = found[candidate]
                place = session, turn + 1
        if place is None:
            place = n_sessions, 1
            n_sessions += 1
        found.append(place)
        last_user.update({tuple(row[: d + 1]): r for d in range(len(row))})
    return found


@given(prompts, st.data())
def test_sessions_are_inferred_by_prefix_extension(rows, data):
    partial = [data.draw(st.integers(0, 3)) if row else 0 for row in rows]
    tokens = [len(row) * BLOCK_TOKENS - p for row, p in zip(rows, partial, strict=True)]
    trace = build(rows, chained=False, input_tokens=np.array(tokens, np.int64))
    assert trace.sessions_inferred
    places = list(zip(trace.session.tolist(), trace.turn.tolist(), strict=True))
    assert places == follow_ups(rows, tokens)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=12))
def test_requests_are_sorted_by_time_and_ties_keep_their_order(times):
    rows = [[10 * i, 10 * i + 1] for i in range(len(times))]
    columns = columns_of(rows, arrival_s=np.array(times), kind=list(range(len(times))))
    late = sum(b < a for a, b in zip(times, times[1:], strict=False))
    if late:
        with pytest.warns(TraceWarning, match=rf"here: {late} request"):
            trace = build_trace(columns, block_tokens=BLOCK_TOKENS, source="here")
    else:
        trace = build_trace(columns, block_tokens=BLOCK_TOKENS, source="here")
    order = sorted(range(len(times)), key=lambda i: times[i])
    assert [trace.kinds[k] for k in trace.kind] == [str(i) for i in order]
    assert trace.arrival_s.tolist() == [times[i] - min(times) for i in order]


def test_tokens_fill_blocks_and_the_last_may_be_partial():
    trace = build([[1, 2, 3], [1]], input_tokens=np.array([9, 4]))
    assert trace.tokens.tolist() == [4, 4, 1, 4]


def test_turns_are_counted_within_a_session_and_none_is_on_its_own():
    trace = build([[1], [2], [3], [4]], session=["a", None, "a", None])
    assert trace.session.tolist() == [0, 1, 0, 2]
    assert trace.turn.tolist() == [1, 1, 2, 1]
    assert not trace.sessions_inferred


def test_a_repeated_id_in_a_chained_request_is_rejected_with_its_line():
    with pytest.raises(InputError, match="here, line 2: a block id occurs twice"):
        build([[1, 2], [3, 4, 3]])
    trace = build([[1, 2], [3, 4, 3]], chained=False)
    assert trace.n_blocks == 5


def test_chained_ids_under_several_parents_are_told_apart_with_a_warning():
    with pytest.warns(TraceWarning, match="several parents"):
        trace = build([[1, 2], [3, 2]])
    assert trace.block.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(arrival_s=np.array([0.0, np.nan])), "line 2: time stamp is nan"),
        (dict(arrival_s=np.array([-1.0, 0.0])), "line 1: time stamp is -1.0"),
        (dict(input_tokens=np.array([-1, 4])), "line 1: input length is -1"),
        (dict(input_tokens=np.array([4, 2**31])), "line 2: input length is 2147483648"),
        (dict(input_tokens=np.array([4, 0])), "line 2: number of block ids is 1"),
        (dict(session=[1, 1], turn=np.array([1, 2**31])), "line 2: turn is 2147483648"),
        (dict(input_tokens=np.array([4, 0]), lines=np.array([7, 9])), "line 9"),
    ],
)
def test_values_out_of_range_are_named(change, message):
    with pytest.raises(InputError, match=message):
        build([[1], [2]], **change)


def test_an_empty_trace_has_no_accesses_and_no_blocks():
    trace = build([])
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (0, 0, 0)
    assert trace.longest_request == 0


def test_a_block_holds_at_least_one_token():
    with pytest.raises(InputError, match="a block of 0 tokens"):
        build_trace(columns_of([[1]]), block_tokens=0, source="here")


@given(st.lists(st.integers(-(2**62), 2**62)))
def test_factorize_numbers_by_first_appearance(values):
    expected = {x: i for i, x in enumerate(dict.fromkeys(values))}
    found = factorize(np.array(values, np.int64))
    assert found.tolist() == [expected[x] for x in values]


def test_every_column_moves_with_its_request():
    columns = columns_of(
        [[1], [2], [3]],
        arrival_s=np.array([2.0, 0.0, 1.0]),
        session=["x", "y", "z"],
        turn=np.array([3, 1, 2]),
        kind=["c", "a", "b"],
        priority=np.array([30, 10, 20]),
        deadline_s=np.array([3.0, 1.0, 2.0]),
    )
    with pytest.warns(TraceWarning, match="sorted by time"):
        trace = build_trace(columns, block_tokens=BLOCK_TOKENS, source="t")
    assert trace.turn.tolist() == [1, 2, 3]
    assert trace.priority.tolist() == [10, 20, 30]
    assert trace.deadline_s.tolist() == [1.0, 2.0, 3.0]
    assert [trace.kinds[k] for k in trace.kind] == ["a", "b", "c"]
    assert trace.session.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint64, np.int64])
def test_ids_of_any_width_keep_their_partition(dtype):
    info = np.iinfo(dtype)
    ids = np.array([info.min, info.max, info.min, info.max - 1], dtype)
    assert factorize(ids).tolist() == [0, 1, 0, 2]


def test_a_priority_beyond_32_bits_is_named():
    columns = columns_of([[1]], priority=np.array([2**31]))
    with pytest.raises(InputError, match="priority is 2147483648, must be within"):
        build_trace(columns, block_tokens=BLOCK_TOKENS, source="t")
