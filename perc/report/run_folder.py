"""A run as a folder: run.json, results.parquet, curves.parquet and two charts."""

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from perc.attribution import Attribution
from perc.capacities import log_grid
from perc.compare import Comparison, Progress
from perc.compare import compare as run_compare
from perc.files import check_writable, write_atomically
from perc.report.verdict import verdict
from perc.traces.hashing import hash_of
from perc.types import AnyPolicy, Trace

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
CURVE_POINTS = 24


def write_run(
    folder: Path,
    result: Comparison,
    trace: Trace,
    policies: Sequence[AnyPolicy],
    *,
    command: Sequence[str],
    warmup: float,
    misses: Attribution | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Writes what is needed to read, check and repeat a comparison.

    Args:
        folder: made if absent; files of the same names are replaced.
        result: of `compare`.
        trace: what was replayed.
        policies: as given to `compare`.
        command: how to get the same again.
        warmup: as given to `compare`.
        misses: their causes, for run.json.
        progress: called while the curves are computed.

    Returns:
        The written files.

    Raises:
        InputError: if the folder cannot be written to.
    """
    from perc.report.chart import curve_chart, save_html, save_png

    check_writable(folder)
    curves = run_compare(
        trace, policies, log_grid(trace, CURVE_POINTS), warmup=warmup, progress=progress
    )
    chart = curve_chart(curves, result)
    writers = {
        "results.parquet": _table(result).write_parquet,
        "curves.parquet": _table(curves).write_parquet,
        "curves.png": save_png(chart),
        "curves.html": save_html(chart),
        # Last: where it stands, the files beside it are of the same run.
        "run.json": _save_json(_describe(result, misses, trace, command)),
    }
    (folder / "run.json").unlink(missing_ok=True)
    return [write_atomically(folder / name, write) for name, write in writers.items()]


def _table(result: Comparison) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(map(asdict, result.rows), infer_schema_length=None)


def _save_json(value: dict) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(value, indent=2) + "\n")


def _describe(
    result: Comparison,
    misses: Attribution | None,
    trace: Trace,
    command: Sequence[str],
) -> dict:
    return {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("perc-kv", "jax", "numpy", "polars")},
        },
        "trace_sha256": hash_of(trace),
        "verdict": verdict(result),
        **result.as_dict(),
        **({} if misses is None else {"misses": misses.as_dict()}),
    }
