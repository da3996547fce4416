"""Tables and blocks of a page, and how figures are written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from perc.report.page.folders import Run

Format = Callable[[Any], str]


@dataclass(frozen=True)
class Cell:
    """What is read, and the number that sorts it: as it is in the parquet."""

    text: str
    value: float | int | str | None
    note: str = ""  # below it, smaller: an interval


@dataclass(frozen=True)
class Table:
    """Sortable by each column."""

    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    numeric: list[bool]


@dataclass(frozen=True)
class Block:
    """One heading with what stands below it."""

    title: str
    words: list[str] = field(default_factory=list)
    chart: str = ""  # SVG
    chart_says: str = ""
    tables: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """Of one run."""

    title: str
    run: Run
    summary: list[str]
    blocks: list[Block]
    definitions: dict[str, str] = field(default_factory=dict)
    repeat: list[str] = field(default_factory=list)  # beside the command


def percent(value: float | None) -> str:
    """
    >>> percent(0.12345), percent(None)
    ('12.35 %', '-')
    """
    return "-" if value is None else f"{100 * value:.2f} %"


def points(value: float | None) -> str:
    """
    >>> points(0.0123)
    '+1.23'
    """
    return "-" if value is None else f"{100 * value:+.2f}"


def number(value: float | None) -> str:
    """
    >>> number(12345), number(12345.678), number(0.012345)
    ('12,345', '12,346', '0.0123')
    """
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table_of(
    frame: pl.DataFrame,
    caption: str,
    columns: Sequence[tuple[str, str, Format]],
) -> Table:
    """A table of columns (name in the frame, heading, format).

    Where the frame has `NAME_low` and `NAME_high`, the interval stands below the value.
    """
    known = [column for column in columns if column[0] in frame.columns]
    rows = [
        [_cell(row, name, say) for name, _, say in known]
        for row in frame.iter_rows(named=True)
    ]
    return Table(
        caption,
        [heading for _, heading, _ in known],
        rows,
        [say is not str and _numeric(frame[name]) for name, _, say in known],
    )


def _numeric(column: pl.Series) -> bool:
    """Also where no row has a value."""
    return column.dtype.is_numeric() or column.dtype == pl.Null


def _cell(row: dict[str, Any], name: str, say: Format) -> Cell:
    value, low, high = (row.get(n) for n in (name, f"{name}_low", f"{name}_high"))
    note = "" if low is None or high is None else f"{say(low)} to {say(high)}"
    return Cell(say(value), value, note)
