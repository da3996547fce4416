"""A file of rules: what is read, and what every mistake is answered with."""

import pytest

from perc.errors import InputError
from perc.retention import Rule, Rules, Selector, Tenant, load_rules, parse_rules
from perc.retention.rules import END

GOOD = """
merge = "override"
pin_budget = 0.25
trace_priority = false

[[tenants]]
name = "batch"
kind = "batch"
session = [3, 7]
quota = 1000

[[rules]]
name = "system prompt"
kind = ["chat", "batch"]
tokens = { to = 2000 }
pin = true

[[rules]]
tenant = "batch"
turn = { from = 2 }
priority_column = { to = 0 }
priority = 10
duration_s = 60
ttl_s = 0.5
"""


def test_everything_that_a_file_can_say(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    assert load_rules(str(path)) == Rules(
        rules=(
            Rule(
                "system prompt", Selector(kind=("chat", "batch")), (0, 2000), pin=True
            ),
            Rule(
                "rule 2",
                Selector(tenant=("batch",), turn=((2, END),), priority=((-END, 0),)),
                ttl_s=0.5,
                priority=10,
                duration_s=60.0,
            ),
        ),
        tenants=(
            Tenant("batch", Selector(kind=("batch",), session=((3, 3), (7, 7))), 1000),
        ),
        pin_budget=0.25,
        merge="override",
        trace_priority=False,
    )


def test_an_empty_file_has_no_rules():
    assert parse_rules({}) == Rules()


@pytest.mark.parametrize(
    "table, said",
    [
        ({"rule": []}, "the file has no 'rule'; it has: merge"),
        ({"merge": "min"}, 'merge is \'min\'; give "max" or "override"'),
        ({"pin_budget": -1}, "pin_budget is -1; give blocks"),
        ({"pin_budget": 1.5}, "pin_budget is 1.5, no share of the cache"),
        ({"pin_budget": True}, "pin_budget is True; give blocks"),
        ({"pin_budget": float("nan")}, "pin_budget is nan; give blocks"),
        ({"trace_priority": 1}, "trace_priority is 1; give true or false"),
        ({"rules": {"pin": True}}, "write each as a table, [[rules]]"),
        ({"tenants": [{"quota": 1}]}, "tenants[1].name is missing"),
        ({"tenants": [{"name": ""}]}, "tenants[1].name is ''; give a text"),
        ({"tenants": [{"name": "a", "quota": "1"}]}, "tenants[1].quota is '1'; give"),
        ({"tenants": [{"name": "a", "pin": True}]}, "tenants[1] has no 'pin'"),
        ({"tenants": [{"name": "a"}] * 2}, "tenants has the name 'a' twice"),
    ],
)
def test_mistakes_of_the_file(table, said):
    with pytest.raises(InputError) as error:
        parse_rules(table)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "rule, said",
    [
        ({}, "asks for nothing; give one or more of pin, ttl_s, priority"),
        ({"kind": "chat"}, "asks for nothing"),
        ({"pins": True}, "has no 'pins'; it has: name, kind"),
        ({"pin": True}, "pin_budget is missing"),
        ({"pin": "yes"}, "pin is 'yes'; give true or false"),
        ({"ttl_s": 0}, "ttl_s is 0; give seconds above 0"),
        ({"ttl_s": float("nan")}, "ttl_s is nan; give seconds above 0"),
        ({"ttl_s": "1m"}, "ttl_s is '1m'; give seconds, such as 60"),
        ({"ttl_s": True}, "ttl_s is True; give seconds"),
        ({"priority": 101}, "priority is 101; give 0 to 100"),
        ({"priority": 3.5}, "priority is 3.5; give a whole number"),
        ({"ttl_s": 1, "duration_s": 5}, "duration_s has no priority to end"),
        ({"priority": 1, "duration_s": -5}, "duration_s is -5; give seconds"),
        ({"ttl_s": 1, "kind": 3}, 'kind is 3; give a text or a list, such as ["chat"]'),
        ({"ttl_s": 1, "tenant": "x"}, "tenant is 'x'; [[tenants]] of this file names"),
        ({"ttl_s": 1, "turn": "2"}, "turn is '2'; give a whole number"),
        ({"ttl_s": 1, "turn": []}, "turn is empty; give a number, a list or"),
        ({"ttl_s": 1, "turn": {"from": 3, "to": 1}}, "turn goes from 3 to 1"),
        ({"ttl_s": 1, "turn": {"until": 3}}, "turn has no 'until'; it has: from, to"),
        ({"ttl_s": 1, "tokens": [0, 9]}, "tokens is [0, 9]; give { to = 2000 }"),
        ({"ttl_s": 1, "tokens": {"to": 0}}, "tokens goes from 0 to 0, which is no"),
        ({"ttl_s": 1, "tokens": {"from": -1}}, "tokens.from is -1; give 0 to"),
        ({"ttl_s": 1, "name": 3}, "name is 3; give a text"),
    ],
)
def test_mistakes_of_a_rule_are_named_by_its_number(rule, said):
    good = {"ttl_s": 60}
    with pytest.raises(InputError) as error:
        parse_rules({"rules": [good, rule]})
    assert said in str(error.value)
    if "pin_budget" not in said:
        assert str(error.value).startswith("rules[2]")


def test_names_stand_once():
    with pytest.raises(InputError, match="rules has the name 'rule 2' twice"):
        parse_rules({"rules": [{"name": "rule 2", "ttl_s": 1}, {"ttl_s": 1}]})
