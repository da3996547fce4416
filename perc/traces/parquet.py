"""perc's own file: one row a request, as parquet, nothing lost.

Blocks and their tokens are lists in the row; what follows from them (request, depth,
prev, next) is computed again. The rest stands as JSON in the file's metadata, with a
sha256 of it all.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from perc.errors import InputError
from perc.files import parquet_faults, write_atomically
from perc.traces.build import link_accesses
from perc.traces.formats import Options
from perc.types import Trace

SCHEMA_VERSION = 1
METADATA_KEY = "perc_trace"
REQUEST_COLUMNS = {
    "arrival_s": np.float64,
    "input_tokens": np.int32,
    "output_tokens": np.int32,
    "session": np.int32,
    "turn": np.int32,
    "kind": np.int32,
    "priority": np.int32,
    "deadline_s": np.float64,
}
LIST_COLUMNS = ("block", "tokens")


def write(trace: Trace, path: str) -> None:
    """Writes a trace; the file appears under its name when it is whole.

    Raises:
        InputError: if the name does not end in .parquet or cannot be written.
    """
    import polars as pl

    target = named_parquet(path)
    slices = list(zip(trace.start.tolist(), trace.stop.tolist(), strict=True))
    columns: dict[str, Any] = {name: getattr(trace, name) for name in REQUEST_COLUMNS}
    for name in LIST_COLUMNS:
        values = getattr(trace, name)
        parts = [pl.Series(values[start:stop]) for start, stop in slices]
        columns[name] = pl.Series(name, parts, dtype=pl.List(pl.Int32))
    facts = {
        "version": SCHEMA_VERSION,
        "block_tokens": trace.block_tokens,
        "source": trace.source,
        "kinds": trace.kinds,
        "sessions_inferred": trace.sessions_inferred,
        "tells_blocks": trace.tells_blocks,
    }
    metadata = {METADATA_KEY: json.dumps({**facts, "sha256": _digest(trace, facts)})}
    table = pl.DataFrame(columns)
    try:
        write_atomically(
            target, lambda made: table.write_parquet(made, metadata=metadata)
        )
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}).") from error


def named_parquet(path: str | os.PathLike[str]) -> Path:
    """The path of a file to write.

    Raises:
        InputError: if the name does not end in .parquet.
    """
    if Path(path).suffix != ".parquet":
        raise InputError(f"{path}: perc writes parquet; end the name in .parquet.")
    return Path(path)


def _digest(trace: Trace, facts: dict[str, Any]) -> str:
    """Of all that is stored: parquet as such does not notice a flipped bit."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in (*REQUEST_COLUMNS, *LIST_COLUMNS, "start", "stop"):
        digest.update(np.ascontiguousarray(getattr(trace, name)).data)
    return digest.hexdigest()


def read(path: str, options: Options) -> Trace:
    """Reads what `write` wrote.

    Raises:
        InputError: if the file is damaged, no trace of perc's, or of a newer perc.
    """
    import polars as pl

    try:
        facts = _facts(path, pl.read_parquet_metadata(path))
        table = pl.read_parquet(path)
    except parquet_faults() as error:
        raise InputError(f"{path}: cannot be read as parquet ({error}).") from error
    try:
        trace = _trace(table, facts)
        expected = facts.pop("sha256")
        if _digest(trace, facts) != expected:
            raise ValueError("its sha256 is another")
        _check(trace)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{path}: is not as perc wrote it ({error}); convert the original again."
        ) from error
    if options.block_tokens not in (None, trace.block_tokens):
        raise InputError(
            f"{path}: cut into blocks of {trace.block_tokens} tokens, not "
            f"{options.block_tokens}; convert the original again."
        )
    return trace


def _facts(path: str, metadata: dict[str, str]) -> dict[str, Any]:
    if METADATA_KEY not in metadata:
        raise InputError(
            f"{path}: a parquet file, but no trace that perc wrote; give the original "
            "trace, or a file from `perc convert`."
        )
    try:
        facts = json.loads(metadata[METADATA_KEY])
        version = facts["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path}: its metadata is damaged; convert the original again."
        ) from error
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: schema version {version}, this perc reads {SCHEMA_VERSION}; "
            "update perc, or convert the original again."
        )
    return facts


def _trace(table: Any, facts: dict[str, Any]) -> Trace:
    columns = {
        name: _column(table[name], dtype) for name, dtype in REQUEST_COLUMNS.items()
    }
    if sum(table.null_count().row(0)):
        raise ValueError("a cell is empty")
    lengths = table["block"].list.len().to_numpy().astype(np.int64)
    some = table.filter(lengths > 0)  # explode makes a null of an empty list
    block, tokens = (_column(some[name].explode(), np.int32) for name in LIST_COLUMNS)
    stop = np.cumsum(lengths).astype(np.int32)
    start = (stop - lengths).astype(np.int32)
    request = np.repeat(np.arange(len(start), dtype=np.int32), lengths)
    prev, next_ = link_accesses(block)
    return Trace(
        block=block,
        request=request,
        depth=np.arange(len(block), dtype=np.int32) - start[request],
        tokens=tokens,
        prev=prev,
        next=next_,
        start=start,
        stop=stop,
        **columns,
        block_tokens=facts["block_tokens"],
        source=facts["source"],
        kinds=tuple(facts["kinds"]),
        sessions_inferred=facts["sessions_inferred"],
        tells_blocks=facts["tells_blocks"],
    )


def _check(t: Trace) -> None:
    """Raises ValueError for what no trace can be, whatever its checksum says."""
    if type(t.block_tokens) is not int or t.block_tokens < 1:
        raise ValueError(f"blocks of {t.block_tokens!r} tokens")
    if not isinstance(t.source, str) or not all(isinstance(k, str) for k in t.kinds):
        raise ValueError("its names are no texts")
    laws = {
        "arrival_s": np.isfinite(t.arrival_s) & (np.diff(t.arrival_s, prepend=0) >= 0),
        "deadline_s": ~np.isnan(t.deadline_s),
        "input_tokens": t.input_tokens >= 0,
        "output_tokens": t.output_tokens >= 0,
        "session": t.session >= 0,
        "turn": t.turn >= 1,
        "kind": (t.kind >= 0) & (t.kind < len(t.kinds)),
        "block": t.block >= 0,
        "tokens": (t.tokens >= 1) & (t.tokens <= t.block_tokens),
    }
    for name, holds in laws.items():
        if not holds.all():
            raise ValueError(f"column {name} holds what no trace has")


def _column(series: Any, dtype: type) -> np.ndarray:
    values = series.to_numpy()
    if values.dtype != dtype:
        raise ValueError(
            f"column {series.name} holds {values.dtype}, not {np.dtype(dtype)}"
        )
    return np.array(values)  # a copy that may be written to
