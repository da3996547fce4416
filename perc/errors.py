"""What perc says when its input is at fault, not perc."""


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
