"""Fields of a record, checked: a wrong one is named with line, value and remedy."""

from typing import Any

import numpy as np

from perc.errors import InputError, bad_line
from perc.traces.files import Record

INT32_MAX = np.iinfo(np.int32).max
MEND = "Mend or drop the line."


def wrong(record: Record, name: str, value: object, allowed: str) -> InputError:
    """The error for a field that holds what it must not."""
    shown = repr(value)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    what = f"field {record.inside + name!r} is {shown}, must be {allowed}"
    return bad_line(record.path, record.line, what, MEND)


def required(record: Record, name: str) -> Any:
    """The value of a field that must be there.

    Raises:
        InputError: if it is missing.
    """
    if name not in record.fields:
        there = ", ".join(map(str, record.fields)) or "none"
        what = f"field {record.inside + name!r} is missing; there are: {there}"
        raise bad_line(
            record.path, record.line, what, f"{MEND} Another format: say --format."
        )
    return record.fields[name]


def number(record: Record, name: str) -> float:
    """A number, 0 or more: a time.

    Raises:
        InputError: if it is missing, of another type, negative, not finite or huge.
    """
    value = required(record, name)
    # A bool is an int in Python; beyond 1e15 a float cannot tell 0.1 s apart.
    if type(value) not in (int, float) or not 0 <= value <= 1e15:
        raise wrong(record, name, value, "a number, 0 to 1e15")
    return float(value)


def length(record: Record, name: str, least: int = 0) -> int:
    """A whole number of tokens, turns or such.

    Raises:
        InputError: if it is missing, of another type, too small or beyond 32 bits.
    """
    value = required(record, name)
    whole = type(value) is int or (type(value) is float and value.is_integer())
    if not whole or not least <= value <= INT32_MAX:
        raise wrong(record, name, value, f"a whole number, {least} to {INT32_MAX}")
    return int(value)


def label(record: Record, name: str) -> str | int | None:
    """A name: a string or an integer; None where the field is missing or null.

    Raises:
        InputError: if it is of another type, or no valid text.
    """
    value = record.fields.get(name)
    if value is None or type(value) is int:
        return value
    if type(value) is not str or any("\ud800" <= c <= "\udfff" for c in value):
        raise wrong(record, name, value, "a string or an integer")
    return value


def required_label(record: Record, name: str) -> str | int:
    """A name that must be there, see `label`."""
    required(record, name)
    value = label(record, name)
    if value is None:
        raise wrong(record, name, value, "a string or an integer")
    return value


def block_ids(record: Record, name: str) -> np.ndarray:
    """A list of ids, integers of any width or strings, as the narrowest array.

    Raises:
        InputError: if it is no list, or mixes or holds other types.
    """
    values = required(record, name)
    if type(values) is not list:
        raise wrong(record, name, values, "a list of block ids")
    types = set(map(type, values))
    if types == {str}:
        return np.array(values, object)
    if not types <= {int}:
        i = next(i for i, x in enumerate(values) if type(x) is not int)
        raise wrong(record, f"{name}[{i}]", values[i], "an integer as the other ids")
    for dtype in (np.int32, np.int64):
        try:
            return np.array(values, dtype)
        except OverflowError:
            continue
    return np.array(values, object)


def check_count(
    record: Record, count: int, low: int, high: int, tokens: int, block_tokens: int
) -> None:
    """Checks the number of block ids against the length of the prompt.

    Raises:
        InputError: if it is not within low and high; the message says what would fit.
    """
    if low <= count <= high:
        return
    allowed = f"{low}" if low == high else f"{low} or {high}"
    what = (
        f"{record.inside}hash_ids has {count} block ids, but {tokens} tokens in blocks "
        f"of {block_tokens} make {allowed}"
    )
    remedy = f"{MEND} Blocks of another size: say --block-tokens"
    fits = f", here about {round(tokens / count)}" if 0 < count <= tokens else ""
    raise bad_line(record.path, record.line, what, f"{remedy}{fits}.")


def priority(record: Record) -> int:
    """The optional field `priority`: a whole number that fits 32 bits, 0 if absent.

    Raises:
        InputError: if it is something else.
    """
    value = record.fields.get("priority", 0)
    if type(value) is not int or not -INT32_MAX <= value <= INT32_MAX:
        raise wrong(record, "priority", value, f"a whole number within {INT32_MAX}")
    return value
