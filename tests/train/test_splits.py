"""Parts of a trace by session."""

import numpy as np
from hypothesis import given, settings

import perc
from perc.train.splits import halves_by_session, of_sessions
from tests.strategies import traces


def requests_of(trace, chosen):
    """What each request of the chosen sessions asks for, in plain Python."""
    names = {}  # block -> (depth, tokens) path that it stands for
    found = []
    for r in range(trace.n_requests):
        path = ()
        for i in range(trace.start[r], trace.stop[r]):
            path = (*path, int(trace.block[i]), int(trace.tokens[i]))
            names[int(trace.block[i])] = path
        if chosen[trace.session[r]]:
            found.append((float(trace.arrival_s[r]), int(trace.input_tokens[r]), path))
    return found


@settings(max_examples=60, deadline=None)
@given(traces())
def test_a_part_holds_its_sessions_requests_and_no_others(trace):
    chosen = np.arange(int(trace.session.max(initial=-1)) + 1) % 2 == 0
    part = of_sessions(trace, chosen)
    everything = np.ones(int(part.session.max(initial=-1)) + 1, bool)
    whole = requests_of(trace, chosen)
    again = requests_of(part, everything)
    assert [w[:2] for w in whole] == [a[:2] for a in again]
    back = {}  # dense ids of the part -> ids of the whole
    for (_, _, old), (_, _, new) in zip(whole, again, strict=True):
        assert len(old) == len(new)
        for a, b in zip(old[::2], new[::2], strict=True):
            assert back.setdefault(b, a) == a
        assert old[1::2] == new[1::2]
    assert len(set(back.values())) == len(back) == part.n_blocks


@settings(max_examples=60, deadline=None)
@given(traces())
def test_uses_are_linked_within_the_part(trace):
    part = of_sessions(trace, np.arange(int(trace.session.max(initial=-1)) + 1) == 0)
    last = {}
    for i, block in enumerate(part.block.tolist()):
        assert part.prev[i] == last.get(block, -1)
        if block in last:
            assert part.next[last[block]] == i
        last[block] = i
    assert all(part.next[i] == -1 for i in last.values())


def test_halves_share_no_session_and_lose_no_request():
    trace = perc.make("chat", requests=200, seed=3)
    one, other = halves_by_session(trace, seed=0)
    assert one.n_requests + other.n_requests == trace.n_requests
    assert one.n_accesses + other.n_accesses == trace.n_accesses
    sessions = int(trace.session.max()) + 1
    counts = [int(part.session.max()) + 1 for part in (one, other)]
    assert sum(counts) == sessions and abs(counts[0] - counts[1]) <= 1
    assert sorted([*one.arrival_s, *other.arrival_s]) == list(trace.arrival_s)


def test_the_seed_draws_the_halves():
    trace = perc.make("chat", requests=200, seed=3)
    first, again, different = (halves_by_session(trace, seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first.arrival_s, again.arrival_s)
    assert not np.array_equal(first.arrival_s, different.arrival_s)
