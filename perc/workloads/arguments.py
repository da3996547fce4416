"""Checks of the generators' arguments, and how a trace remembers them."""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from perc.errors import InputError


def at_least(bound: float, **values: float) -> None:
    """Raises InputError for the first value that is below `bound` or not finite."""
    for name, value in values.items():
        if not (value >= bound and math.isfinite(value)):
            raise InputError(f"{name} is {value}; give a number of {bound} or more.")


def positive(**values: float) -> None:
    """Raises InputError for the first value that is not a finite number above 0."""
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{name} is {value}; give a number above 0.")


def probabilities(**values: float) -> None:
    """Raises InputError for the first value that is not between 0 and 1."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise InputError(f"{name} is {value}; give a probability, from 0 to 1.")


def describe(generator: Callable, arguments: Mapping[str, Any]) -> str:
    """The call that gives the trace again: size, seed, and what is not the default.

    >>> from perc.workloads.zipf import zipf
    >>> describe(zipf, dict(requests=5, seed=1, alpha=0.5))
    'zipf(requests=5, seed=1, alpha=0.5)'
    """
    shown = [
        f"{name}={arguments[name]!r}"
        for name, parameter in inspect.signature(generator).parameters.items()
        if name in arguments
        and (name in ("requests", "seed") or arguments[name] != parameter.default)
    ]
    return f"{generator.__name__}({', '.join(shown)})"
