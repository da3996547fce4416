"""False hits are counted, and every policy can be tried on a log."""

import pytest

import perc
from perc.errors import InputError
from perc.responses.cache import Settings
from perc.responses.judge import by_threshold, judge
from perc.responses.log import trace_of_queries
from perc.responses.queries import ngrams, query

QUESTIONS = [
    ("how do i reset my password", "reset"),
    ("How do I reset my password?", "reset"),
    ("how do i delete my password", "delete"),
    ("opening hours", "hours"),
    ("how do i reset my password", "reset"),
    ("when are you open", "hours"),
]


@pytest.fixture(scope="module")
def log():
    return [query(text, embed=ngrams) for text, _ in QUESTIONS], [
        label for _, label in QUESTIONS
    ]


def test_a_low_threshold_gives_hits_and_wrong_answers(log):
    low, middle, high = by_threshold(Settings(9), log[0], log[1], [-1.0, 0.6, 1.0])
    # Everything resembles the first question at -1: two true, three false.
    assert (low.exact, low.semantic, low.false, low.missed) == (1, 4, 3, 0)
    assert low.false_hit_ratio == 0.75 and low.hit_ratio == 5 / 6
    # Spelling takes `delete` for `reset`, and does not know that hours are opening.
    assert (middle.exact, middle.semantic, middle.false) == (1, 2, 1)
    assert middle.missed == 1 and middle.false_hit_ratio == 0.5
    assert (high.exact, high.semantic, high.false_hit_ratio) == (1, 0, 0)
    assert high.missed == 2


def test_exact_alone_is_never_false(log):
    found = judge(Settings(9), *log)
    assert (found.exact, found.semantic, found.false) == (1, 0, 0)
    assert found.threshold is None and found.hit_ratio == 1 / 6


def test_the_bounds_hold_in_a_log(log):
    one = judge(Settings(1), *log)
    assert (one.exact, one.evicted) == (0, 5)
    late = judge(Settings(9, ttl_s=4.0), *log)
    assert late.exact == 0  # asked again after exactly 4 s
    assert judge(Settings(9, ttl_s=4.5), *log).exact == 1
    brief = judge(Settings(9, ttl_s=1.5), *log)
    assert brief.missed == 1  # the second question; later ones find nothing alive
    assert judge(Settings(9), [], []).hit_ratio == 0


def test_every_policy_runs_on_the_log(log):
    trace = trace_of_queries(log[0] * 3)
    assert trace.n_requests == trace.n_accesses == 18 and trace.n_blocks == 5
    rows = perc.compare(trace, ["lru", "arc", "gdsf", "belady"], [2]).rows
    assert rows[-1].block_hit_ratio == max(row.block_hit_ratio for row in rows) > 0


def test_bad_input(log):
    with pytest.raises(InputError, match="6 questions, 1 labels, 6 times"):
        judge(Settings(9), log[0], ["x"])
    with pytest.raises(InputError, match="arrival_s falls"):
        judge(Settings(9), *log, arrival_s=[0, 1, 2, 1, 3, 4])
    with pytest.raises(InputError, match="1 times for 6 questions"):
        trace_of_queries(log[0], arrival_s=[0])
