"""Hostile versions of valid files: changed bytes, lines, numbers and structure.

All draws come from one `random.Random`, so a seed gives the same files everywhere.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NUMBERS = [
    *(b"nan", b"NaN", b"inf", b"Infinity", b"-Infinity", b"1e999", b"1e-320", b"-0.0"),
    *(b"-1", b"0", b"0.5", b"1e15", b"2147483647", b"2147483648", b"4294967296"),
    *(b"9223372036854775807", b"9223372036854775808", b"10000000000000000000"),
    *(b"1" + b"0" * 400, b"1" + b"0" * 5000, b"-9223372036854775809", b"0x10", b"1_0"),
]
WORDS = [
    *(
        b"true",
        b"null",
        b"[]",
        b"{}",
        b'""',
        b'"x"',
        b'"\\ud800"',
        b'"\\u0000"',
        b"[[]]",
    ),
    *(b'{"from": 1}', b"1979-05-27", b'"\x1b[31m"', '"\u202e"'.encode(), b"'"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 0.5, 2**31, 2**63, 10**19, -(2**63) - 1, 10**400),
    *(float("nan"), float("inf"), float("-inf"), 1e300, 5e-324, -0.0),
    *("", "x", "nan", "-1", "1e999", "\ud800", "\0", "\n", "\x1b[31m", "y" * 9999),
    *([], {}, [[]], [None], {"": {}}, ["x", 1], [1] * 999),
]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
KEY = re.compile(rb'"[^"\n]{1,40}"(?= ?:)|^\w+(?= ?=)', re.MULTILINE)
AFTER = re.compile(rb"(?<=[:=]) ?[^,}\]\n]+")
MOST_BYTES = 1 << 21
DEPTHS = (3, 40, 900, 5000, 100_000)


def mutate(seeds: Sequence[bytes], draw: Random) -> bytes:
    """One of the seeds with one to four changes, at most `MOST_BYTES` long."""
    data = draw.choice(seeds)
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        change = draw.choice(CHANGES)
        data = change(data, draw, seeds)[:MOST_BYTES]
    return data


def damage(data: bytes, draw: Random) -> bytes:
    """Bytes changed as a bad disk would, without regard to what they mean."""
    return draw.choice(BLIND)(data, draw, [data])[:MOST_BYTES]


def _span(data: bytes, draw: Random) -> tuple[int, int]:
    start = draw.randint(0, len(data))
    return start, min(len(data), start + int(draw.expovariate(1 / 20)) + 1)


def _flip(data, draw, seeds) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 3, 30)) if data else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _insert(data, draw, seeds) -> bytes:
    at = draw.randint(0, len(data))
    more = draw.choice(
        (b"\0", b"\xff", b"\n", b"\r", b'"', b"{", b"]", b",", b"\\", b"=")
    )
    more = draw.choice((more, draw.randbytes(draw.randint(1, 9)), more * 5000))
    return data[:at] + more + data[at:]


def _delete(data, draw, seeds) -> bytes:
    start, end = _span(data, draw)
    return data[:start] + data[end:]


def _repeat(data, draw, seeds) -> bytes:
    start, end = _span(data, draw)
    times = draw.choice((2, 2, 3, 100, 5000))
    return data[:start] + data[start:end] * times + data[end:]


def _cut(data, draw, seeds) -> bytes:
    return data[: draw.randint(0, len(data))]


def _splice(data, draw, seeds) -> bytes:
    other = draw.choice(seeds)
    return data[: draw.randint(0, len(data))] + other[draw.randint(0, len(other)) :]


def _lines(data, draw, seeds) -> bytes:
    """Lines in another order, twice, not at all or empty."""
    lines = data.split(b"\n")
    i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
    how = draw.choice(("swap", "twice", "drop", "empty"))
    if how == "swap":
        lines[i], lines[j] = lines[j], lines[i]
    elif how == "twice":
        lines.insert(j, lines[i])
    elif how == "drop":
        del lines[i]
    else:
        lines.insert(i, b"")
    return b"\n".join(lines)


def _swapped(pattern: re.Pattern[bytes], choices: Sequence[bytes]) -> Callable:
    """A change of one match of a pattern into one of the choices."""

    def change(data, draw, seeds) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data
        match = draw.choice(found)
        return data[: match.start()] + draw.choice(choices) + data[match.end() :]

    return change


def _keys(data, draw, seeds) -> bytes:
    """A name becomes that of another field: it is there twice, or missing."""
    names = [match[0] for match in KEY.finditer(data)]
    return _swapped(KEY, names)(data, draw, seeds) if names else data


def _key_twice(data, draw, seeds) -> bytes:
    found = list(KEY.finditer(data))
    if not found:
        return data
    match = draw.choice(found)
    end = data.find(b"\n", match.end())
    again = match[0] + (b": 1, " if match[0].startswith(b'"') else b" = 1\n")
    at = match.start() if draw.random() < 0.5 or end < 0 else end + 1
    return data[:at] + again + data[at:]


def _many(data, draw, seeds) -> bytes:
    """Very many fields, columns or parts of a name; one may stand twice."""
    names = [*range(draw.choice((300, 30_000))), draw.choice((0, -1))]
    found = KEY.search(data)
    if not found:
        return b",".join(b"%d" % name for name in names) + b"," + data
    if not found[0].startswith(b'"'):
        keys = draw.choice((b".".join, b" = 1\n".join))(b"k%d" % n for n in names)
        return keys + b" = 1\n" + data
    keys = b"".join(b'"%d": 1, ' % name for name in names)
    return data[: found.start()] + keys + data[found.start() :]


def _nested(data, draw, seeds) -> bytes:
    found = list(AFTER.finditer(data)) or [re.match(b"", data)]
    match, depth = draw.choice(found), draw.choice(DEPTHS)
    left, right = draw.choice(
        ((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"[", b""))
    )
    value = left * depth + match[0] + right * depth
    return data[: match.start()] + value + data[match.end() :]


def _digits(data, draw, seeds) -> bytes:
    """A million of them, now and then."""
    if draw.random() < 0.7:
        return _swapped(NUMBER, NUMBERS)(data, draw, seeds)
    return _swapped(NUMBER, [b"9" * 10**6, b"0." + b"3" * 10**6])(data, draw, seeds)


def _encoded(data, draw, seeds) -> bytes:
    text = data.decode("utf-8", "replace")
    return draw.choice(
        (
            b"\xef\xbb\xbf" + data,
            data.replace(b"\n", b"\r\n"),
            data.replace(b"\n", b"\r"),
            text.encode("utf-16"),
            text.encode("utf-16-be"),
            text.encode("utf-32"),
            data.replace(b"a", b"\xe4", 1),
            data.replace(b"e", b"\xed\xa0\x80", 1),
        )
    )


def _json(data, draw, seeds) -> bytes:
    """A value somewhere in a line, or in the whole, is another, elsewhere or gone."""
    whole = [data] if draw.random() < 0.3 else data.split(b"\n")
    i = draw.randrange(len(whole))
    try:
        table = {"": json.loads(whole[i])}
        _change_value(table, draw)
        whole[i] = json.dumps(table[""]).encode()
    except (ValueError, RecursionError, KeyError):
        return data
    return b"\n".join(whole)


def _change_value(table: Any, draw: Random) -> None:
    places: list[tuple[Any, Any]] = []
    open_ = [table]
    while open_ and len(places) < 10_000:
        inner = open_.pop()
        keys = inner if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                open_.append(inner[key])
    inner, key = draw.choice(places)
    how = draw.random()
    if how < 0.6:
        inner[key] = draw.choice(VALUES)
    elif how < 0.75:
        other, name = draw.choice(places)
        inner[key] = json.loads(json.dumps(other[name]))
    elif how < 0.9 and key != "":
        del inner[key]
    elif isinstance(inner[key], list):
        inner[key] = inner[key] * draw.choice((0, 2, 1000))
    else:
        inner[key] = [inner[key]]


BLIND = (_flip, _insert, _delete, _repeat, _cut, _splice)
CHANGES = (
    *(_flip, _insert, _delete, _repeat, _cut, _splice, _lines, _keys, _key_twice),
    *(_many, _nested, _digits, _encoded, _json, _json, _json),
    *(_swapped(NUMBER, NUMBERS), _swapped(NUMBER, WORDS), _swapped(AFTER, WORDS)),
    _swapped(AFTER, NUMBERS),
)
