"""The folder of a sweep: what survives when it is killed, and how it goes on.

    sweep.json          the grid, and the versions that ran it
    parts/*.parquet     rows of finished configurations, a file every few seconds
    results.parquet     all rows in the order of the grid; then the parts are gone

Every file is written whole or not at all, and a part holds whole configurations, so a
configuration is either done or runs again. The same grid gives the same file.
"""

import fcntl
import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perc.errors import InputError
from perc.files import parquet_faults, write_atomically
from perc.grid import Configuration, Grid, configurations, describe, digest

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
RESULTS = "results.parquet"
DECIDING = ("perc-kv", "jax", "numpy")  # versions that could change a row


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keeps other sweeps out of a folder, until this process ends in any way.

    Raises:
        InputError: if one is at work there, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}; choose another folder."
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(
            f"{folder}: another sweep is at work here; wait for it, or choose another "
            "folder."
        ) from None
    finally:
        os.close(handle)


def begin(folder: Path, grid: Grid) -> None:
    """Writes `sweep.json`, or checks that the one there is of the same sweep.

    Raises:
        InputError: if it is of another grid, or was begun with other versions.
    """
    for left in [*folder.glob(".*-*"), *folder.glob("parts/.*")]:
        left.unlink()  # half files of a killed process
    wanted = {
        "schema_version": SCHEMA_VERSION,
        "grid_sha256": digest(describe(grid)),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in (*DECIDING, "polars")},
        },
        "configurations": len(configurations(grid)),
        "grid": describe(grid),
    }
    path = folder / "sweep.json"
    if path.exists():
        _check_same(folder, _begun(path), wanted)
        return
    text = json.dumps(wanted, indent=2) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text))


def _begun(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("versions"), dict):
            return found
        why = "no object with versions"
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    raise InputError(
        f"{path}: not as perc sweep wrote it ({why}). Choose another folder."
    )


def _check_same(folder: Path, found: dict, wanted: dict) -> None:
    for key in ("schema_version", "grid_sha256"):
        if found.get(key) != wanted[key]:
            raise InputError(
                f"{folder} holds a sweep of another grid. Choose another folder, or "
                "finish that one with its own grid."
            )
    for name in DECIDING:
        old, new = (side["versions"].get(name) for side in (found, wanted))
        if old != new:
            raise InputError(
                f"{folder} was begun with {name} {old}, this is {new}: the rows might "
                "not fit together. Choose another folder."
            )


def schema(grid: Grid) -> dict[str, Any]:
    """The columns of the table, whatever is in the rows."""
    import polars as pl

    kinds = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, str: pl.String}
    return {
        "trace": pl.String,
        "trace_sha256": pl.String,
        "seed": pl.Int64,
        "policy": pl.String,
        **{name: kinds[kind] for name, kind in grid.parameters.items()},
        "capacity_blocks": pl.Int64,
        "warmup": pl.Float64,
        "block_hit_ratio": pl.Float64,
        "token_hit_ratio": pl.Float64,
        "recompute_tokens": pl.Int64,
        "recompute_s": pl.Float64,
        "lru_block_hit_ratio": pl.Float64,
        "bound_block_hit_ratio": pl.Float64,
        "gap_closed": pl.Float64,
        "evictions": pl.Int64,
        "config": pl.String,
    }


def write_part(folder: Path, grid: Grid, rows: Sequence[dict]) -> None:
    """Keeps the rows of finished configurations."""
    import polars as pl

    table = pl.DataFrame(rows, schema=schema(grid), strict=False)
    name = f"{rows[0]['config']}.parquet"  # no other part begins with it
    write_atomically(folder / "parts" / name, table.write_parquet)


def parts(folder: Path) -> "pl.DataFrame | None":
    """All rows so far, in no order."""
    import polars as pl

    files = sorted((folder / "parts").glob("[!.]*.parquet"))
    tables = [_table(file) for file in files]
    for file, table in zip(files, tables, strict=True):
        if table.schema != tables[0].schema:
            raise _damaged(file, f"it has other columns than {files[0].name}")
    return pl.concat(tables) if tables else None


def _table(file: Path, columns: list[str] | None = None) -> "pl.DataFrame":
    import polars as pl

    try:
        return pl.read_parquet(file, columns=columns)
    except parquet_faults() as error:
        raise _damaged(file, str(error).split("\n")[0]) from None


def _damaged(file: Path, why: str) -> InputError:
    return InputError(
        f"{file}: not as perc sweep wrote it ({why}). Remove the file; the same "
        "command then makes its rows again."
    )


def finished(folder: Path) -> dict[str, str]:
    """Ids of finished configurations, with the digest of the trace that was swept."""
    found: dict[str, str] = {}
    for file in (folder / "parts").glob("[!.]*.parquet"):
        part = _table(file, ["config", "trace_sha256"])
        found.update(part.unique().iter_rows())
    return found


def results(folder: Path) -> "pl.DataFrame | None":
    """The table of a sweep that is done."""
    path = folder / RESULTS
    if not path.exists():
        return None
    found = _table(path)  # before the parts go, of which it was made
    shutil.rmtree(folder / "parts", ignore_errors=True)
    return found


def merge(folder: Path, grid: Grid, units: Sequence[Configuration]) -> "pl.DataFrame":
    """Puts the parts into one table in the order of the grid, and removes them."""
    import polars as pl

    found = parts(folder)
    if found is None:
        found = pl.DataFrame(schema=schema(grid))
    if found.schema != pl.Schema(schema(grid)):
        raise _damaged(folder / "parts", "columns are not those of the grid")
    place = pl.DataFrame(
        {"config": [unit.id for unit in units], "place": range(len(units))}
    )
    table = (
        found.join(place, on="config")
        .sort("place", "capacity_blocks")
        .drop("place")
        .rechunk()
    )
    write_atomically(folder / RESULTS, table.write_parquet)
    shutil.rmtree(folder / "parts", ignore_errors=True)
    return table
