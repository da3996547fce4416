"""The cache of answers against a plain list of slots, and its rules one by one."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import perc
from perc.cli.policies import parse_policies
from perc.errors import InputError
from perc.policies.registry import registry
from perc.prefix_keys import Use
from perc.responses.cache import (
    Settings,
    empty_responses,
    live_answers,
    look_up,
    store,
)
from perc.responses.log import trace_of_queries
from perc.responses.queries import query
from perc.types import OnlinePolicy
from tests.oracles.responses import Answers

VECTORS = {
    "a": [1, 0],
    "b": [4, 3],
    "c": [3, 4],
    "d": [0, 1],
    "e": [-1, 0],
    "f": [0, 0],
}
ORDERS = {
    "lru": lambda e: 0,
    "lfu": lambda e: e["uses"],
    "fifo": lambda e: e["first"],
    "priority": lambda e: e["priority"],
}
EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.integers(0, 1),  # parameters
        st.sampled_from([0.0, 1.0, 4.0]),  # seconds later
        st.integers(0, 2),  # priority
    ),
    max_size=25,
)


def embed(texts):
    return [VECTORS[text] for text in texts]


def policy_of(kind):
    return None if kind == "lru" else registry[kind]()


@settings(deadline=None, max_examples=120)
@given(
    EVENTS,
    st.sampled_from(sorted(ORDERS)),
    st.sampled_from([None, 0.8, 0.96, 1.0, -1.0]),
    st.sampled_from([math.inf, 4.0]),
    st.integers(1, 4),
)
def test_against_a_list_of_slots(events, kind, threshold, ttl_s, capacity):
    wanted = Settings(capacity, threshold, ttl_s, policy_of(kind))
    state = empty_responses(wanted, embedding=2)
    plain = Answers(capacity, threshold, ttl_s, ORDERS[kind])
    now, counts = 0.0, {"exact": 0, "semantic": 0, "miss": 0}
    for number, (prompt, scope, later, priority) in enumerate(events):
        now += later
        asked = query(prompt, {"scope": scope}, embed=embed)
        use = Use(priority=priority)
        state, found = look_up(wanted, state, asked, now_s=now, use=use)
        expected = plain.look_up(prompt, scope, VECTORS[prompt], now, priority)
        assert (found.kind, found.answer) == expected
        counts[found.kind] += 1
        if found.kind != "exact":  # now and then a likeness is not good enough
            if found.kind == "semantic" and number % 3:
                continue
            state, out = store(wanted, state, asked, number, now_s=now, use=use)
            assert out == plain.store(
                prompt, scope, VECTORS[prompt], number, now, priority
            )
        answers = [e and e["answer"] for e in plain.slots]
        assert state.answer.tolist() == answers
        live = [e for e in plain.slots if e and e["until"] > now]
        assert live_answers(state, now) == len(live) <= capacity
    tally = state.tally
    assert (tally.exact, tally.semantic, tally.misses) == tuple(counts.values())
    assert tally.stored == tally.replaced + tally.expired + tally.evicted + int(
        state.held.sum()
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(1, 4))
@pytest.mark.parametrize("kind", ["lru", "fifo"])
def test_it_hits_what_the_block_cache_hits(kind, prompts, capacity):
    wanted = Settings(capacity, policy=policy_of(kind))
    state, hits = empty_responses(wanted), []
    questions = [query(prompt) for prompt in prompts]
    for now, asked in enumerate(questions):
        state, found = look_up(wanted, state, asked, now_s=now)
        hits.append(int(found.kind == "exact"))
        if not hits[-1]:
            state, _ = store(wanted, state, asked, "x", now_s=now)
    trace = trace_of_queries(questions)
    policy = registry[kind]()
    order = perc.ranks(trace, perc.scores(policy, trace))
    found = perc.replay(trace, order, [capacity], refresh=policy.refresh)
    assert found.blocks[0].tolist() == hits


ONLINE = ["lfu_in_cache", "lru_k", "gdsf", "gdsf:evict_first=true", "landlord"]


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(1, 4))
@example(list("aabcba"), 2)  # the clock moves for later uses only
@pytest.mark.parametrize("kind", ONLINE)
def test_online_scores_hit_what_the_online_engine_hits(kind, prompts, capacity):
    (policy,) = parse_policies(kind)
    assert isinstance(policy, OnlinePolicy)
    wanted = Settings(capacity, policy=policy)
    state, hits = empty_responses(wanted), []
    questions = [query(prompt, tokens=1) for prompt in prompts]
    for now, asked in enumerate(questions):
        state, found = look_up(wanted, state, asked, now_s=now)
        hits.append(int(found.kind == "exact"))
        if not hits[-1]:
            state, _ = store(wanted, state, asked, "x", now_s=now)
    found = perc.replay_online(trace_of_queries(questions), policy, [capacity])
    assert found.blocks[0].tolist() == hits


def test_the_clock_of_a_rule_is_the_highest_key_that_left():
    """GreedyDual ages by it: what was used three times leaves in the end."""
    wanted = Settings(2, policy=registry["gdsf"]())
    state = empty_responses(wanted)
    for now, prompt in enumerate("aaabcdefg"):
        asked = query(prompt)
        state, found = look_up(wanted, state, asked, now_s=now)
        if found.kind == "miss":
            state, _ = store(wanted, state, asked, prompt, now_s=now)
    assert set(state.answer) == {"f", "g"}


def test_an_answer_lives_its_time_from_when_it_was_stored():
    wanted = Settings(2, ttl_s=10.0)
    asked = query("a")
    state, _ = store(wanted, empty_responses(wanted), asked, "x", now_s=5.0)
    state, found = look_up(wanted, state, asked, now_s=14.9)  # a hit lengthens nothing
    assert found.kind == "exact"
    assert look_up(wanted, state, asked, now_s=15.0)[1].kind == "miss"
    state, out = store(wanted, state, asked, "y", now_s=15.0)
    assert out is None and state.tally.replaced == 1
    assert look_up(wanted, state, asked, now_s=24.9)[1].answer == "y"


def test_old_entries_make_room_before_live_ones():
    wanted = Settings(2, ttl_s=10.0)
    state = empty_responses(wanted)
    state, _ = store(wanted, state, query("old"), 1, now_s=0.0)
    state, _ = store(wanted, state, query("new"), 2, now_s=5.0)
    state, _ = look_up(wanted, state, query("old"), now_s=6.0)  # the more recent use
    state, out = store(wanted, state, query("other"), 3, now_s=11.0)
    assert out is None and state.tally.expired == 1 and state.tally.evicted == 0
    assert look_up(wanted, state, query("new"), now_s=11.0)[1].kind == "exact"


def test_a_new_answer_does_not_inherit_the_worth_of_the_old_one():
    wanted = Settings(2, policy=registry["priority"]())
    state = empty_responses(wanted)
    for prompt, priority in (("a", 2), ("a", 0), ("b", 1)):
        use = Use(priority=priority)
        state, _ = store(wanted, state, query(prompt), prompt, now_s=0.0, use=use)
    assert store(wanted, state, query("c"), "c", now_s=0.0)[1] == "a"


def test_semantic_from_the_threshold_on_and_under_equal_parameters():
    for threshold, kind in ((0.8, "semantic"), (np.nextafter(0.8, 1), "miss")):
        wanted = Settings(2, threshold=float(threshold))
        state = empty_responses(wanted, embedding=2)
        state, _ = store(wanted, state, query("a", embed=embed), "x", now_s=0)
        found = look_up(wanted, state, query("b", embed=embed), now_s=0)[1]
        assert found.kind == kind and found.similarity == 0.8
        other = query("b", {"model": "other"}, embed=embed)
        assert look_up(wanted, state, other, now_s=0)[1].kind == "miss"


def test_states_are_not_changed():
    wanted = Settings(1, threshold=0.5)
    before = empty_responses(wanted, embedding=2)
    copies = [np.copy(column) for column in before[:11]]
    after, _ = store(wanted, before, query("a", embed=embed), "x", now_s=0)
    look_up(wanted, after, query("b", embed=embed), now_s=0)
    for column, copy in zip(before[:11], copies, strict=True):
        np.testing.assert_array_equal(column, copy)
    assert after.frequency.tolist() == [1] and before.tally.stored == 0


def test_bad_settings():
    for wrong in (
        {"capacity": 0},
        {"capacity": 1.5},
        {"threshold": 1.5},
        {"ttl_s": 0.0},
    ):
        with pytest.raises(InputError, match="must be"):
            Settings(**{"capacity": 1, **wrong})
    with pytest.raises(InputError, match="threshold needs embeddings"):
        empty_responses(Settings(1, threshold=0.5))
    state = empty_responses(Settings(1))
    with pytest.raises(InputError, match="now_s is nan"):
        look_up(Settings(1), state, query("a"), now_s=math.nan)
    with pytest.raises(InputError, match="now_s is nan"):
        store(Settings(1), state, query("a"), "x", now_s=math.nan)
    with pytest.raises(InputError, match="reads next_use"):
        Settings(1, policy=registry["belady"]())
    with pytest.raises(InputError, match="2 numbers in a cache of 3"):
        wanted = Settings(1)
        look_up(
            wanted,
            empty_responses(wanted, embedding=3),
            query("a", embed=embed),
            now_s=0,
        )
