"""Policies as people write them: `lru,perc_decay:tau_s=60:cost_weight=1`."""

import inspect
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from perc.errors import InputError

if TYPE_CHECKING:
    from perc.types import Policy


SWITCH = {"true": True, "false": False, "1": True, "0": False}


def parse_policies(text: str) -> list["Policy"]:
    """Reads a comma list of names, each with parameters after colons.

    A policy with parameters is named by the whole text, so that variants of one
    policy can stand side by side.

    Raises:
        InputError: for an unknown name or parameter, or a value that is no finite
            number, true or false, or word, as the parameter wants it.
    """
    return [_parse(word.strip()) for word in text.split(",") if word.strip()]


def _parse(text: str) -> "Policy":
    from perc.policies.registry import registry

    name, *settings = text.split(":")
    constructor = registry[name]
    allowed = inspect.signature(constructor).parameters
    values = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in allowed:
            raise InputError(
                f"policy {name!r} has no parameter {key!r}. "
                + (f"It has: {', '.join(allowed)}." if allowed else "It has none.")
            )
        values[key] = _value(text, key, value, allowed[key].annotation)
    policy = constructor(**values)
    return replace(policy, name=text) if settings else policy


def _value(text: str, key: str, value: str, kind: type) -> bool | int | float | str:
    if kind is bool:
        if value not in SWITCH:
            raise InputError(f"in {text!r}: {key} is {value!r}, must be true or false.")
        return SWITCH[value]
    if kind is str:  # the policy says which words it knows
        return value
    return _number(text, key, value, whole=kind is int)


def _number(text: str, key: str, value: str, *, whole: bool) -> int | float:
    for kind in (int,) if whole else (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    allowed = "a whole number" if whole else "a finite number"
    raise InputError(f"in {text!r}: {key} is {value!r}, must be {allowed}.")
