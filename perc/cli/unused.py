"""Flags that would change nothing are refused, never passed over in silence."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from perc.errors import InputError


def changed(command: Callable, values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a command that were given other values than the usual ones.

    Args:
        command: whose signature has the usual values.
        values: by the name of the argument; dataclasses of flags are looked into.

    Returns:
        The values by flag, as it is typed.

    >>> def make(*, seed: int = 0, tail_s: float = 1.0): ...
    >>> changed(make, {"seed": 0, "tail_s": 2.0})
    {'--tail-s': 2.0}
    """
    usual = inspect.signature(command).parameters
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _changed(name, value, usual[name].default)
    return found


def _changed(name: str, value: Any, usual: Any) -> dict[str, Any]:
    if value == usual:
        return {}
    if not is_dataclass(value):
        return {f"--{name.replace('_', '-')}": value}
    found: dict[str, Any] = {}
    for field in fields(value):
        now, was = getattr(value, field.name), getattr(usual, field.name)
        found |= _changed(field.name, now, was)
    return found


def refuse(
    given: Mapping[str, Any],
    where: str,
    *,
    idle: Collection[str] | None = None,
    remedy: str = "leave it out",
) -> None:
    """Refuses flags that are given and idle.

    Args:
        given: values by flag, from `changed`.
        where: what they change nothing for.
        idle: the flags that change nothing there; None = all.
        remedy: what to do about it.

    Raises:
        InputError: if one of them is given.
    """
    for flag, value in given.items():
        if idle is None or flag in idle:
            shown = flag if value is True else f"{flag} {value}"
            raise InputError(f"{shown} changes nothing for {where}; {remedy}.")
