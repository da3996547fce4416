"""Azure LLM inference traces: CSV of `TIMESTAMP, ContextTokens, GeneratedTokens`.

They hold arrivals and lengths only: every request of the trace has zero blocks.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from perc.errors import InputError, bad_line
from perc.traces.build import build_trace
from perc.traces.fields import length
from perc.traces.files import Record, chunks, split_lines, text_lines
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BLOCK_TOKENS = 512  # of no consequence: there are no blocks
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?")


def read(path: str, options: Options) -> Trace:
    """Reads an Azure trace; times without a zone are taken as UTC.

    Raises:
        InputError: if the file is damaged or a line is not as it must be.
    """
    columns = gather(_rows(path, options), path)
    columns.arrival_s -= columns.arrival_s.min()
    block_tokens = options.block_tokens or BLOCK_TOKENS
    trace = build_trace(columns, block_tokens=block_tokens, source=path)
    return replace(trace, tells_blocks=False)


def _rows(path: str, options: Options) -> Iterator[Row]:
    lines = text_lines(path, split_lines(path, chunks(path, options.progress)))
    _, header = next(lines)
    names = [name.strip() for name in header.split(",")]
    if sorted(names) != sorted(COLUMNS):
        raise InputError(
            f"{path}, line 1: the header is {header!r}, must be {','.join(COLUMNS)}. "
            "Another format: say --format."
        )
    none, origin = np.zeros(0, np.int32), None
    for number, line in lines:
        values = line.split(",")
        if len(values) != len(names):
            what = f"{len(values)} values, must be {len(names)}"
            raise bad_line(path, number, what, "Mend or drop the line.")
        fields = dict(zip(names, values, strict=True))
        seconds, fraction = _time(path, number, fields["TIMESTAMP"].strip())
        origin = seconds if origin is None else origin  # keeps the fraction's digits
        inputs, outputs = (
            _length(path, number, name, fields[name]) for name in COLUMNS[1:]
        )
        yield Row(seconds - origin + fraction, inputs, outputs, none, number)


def _time(path: str, line: int, text: str) -> tuple[int, float]:
    """Whole seconds and the fraction: datetime keeps six digits, the file has seven."""
    match = _TIME.fullmatch(text)
    try:
        if not match:
            raise ValueError("not a time")
        moment = datetime.fromisoformat(match[1] + (match[3] or ""))
    except ValueError as error:
        what = f"TIMESTAMP is {text!r}, must be like 2023-11-16 18:17:03.9799600"
        raise bad_line(path, line, what, "Mend or drop the line.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp()), float("0" + (match[2] or ""))


def _length(path: str, line: int, name: str, text: str) -> int:
    digits = text.strip()
    whole = digits.isascii() and digits.isdigit() and len(digits) < 20
    return length(Record(path, line, {name: int(digits) if whole else text}), name)
