"""Policies as people write them: `lru,perc_decay:tau_s=60:cost_weight=1,mine.npz`."""

import inspect
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from perc.errors import InputError
from perc.files import names_policy_file

if TYPE_CHECKING:
    from perc.types import AnyPolicy


SWITCH = {"true": True, "false": False, "1": True, "0": False}


def parse_policies(text: str) -> list["AnyPolicy"]:
    """Reads a comma list of names, each with parameters after colons, and files.

    A policy with parameters is named by the whole text, so that variants of one
    policy can stand side by side; one of a file (`mine.npz`) is named after the file.

    Raises:
        InputError: for an unknown name or parameter, or a value that is no finite
            number, true or false, or word, as the parameter wants it; for a file that
            holds no policy.
    """
    from perc.policies.store import with_files

    words = [word.strip() for word in text.split(",") if word.strip()]
    return with_files([w if names_policy_file(w) else _parse(w) for w in words])


def _parse(text: str) -> "AnyPolicy":
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
