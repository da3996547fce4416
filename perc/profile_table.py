"""Rows of a CSV or parquet file of texts, and what is wrong with it in one line."""

import csv
import io
from collections.abc import Iterator

from perc.errors import InputError, column_name, first_repeated
from perc.traces.files import chunks


def table_rows(path: str, kind: str) -> Iterator[dict]:
    """Rows of a table; cells of CSV are text, or None where they are empty.

    Args:
        path: of the file, compressed or not.
        kind: CSV or parquet.

    Raises:
        InputError: if it is no such file, or two columns have one name.
    """
    import polars

    data = b"".join(chunks(path))
    if kind == "CSV":
        _check_names(path, data)
    try:
        if kind == "parquet":
            frame = polars.read_parquet(io.BytesIO(data))
        else:
            frame = polars.read_csv(io.BytesIO(data), infer_schema=False)
    except (Exception, polars.exceptions.PanicException) as error:  # of many kinds
        why = _fault(data) if kind == "CSV" else None
        why = why or str(error).split("\n")[0]
        raise InputError(
            f"{path}: cannot be read as {kind} ({why}). Mend it."
        ) from None
    yield from frame.iter_rows(named=True)


def _check_names(path: str, data: bytes) -> None:
    """Polars renames the second of two equal columns, so it would be lost unsaid."""
    try:
        names = next(_reader(data), [])
    except csv.Error:
        return  # polars has its say
    twice = first_repeated(names)
    if twice is not None:
        shown = column_name(twice)
        raise InputError(f"{path}: two columns are called {shown!r}. Rename one.")


def _fault(data: bytes) -> str | None:
    """What polars tells in many lines, or without the place."""
    reader, begin, width = _reader(data, strict=True), 1, None
    try:
        for row in reader:
            width = len(row) if width is None else width
            if len(row) > width:
                return f"line {begin}: {len(row)} cells under {width} names"
            begin = reader.line_num + 1
    except csv.Error as error:
        return f"line {begin}: a quote is not closed or not doubled, {error}"
    return None


def _reader(data: bytes, *, strict: bool = False):
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", "replace", newline="")
    return csv.reader(text, strict=strict)
