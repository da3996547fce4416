"""What perc says when its input is at fault, not perc."""

import re
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

FLOAT32_MAX = 3.4028235e38
INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
# A token costs about 1e-5 s to recompute; its eighth power is the last in a float32.
STEEPEST = 8.0
LONGEST_MESSAGE = 2000  # characters; of a longer one the middle is left out


class InputError(ValueError):
    """A person can mend this: a file, a flag or an argument is not as it must be.

    The message names the place, the value and the remedy. The command line prints it
    without a traceback and exits with 2. A value may be a million digits long: places
    stand at the beginning, remedies at the end, so the middle of a long one goes.
    """

    def __init__(self, message: str = "") -> None:
        half = LONGEST_MESSAGE // 2
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[:half]} [...] {message[-half:]}"
        super().__init__(message)


class TraceWarning(UserWarning):
    """A trace was usable, but not as it stands; says what was done about it."""


def bad_line(path: object, line: int, what: str, remedy: str) -> InputError:
    """An `InputError` that names file and line, `line` counted from 1."""
    return InputError(f"{path}, line {line}: {what}. {remedy}")


def outline(value: object) -> str:
    """What stands where a person's words should: of what kind and size, not the words.

    Prompts are private, and errors end up in logs.
    """
    if isinstance(value, str):
        return f"text of length {len(value):,}"
    if isinstance(value, list | tuple):
        return f"a list of length {len(value):,}"
    if isinstance(value, dict):
        return f"an object of length {len(value):,}"
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return repr(value)  # a number, a truth, nothing


def column_name(name: str) -> str:
    """A field's name as it stands if it looks like one, else its `outline`.

    In a table without a header the first row's prompts stand where names should.
    """
    return name if re.fullmatch(r"[\w.-]{1,40}", name) else f"({outline(name)})"


def check_whole(owner: str, name: str, value: int, low: int, high: int) -> int:
    """Returns a parameter that is a whole number from `low` to `high`.

    Raises:
        InputError: otherwise, also for what is no number; True is none.
    """
    if _is(Integral, value) and low <= value <= high:
        return value
    raise InputError(
        f"{owner}: {name} is {_shown(value)}, must be a whole number from {low} to "
        f"{high}."
    )


def check_number(
    owner: str,
    name: str,
    value: float,
    *,
    low: float = 0.0,
    above: bool = False,
    high: float = FLOAT32_MAX,
) -> float:
    """Returns a parameter that a float32 can hold, from `low` on or above it.

    Raises:
        InputError: otherwise, NaN, infinity and what is no number included.
    """
    if not _is(Real, value):
        raise InputError(f"{owner}: {name} is {_shown(value)}, must be a number.")
    if (value > low or (value == low and not above)) and value <= high:
        return value
    allowed = f"above {low:g}" if above else f"{low:g} or more"
    limit = "finite" if high == FLOAT32_MAX else f"at most {high:g}"
    raise InputError(f"{owner}: {name} is {value}, must be {allowed} and {limit}.")


def _is(kind: type, value: object) -> bool:
    """Whether a value is such a number; Python takes True for 1, a person does not."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Real) else repr(value)


def first_repeated(names: Iterable[T]) -> T | None:
    """What stands twice, None if nothing does; a hostile file has 100,000 names."""
    seen: set[T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
