"""From the parts of a recording to one trace, for every command that takes traces.

A request that was preempted counts once, when it has finished. What a trace does not
hold, the hits that the engine had, is handed out beside it.
"""

import json
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perc.bridges.recording import (
    COLUMNS,
    METADATA_KEY,
    UNKNOWN,
    VERSION,
    block_lists,
    digest,
)
from perc.errors import INT32_MAX, InputError, TraceWarning
from perc.files import parquet_faults
from perc.traces.build import Columns, build_trace
from perc.types import Trace

LARGEST = 2.0**53  # below it every whole number of a column is exact as a float
RECORD_AGAIN = "Remove the file, or record again."


class Joined(NamedTuple):
    """A trace, and what the engine itself did with its requests."""

    trace: Trace
    hit_tokens: np.ndarray  # i64[R], of each prompt; -1 = untold
    preemptions: int
    dropped: int  # requests that the engine was too fast for


class _Part(NamedTuple):
    path: Path
    facts: dict[str, Any]
    table: Any


def join(folder: str, recording: str | None = None) -> Joined:
    """Reads the parts in a folder.

    Args:
        folder: where an engine or `perc record` has put them.
        recording: which one, where the folder has several; by default all, if one
            ended before the next began.

    Raises:
        InputError: if there is none, one is damaged, or two do not fit together.

    Warns:
        TraceWarning: if requests or parts are missing.
    """
    parts = _parts(folder, recording)
    block_tokens = _block_tokens(folder, parts)
    _check_apart(folder, parts)
    dropped = _missing(folder, parts)
    table = _requests(parts)
    if not len(table):
        raise InputError(f"{folder}: no request has finished yet; record for longer.")
    columns = _columns(table)
    trace = build_trace(columns, block_tokens=block_tokens, source=folder)
    preempted = sum(int(part.table["preempted"].sum()) for part in parts)
    return Joined(trace, table["hit_tokens"].to_numpy(), preempted, dropped)


def _parts(folder: str, recording: str | None) -> list[_Part]:
    """Of every recording wanted, in the order in which they were written."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give one with a recording.")
    names = f"{recording or '*'}-[0-9]*.parquet"
    paths = sorted(p for p in Path(folder).glob(names) if not p.name.startswith("."))
    if not paths:
        raise InputError(
            f"{folder}: holds no part of "
            + (f"the recording {recording}. " if recording else "a recording. ")
            + "A running engine writes one a minute, PERC_RECORD says where."
        )
    return [_read(path) for path in paths]


def _read(path: Path) -> _Part:
    import polars as pl

    try:
        metadata = pl.read_parquet_metadata(path)
        table = pl.read_parquet(path)
    except parquet_faults() as error:
        raise InputError(f"{path}: cannot be read ({error}). {RECORD_AGAIN}") from error
    try:
        facts = json.loads(metadata[METADATA_KEY])
        version = facts["version"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is no part of a recording. Remove it.") from error
    if version != VERSION:
        raise InputError(
            f"{path}: schema version {version}, this perc reads {VERSION}; update perc."
        )
    try:
        wanted = facts.pop("sha256")
        whole = _sound(table, facts) and digest(table, facts) == wanted
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        whole = False
    if not whole:
        raise InputError(f"{path}: is not as perc wrote it. {RECORD_AGAIN}")
    return _Part(path, facts, table)


def _sound(table: Any, facts: dict[str, Any]) -> bool:
    """Whether a part says what a recorder can have written, whatever its checksum."""
    for name, least in (("block_tokens", 1), ("part", 0), ("dropped", 0)):
        if type(facts[name]) is not int or not least <= facts[name] <= INT32_MAX:
            return False
    if not isinstance(facts["recording"], str):
        return False
    if sum(table.drop("session").null_count().row(0)):
        return False
    some = table.filter(table["blocks"].list.len() > 0)
    if some["blocks"].explode().null_count():
        return False
    columns = (table[name].to_numpy() for name in COLUMNS)
    return all(bool((np.abs(values) < LARGEST).all()) for values in columns)


def _block_tokens(folder: str, parts: list[_Part]) -> int:
    sizes = sorted({part.facts["block_tokens"] for part in parts})
    if len(sizes) > 1:
        raise InputError(
            f"{folder}: recordings with blocks of {sizes[0]} and {sizes[1]} tokens. "
            f"Say --recording: {', '.join(sorted(_names(parts)))}."
        )
    return sizes[0]


def _names(parts: list[_Part]) -> dict[str, list[_Part]]:
    found: dict[str, list[_Part]] = {}
    for part in parts:
        found.setdefault(part.facts["recording"], []).append(part)
    return found


def _check_apart(folder: str, parts: list[_Part]) -> None:
    """Two engines at once have two caches: no trace of one cache holds both."""
    spans = sorted(
        (
            min(part.table["arrival_s"].min() for part in mine),
            max(part.table["released_s"].max() for part in mine),
            name,
        )
        for name, mine in _names(parts).items()
    )
    for before, after in zip(spans, spans[1:], strict=False):
        if after[0] < before[1]:
            raise InputError(
                f"{folder}: two engines recorded at the same time, each with a cache "
                f"of its own. Say --recording {before[2]} or {after[2]}."
            )


def _missing(folder: str, parts: list[_Part]) -> int:
    """Requests that the recorder dropped; warns of them, and of parts that are gone."""
    dropped = 0
    for name, mine in _names(parts).items():
        numbers = {part.facts["part"] for part in mine}
        gone = max(numbers) + 1 - len(numbers)
        lost = max(part.facts["dropped"] for part in mine)
        dropped += lost
        if gone:
            warnings.warn(
                f"{folder}: {gone} of {max(numbers) + 1} parts of the recording {name} "
                "are gone, perhaps to make room; their requests are not in the trace.",
                TraceWarning,
                stacklevel=3,
            )
        if lost:
            warnings.warn(
                f"{folder}: the recording {name} lacks {lost} request(s), for which "
                "the recorder had no time.",
                TraceWarning,
                stacklevel=3,
            )
    return dropped


def _requests(parts: list[_Part]) -> Any:
    """One row a finished request, by arrival."""
    import polars as pl

    table = pl.concat([part.table for part in parts])
    return table.filter(~pl.col("preempted")).sort("arrival_s", maintain_order=True)


def _columns(table: Any) -> Columns:
    values = {name: table[name].to_numpy() for name in COLUMNS}
    lengths, ids = block_lists(table)
    sessions = table["session"].to_list()
    turns = values["turn"]
    return Columns(
        arrival_s=values["arrival_s"],
        input_tokens=values["input_tokens"],
        output_tokens=values["output_tokens"],
        ids=ids,
        lengths=lengths,
        session=sessions if any(s is not None for s in sessions) else None,
        turn=None if (turns == UNKNOWN).any() else turns,
        kind=table["kind"].to_list(),
        priority=values["priority"],
    )
