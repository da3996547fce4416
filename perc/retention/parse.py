"""Reads a file of rules; every mistake is named, with what to write instead."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from perc.errors import InputError, first_repeated
from perc.files import read_toml
from perc.retention.rules import (
    END,
    HIGHEST_PRIORITY,
    MERGES,
    NOBODY,
    Amount,
    Rule,
    Rules,
    Selector,
    Span,
    Tenant,
)

FILE = ("merge", "pin_budget", "trace_priority", "tenants", "rules")
NAMES, NUMBERS = ("kind", "tenant"), ("session", "turn", "priority_column")
DIRECTIVES = ("pin", "ttl_s", "priority", "duration_s")
RULE = ("name", *NAMES, *NUMBERS, "tokens", *DIRECTIVES)
TENANT = ("name", "kind", *NUMBERS, "quota")
LONGEST_S = 1e12


def load_rules(path: str) -> Rules:
    """Reads a TOML file of rules.

    Raises:
        InputError: names the file, the rule by number, the key, the value and what to
            write instead.
    """
    wanted = "Give a TOML file of rules; docs/retention.md has an example."
    return read_toml(path, parse_rules, wanted)


def parse_rules(table: Mapping[str, Any]) -> Rules:
    """Builds rules from a table as TOML gives it.

    Raises:
        InputError: names the rule by number, the key, the value and the remedy.

    Example:
        >>> rules = parse_rules({"rules": [{"kind": "tool_use", "ttl_s": 60}]})
        >>> rules.rules[0].name, rules.rules[0].ttl_s
        ('rule 1', 60.0)
    """
    _known("the file", table, FILE)
    tenants = _tables("tenants", table, _tenant)
    names = [one.name for one in tenants]
    rules = _tables(
        "rules", table, lambda where, item, number: _rule(where, item, number, names)
    )
    _no_name_twice("rules", [one.name for one in rules])
    _no_name_twice("tenants", names)
    merge = table.get("merge", "max")
    if merge not in MERGES:
        raise InputError(f'merge is {merge!r}; give "max" or "override".')
    if "pin_budget" not in table and any(rule.pin for rule in rules):
        raise InputError(
            "pin_budget is missing, but a rule pins; give blocks (1000) or a share of "
            "the cache (0.25)."
        )
    return Rules(
        rules=rules,
        tenants=tenants,
        pin_budget=_amount("pin_budget", table.get("pin_budget", 0)),
        merge=merge,
        trace_priority=_truth("trace_priority", table.get("trace_priority", True)),
    )


def _rule(where: str, given: Mapping[str, Any], number: int, tenants: list) -> Rule:
    _known(where, given, RULE)
    if not any(key in given for key in DIRECTIVES):
        raise InputError(
            f"{where} asks for nothing; give one or more of {', '.join(DIRECTIVES)}."
        )
    if "duration_s" in given and "priority" not in given:
        raise InputError(
            f"{where}.duration_s has no priority to end; add priority = 0 to 100."
        )
    for name in _names(f"{where}.tenant", given.get("tenant", ())):
        if name not in tenants:
            there = ", ".join(tenants) or "none"
            raise InputError(
                f"{where}.tenant is {name!r}; [[tenants]] of this file names {there}."
            )
    return Rule(
        name=_name(where, given, f"rule {number}"),
        select=_selector(where, given),
        tokens=_tokens(f"{where}.tokens", given.get("tokens", {})),
        pin=_truth(f"{where}.pin", given.get("pin", False)),
        ttl_s=_seconds(f"{where}.ttl_s", given.get("ttl_s")),
        priority=_priority(f"{where}.priority", given.get("priority")),
        duration_s=_seconds(f"{where}.duration_s", given.get("duration_s")),
    )


def _tenant(where: str, given: Mapping[str, Any], number: int) -> Tenant:
    _known(where, given, TENANT)
    if "name" not in given:
        raise InputError(f'{where}.name is missing; give one, such as name = "acme".')
    quota = given.get("quota")
    return Tenant(
        name=_name(where, given, ""),
        select=_selector(where, given),
        quota=None if quota is None else _amount(f"{where}.quota", quota),
    )


def _tables(key: str, table: Mapping[str, Any], read) -> tuple:
    given = table.get(key, [])
    if not isinstance(given, list) or not all(isinstance(x, Mapping) for x in given):
        raise InputError(f"{key} is {given!r}; write each as a table, [[{key}]].")
    return tuple(read(f"{key}[{i}]", item, i) for i, item in enumerate(given, 1))


def _known(where: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"{where} has no {key!r}; it has: {', '.join(keys)}.")


def _no_name_twice(key: str, names: list[str]) -> None:
    twice = first_repeated(names)
    if twice is not None:
        raise InputError(f"{key} has the name {twice!r} twice; give each its own.")


def _name(where: str, given: Mapping[str, Any], otherwise: str) -> str:
    name = given.get("name", otherwise)
    if not isinstance(name, str) or not name.strip() or name == NOBODY:
        raise InputError(f"{where}.name is {name!r}; give a text.")
    return name


def _selector(where: str, given: Mapping[str, Any]) -> Selector:
    names: Any = {
        key: _names(f"{where}.{key}", given[key]) for key in NAMES if key in given
    }
    spans: Any = {
        key.removesuffix("_column"): _spans(f"{where}.{key}", given[key])
        for key in NUMBERS
        if key in given
    }
    return Selector(**names, **spans)


def _names(where: str, given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names):
        return tuple(names)
    raise InputError(f'{where} is {given!r}; give a text or a list, such as ["chat"].')


def _spans(where: str, given: Any) -> tuple[Span, ...]:
    """A number, a list of numbers, or a range with both ends included."""
    if isinstance(given, Mapping):
        low, high = _ends(where, given, -END, END)
        if low > high:
            raise InputError(f"{where} goes from {low} to {high}; give rising numbers.")
        return ((low, high),)
    items = given if isinstance(given, list) else [given]
    numbers = [_whole(where, item, -END, END) for item in items]
    if not numbers:
        raise InputError(f"{where} is empty; give a number, a list or {{from, to}}.")
    return tuple((number, number) for number in numbers)


def _tokens(where: str, given: Any) -> Span:
    if not isinstance(given, Mapping):
        raise InputError(
            f"{where} is {given!r}; give {{ to = 2000 }} for the first 2,000 tokens, "
            "or { from = 2000 } for all after them."
        )
    first, end = _ends(where, given, 0, END)
    if first >= end:
        raise InputError(
            f"{where} goes from {first} to {end}, which is no token; `to` is the "
            "first one after the range."
        )
    return first, end


def _ends(where: str, given: Mapping[str, Any], low: int, high: int) -> Span:
    _known(where, given, ("from", "to"))
    return (
        _whole(f"{where}.from", given.get("from", low), low, high),
        _whole(f"{where}.to", given.get("to", high), low, high),
    )


def _whole(where: str, given: Any, low: int, high: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise InputError(f"{where} is {given!r}; give a whole number.")
    if not low <= given <= high:
        raise InputError(f"{where} is {given}; give {low} to {high}.")
    return given


def _priority(where: str, given: Any) -> int | None:
    return None if given is None else _whole(where, given, 0, HIGHEST_PRIORITY)


def _seconds(where: str, given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"{where} is {given!r}; give seconds, such as 60.")
    if not 0 < given <= LONGEST_S:
        raise InputError(f"{where} is {given}; give seconds above 0, up to 1e12.")
    return float(given)


def _amount(where: str, given: Any) -> Amount:
    good = isinstance(given, int | float) and not isinstance(given, bool)
    if not good or not 0 <= given <= sys.float_info.max:
        raise InputError(
            f"{where} is {given!r}; give blocks (1000) or a share of the cache (0.25)."
        )
    if isinstance(given, float) and given > 1:
        raise InputError(
            f"{where} is {given}, no share of the cache; give 0.0 to 1.0, or a whole "
            "number of blocks."
        )
    return given


def _truth(where: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise InputError(f"{where} is {given!r}; give true or false.")
    return given
