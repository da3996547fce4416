"""What perc says when its input is at fault, not perc."""

FLOAT32_MAX = 3.4028235e38


class InputError(ValueError):
    """A person can mend this: a file, a flag or an argument is not as it must be.

    The message names the place, the value and the remedy. The command line prints it
    without a traceback and exits with 2.
    """


class TraceWarning(UserWarning):
    """A trace was usable, but not as it stands; says what was done about it."""


def bad_line(path: object, line: int, what: str, remedy: str) -> InputError:
    """An `InputError` that names file and line, `line` counted from 1."""
    return InputError(f"{path}, line {line}: {what}. {remedy}")


def check_number(
    owner: str, name: str, value: float, *, low: float = 0.0, above: bool = False
) -> float:
    """Returns a parameter that a float32 can hold, from `low` on or above it.

    Raises:
        InputError: otherwise, NaN and infinity included.
    """
    if (value > low or (value == low and not above)) and value <= FLOAT32_MAX:
        return value
    allowed = f"above {low:g}" if above else f"{low:g} or more"
    raise InputError(f"{owner}: {name} is {value}, must be {allowed} and finite.")
