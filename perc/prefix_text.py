"""Prompts as text become a trace: read a table of them, tokenise, cut into blocks.

A file is JSONL, CSV (with a header) or parquet; the first two also as .gz, .xz or .zst.
A row is a request; of its columns only `prompt`, the whole text that the server gets,
must be there:

    session   a label, empty = on its own; without the column sessions are inferred
    arrival   seconds from any origin
    answer    the text that was written, for its number of tokens; empty = none
"""

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from perc.errors import InputError, TraceWarning, column_name, outline
from perc.prefix_traces import trace_of_tokens
from perc.profile_table import table_rows
from perc.traces.files import magic, records
from perc.types import Trace

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 256  # texts that are tokenised together
MEND = "Mend or drop it."


class Names(NamedTuple):
    """What the columns are called."""

    prompt: str = "prompt"
    session: str = "session"
    arrival: str = "arrival"
    answer: str = "answer"


USUAL = Names()


class Prompts(NamedTuple):
    """Columns of a file; None where there is no such column."""

    prompt: list[str]
    session: list[str | int | None] | None
    arrival_s: list[float] | None
    answer: list[str] | None
    lines: list[int]  # of the file, or rows, from 1


def trace_from_prompts(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    *,
    block_tokens: int = 16,
    names: Names = USUAL,
    special_tokens: bool = True,
) -> Trace:
    """Reads prompts and makes the trace that a block-paged server would see.

    Args:
        path: file of prompts.
        tokenizer: a `tokenizer.json` of Hugging Face.
        block_tokens: of a block.
        names: of the columns.
        special_tokens: add those of the tokenizer, such as one for the beginning, as
            engines do for plain prompts; not where a chat template has put them.

    Raises:
        InputError: if a file, a row or a value is not as it must be, or the package
            `tokenizers` is missing.

    Warns:
        TraceWarning: where arrivals are invented: one a second.
    """
    source = os.fspath(path)
    model = read_tokenizer(tokenizer)
    given = read_prompts(source, names)
    if given.arrival_s is None:
        warnings.warn(
            f"{source}: no column {names.arrival!r}; requests arrive one a second.",
            TraceWarning,
            stacklevel=2,
        )
    answers = None
    if given.answer is not None:
        answers = [len(ids) for ids in tokenise(model, given.answer, special=False)]
    return trace_of_tokens(
        tokenise(model, given.prompt, special=special_tokens),
        block_tokens=block_tokens,
        arrival_s=given.arrival_s,
        output_tokens=answers,
        session=given.session,
        source=source,
        lines=given.lines,
    )


def read_tokenizer(path: str | os.PathLike[str]) -> "Tokenizer":
    """A tokenizer that neither truncates nor pads, whatever its file says.

    Raises:
        InputError: if the package is missing, or the file is no tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "prompts need a tokenizer: pip install 'perc-kv[text]'"
        ) from None
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file; give the model's tokenizer.json.")
    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the package raises no narrower one
        raise InputError(
            f"{path}: no tokenizer ({error}); give the model's tokenizer.json."
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenise(
    tokenizer: "Tokenizer", texts: Iterable[str], *, special: bool
) -> Iterator[Sequence[int]]:
    """Token ids of each text."""
    left = iter(texts)
    while batch := list(islice(left, BATCH)):
        try:
            encoded = tokenizer.encode_batch(batch, add_special_tokens=special)
        except Exception as error:  # the package raises no narrower one
            raise InputError(
                f"the tokenizer fails on these texts ({error}); give the model's "
                "tokenizer.json."
            ) from None
        for found in encoded:
            yield found.ids


def read_prompts(path: str, names: Names = USUAL) -> Prompts:
    """Reads the columns of a file of prompts.

    Raises:
        InputError: if the file or a value is not as it must be.
    """
    rows = list(_rows(path))
    there = {name for _, fields in rows for name in fields}
    for name, default in zip(names, USUAL, strict=True):
        if name not in there and (name == names.prompt or name != default):
            raise InputError(
                f"{path}: no column {name!r}; there are: "
                f"{', '.join(sorted(map(column_name, there)))}."
            )

    def column(name: str, check) -> list[Any] | None:
        if name not in there:
            return None
        return [check(path, at, name, fields.get(name)) for at, fields in rows]

    prompts = column(names.prompt, _text)
    assert prompts is not None
    return Prompts(
        prompts,
        column(names.session, _label),
        column(names.arrival, _seconds),
        column(names.answer, _answer),
        [at for at, _ in rows],
    )


def _rows(path: str) -> Iterator[tuple[int, dict]]:
    """Numbered rows of a file: lines of JSONL, rows of a table from 1."""
    if magic(path).startswith(b"PAR1"):
        kind = "parquet"
    elif any(part == ".csv" for part in _suffixes(path)):
        kind = "CSV"
    else:
        rows = records(path, private=True)
        yield from ((record.line, record.fields) for record in rows)
        return
    at = 0
    for at, row in enumerate(table_rows(path, kind), 1):
        yield at, row
    if not at:
        raise InputError(f"{path}: holds no row; a request is a row.")


def _suffixes(path: str) -> list[str]:
    from pathlib import Path

    return [suffix.lower() for suffix in Path(path).suffixes[-2:]]


def _text(path: str, at: int, name: str, value: object) -> str:
    # A lone surrogate can be written in JSON, but is no text to tokenise.
    if isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value):
        return value
    raise _wrong(path, at, name, value, "text that UTF-8 can hold")


def _answer(path: str, at: int, name: str, value: object) -> str:
    return "" if value is None else _text(path, at, name, value)


def _label(path: str, at: int, name: str, value: object) -> str | int | None:
    if value is None or value == "":
        return None
    if isinstance(value, str) or type(value) is int:
        return value
    raise _wrong(path, at, name, value, "a string, a whole number or nothing")


def _seconds(path: str, at: int, name: str, value: object) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, str | int | float):
            seconds = float(value)
            if 0 <= seconds <= 1e15:
                return seconds
    except (ValueError, OverflowError):
        pass
    raise _wrong(path, at, name, value, "seconds, a number from 0 to 1e15")


def _wrong(path: str, at: int, name: str, value: object, allowed: str) -> InputError:
    shown = outline(value)  # a prompt may stand in any column of a damaged table
    return InputError(f"{path}, row {at}: {name} is {shown}, must be {allowed}. {MEND}")
