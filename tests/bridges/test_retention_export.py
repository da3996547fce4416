"""Priorities as data: within the engines' limits, and never against the policy."""

import doctest
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perc
from perc.bridges import retention_export
from perc.bridges.retention_export import (
    RequestFacts,
    Scale,
    check_retention,
    dynamo_hints,
    rule_retention,
    score_retention,
)
from perc.errors import InputError
from perc.features import features
from perc.policies.registry import registry
from perc.retention import parse_rules

SCORES = st.floats(-1e6, 1e6)


def priority_of_tokens(config, n):
    """Plain Python: what is asked for each of the first n tokens, default 35."""
    found = [(35, None)] * n
    for one in config["token_range_retention_configs"]:
        for token in range(one["token_start"], min(one["token_end"], n)):
            assert found[token] == (35, None), "ranges overlap"
            found[token] = one["priority"], one["duration_ms"]
    return found


def test_examples():
    assert doctest.testmod(retention_export).failed == 0


@given(known=st.lists(SCORES, min_size=2), scores=st.lists(SCORES, min_size=2))
def test_a_higher_score_never_has_a_lower_priority(known, scores):
    if len(set(known)) < 2:
        with pytest.raises(InputError, match="two different"):
            Scale(known)
        return
    priorities = [Scale(known).priority(score) for score in sorted(scores)]
    assert priorities == sorted(priorities)
    assert all(0 <= p <= 100 and isinstance(p, int) for p in priorities)
    scale = Scale(known)
    assert scale.priority(min(known) - 1) == 0 and scale.priority(max(known) + 1) == 100


def test_the_median_is_the_default():
    assert Scale(np.arange(101)).priority(50) == 35


@given(scores=st.lists(SCORES, max_size=12), last=st.integers(1, 4))
def test_ranges_hold_what_the_scores_say(scores, last):
    tokens = max(4 * (len(scores) - 1) + last, 0) if scores else 0
    scale = Scale([-5, 0, 1, 2, 1000])
    config = score_retention(
        scores, scale, block_tokens=4, input_tokens=tokens, duration_ms=9
    )
    found = priority_of_tokens(config, tokens)
    for token, (priority, ms) in enumerate(found):
        assert priority == scale.priority(max(scores[token // 4 :])) and ms == 9
    assert json.loads(json.dumps(config)) == config
    neighbours = config["token_range_retention_configs"]
    for a, b in zip(neighbours, neighbours[1:], strict=False):
        assert a["priority"] > b["priority"]


def test_scores_of_a_policy_on_a_trace():
    trace = perc.make("chat", requests=200)
    policy = registry["perc_decay"]()
    scores = np.asarray(policy.score(policy.params, features(trace, policy.uses)))
    scale = Scale(scores)
    priorities = []
    for a, b, n in zip(trace.start, trace.stop, trace.input_tokens, strict=True):
        n = int(min(n, trace.tokens[a:b].sum()))
        config = score_retention(
            scores[a:b], scale, block_tokens=trace.block_tokens, input_tokens=n
        )
        priorities += [r["priority"] for r in config["token_range_retention_configs"]]
    assert min(priorities) < 35 < max(priorities)


RULES = parse_rules(
    {
        "pin_budget": 0.5,
        "rules": [
            {"name": "system", "tokens": {"to": 20}, "pin": True},
            {"name": "tools", "kind": "tool_use", "ttl_s": 30},
            {"name": "away", "kind": "end_turn", "priority": 20},
            {"name": "first", "turn": {"to": 3}, "priority": 60, "duration_s": 0.5},
        ],
    }
)


@pytest.mark.parametrize(
    "kind, turn, head, tail",
    [
        ("tool_use", 9, (100, None), (100, 30_000)),
        ("end_turn", 9, (100, None), (20, None)),
        ("end_turn", 2, (100, None), (60, 500)),
        ("other", 9, (100, None), (35, None)),
    ],
)
def test_rules_become_ranges(kind, turn, head, tail):
    config = rule_retention(RULES, RequestFacts(kind, turn=turn), input_tokens=50)
    assert priority_of_tokens(config, 50) == [head] * 20 + [tail] * 30


def test_a_short_prompt_and_none():
    short = rule_retention(RULES, RequestFacts("other", turn=9), input_tokens=5)
    assert priority_of_tokens(short, 5) == [(100, None)] * 5
    none = rule_retention(RULES, RequestFacts(), input_tokens=0)
    assert none["token_range_retention_configs"] == []
    assert dynamo_hints(none)["nvext"]["agent_hints"]["priority"] == 0


def test_the_later_rule_overrides():
    rules = parse_rules(
        {
            "merge": "override",
            "rules": [{"priority": 90}, {"priority": 10, "tokens": {"from": 8}}],
        }
    )
    config = rule_retention(rules, RequestFacts(), input_tokens=12)
    assert priority_of_tokens(config, 12) == [(90, None)] * 8 + [(10, None)] * 4


def test_tenants_sessions_and_priorities_select():
    rules = parse_rules(
        {
            "tenants": [{"name": "a", "kind": "x"}],
            "rules": [
                {"tenant": "a", "session": [1, 2], "priority_column": 4, "priority": 99}
            ],
        }
    )
    fits = RequestFacts("x", "a", 2, 1, 4)
    assert rule_retention(rules, fits, input_tokens=4)["token_range_retention_configs"]
    for other in (fits._replace(tenant=None), fits._replace(session=3)):
        config = rule_retention(rules, other, input_tokens=4)
        assert config["token_range_retention_configs"] == []


@pytest.mark.parametrize(
    "change, said",
    [
        ({"priority": 101}, "priority 101"),
        ({"priority": 3.5}, "priority 3.5"),
        ({"duration_ms": 0}, "duration_ms 0"),
        ({"token_end": 0}, "tokens 0 to 0"),
        ({"token_start": -1}, "tokens -1"),
    ],
)
def test_what_the_engine_would_refuse(change, said):
    config = score_retention([1], Scale([1, 2]), block_tokens=4, input_tokens=4)
    config["token_range_retention_configs"][0].update(change)
    with pytest.raises(InputError, match=said):
        check_retention(config)


def test_lengths_that_do_not_fit():
    with pytest.raises(InputError, match="one score a block"):
        score_retention([1, 2], Scale([1, 2]), block_tokens=4, input_tokens=4)
    with pytest.raises(InputError, match="osl = -1"):
        dynamo_hints(rule_retention(RULES, RequestFacts(), input_tokens=4), osl=-1)
