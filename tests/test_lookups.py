"""A request is one query, whatever the engine does until it is done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError
from perc.lookups import Event, count_lookups


@st.composite
def histories(draw):
    """Per request: its keys, and per admission the hits of each try, the last counts.

    Requests are interleaved at random.
    """
    requests = []
    for r in range(draw(st.integers(0, 4))):
        keys = [(r, i) for i in range(draw(st.integers(0, 4)))] + draw(
            st.sampled_from([[], ["shared"]])
        )
        tries = st.lists(st.integers(0, len(keys)), min_size=1, max_size=3)
        requests.append((r, keys, draw(st.lists(tries, min_size=1, max_size=3))))
    pending = []
    for r, keys, admissions in requests:
        mine = []
        for i, tries in enumerate(admissions):
            mine += [Event("preempt", r)] if i else []
            mine += [Event("look up", r, keys, hits) for hits in tries]
            mine.append(Event("admit", r))
        pending.append(mine)
    log = []
    while any(pending):
        mine = draw(st.sampled_from([events for events in pending if events]))
        log.append(mine.pop(0))
    return requests, log


@given(histories())
def test_sums_are_those_of_each_requests_history(history):
    requests, log = history
    found = count_lookups(log)
    first = [(len(keys), tries[0][-1]) for _, keys, tries in requests]
    later = [
        (len(keys), tries[-1])
        for _, keys, admissions in requests
        for tries in admissions[1:]
    ]
    assert found.queries == sum(asked for asked, _ in first)
    assert found.hits == sum(hits for _, hits in first)
    assert found.reread == sum(hits for _, hits in later)
    assert found.recomputed == sum(asked - hits for asked, hits in later)
    assert found.retries == sum(
        len(tries) - 1 for _, _, admissions in requests for tries in admissions
    )
    assert found.uses["shared"] == sum("shared" in keys for _, keys, _ in requests)
    assert all(count == 1 for key, count in found.uses.items() if key != "shared")
    assert 0 <= found.block_hit_ratio <= 1


def test_a_request_that_is_never_admitted_asked_nothing():
    found = count_lookups([Event("look up", "r", ["a"], 1)] * 3)
    assert (found.queries, found.retries, found.block_hit_ratio) == (0, 3, 0.0)


ASK, GO = Event("look up", "r", ["a"]), Event("admit", "r")


@pytest.mark.parametrize(
    "log",
    [
        [GO],
        [ASK, GO, GO],
        [ASK, GO, ASK, GO],
        [Event("preempt", "r")],
        [ASK, GO, Event("preempt", "r"), Event("preempt", "r")],
        [Event("look up", "r", ["a"], 2)],
        [ASK, GO, Event("end", "r")],  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_log_that_cannot_be_is_refused(log):
    with pytest.raises(InputError, match="request 'r' at .* Is the log complete"):
        count_lookups(log)
