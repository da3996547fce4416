"""A run as a folder: run.json, its tables as parquet, and two charts."""

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perc.attribution import Attribution
from perc.bootstrap import COVERS
from perc.breakdown import block_intervals, breakdown
from perc.capacities import log_grid
from perc.compare import Comparison, Progress, resolve, run
from perc.compare import compare as run_compare
from perc.files import check_writable, write_atomically
from perc.metrics import warmup_requests
from perc.report.flat_misses import flat_misses
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
        result: of `compare`; with its hits kept, nothing is replayed again for them.
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
        trace,
        policies,
        log_grid(trace, CURVE_POINTS),
        warmup=warmup,
        keep_hits=True,
        progress=progress,
    )
    skip = warmup_requests(trace, warmup)
    sizes = list(dict.fromkeys(row.capacity_blocks for row in result.rows))
    hits = _hits(result, trace, policies, sizes)
    every = _hits(curves, trace, policies, [])
    chart = curve_chart(curves, result)
    told = {} if misses is None else misses.as_dict()
    writers = {
        **misses_writer(told),
        "results.parquet": _table(result, trace, hits, skip).write_parquet,
        "curves.parquet": _table(curves, trace, every, skip).write_parquet,
        "groups.parquet": _groups(trace, hits, sizes, skip).write_parquet,
        "curves.png": save_png(chart),
        "curves.html": save_html(chart),
        # Last: where it stands, the files beside it are of the same run.
        "run.json": save_json(_describe(result, misses, trace, command)),
    }
    return write_files(folder, writers)


def misses_writer(misses: dict) -> dict[str, Callable[[Path], object]]:
    """Of misses.parquet, if there are causes to write."""
    import polars as pl

    if not misses:
        return {}
    rows = flat_misses(misses)
    return {"misses.parquet": pl.DataFrame(rows).write_parquet}


def write_files(
    folder: Path, writers: dict[str, Callable[[Path], object]]
) -> list[Path]:
    """Writes the files of a run, run.json last; an older one goes first."""
    for name in ("run.json", "misses.parquet"):
        (folder / name).unlink(missing_ok=True)
    return [write_atomically(folder / name, write) for name, write in writers.items()]


def _hits(
    result: Comparison,
    trace: Trace,
    policies: Sequence[AnyPolicy],
    sizes: Sequence[int],
) -> dict[str, np.ndarray]:
    """Leading resident blocks i32[K, R] of every policy, LRU among them."""
    if result.hits is not None:
        return result.hits
    (lru,) = resolve(["lru"])
    named = {lru.name: lru} | {policy.name: policy for policy in policies}
    return {name: run(policy, trace, sizes) for name, policy in named.items()}


def _table(
    result: Comparison, trace: Trace, hits: dict[str, np.ndarray], skip: int
) -> "pl.DataFrame":
    """The rows, and between which ends each block hit ratio lies."""
    import polars as pl

    sizes = list(dict.fromkeys(row.capacity_blocks for row in result.rows))
    sure = {
        (name, size): ends
        for name, found in hits.items()
        for size, ends in zip(
            sizes, block_intervals(trace, found, skip=skip), strict=True
        )
    }
    rows = []
    for row in result.rows:
        ends = sure[row.policy, row.capacity_blocks]
        rows.append(
            asdict(row)
            | {"block_hit_ratio_low": ends.low, "block_hit_ratio_high": ends.high}
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _groups(
    trace: Trace, hits: dict[str, np.ndarray], sizes: Sequence[int], skip: int
) -> "pl.DataFrame":
    import polars as pl

    parts = breakdown(trace, hits, sizes, skip=skip)
    return pl.DataFrame(map(asdict, parts), infer_schema_length=None)


def save_json(value: dict) -> Callable[[Path], object]:
    """Writes a value to whatever path it is given."""
    return lambda path: path.write_text(json.dumps(value, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Of what a run depends on."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("perc-kv", "jax", "numpy", "polars")},
    }


def provenance(trace: Trace, command: Sequence[str]) -> dict:
    """Where a run comes from: what repeats it, and of what."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "versions": versions(),
        "trace_sha256": hash_of(trace),
    }


def _describe(
    result: Comparison,
    misses: Attribution | None,
    trace: Trace,
    command: Sequence[str],
) -> dict:
    return {
        **provenance(trace, command),
        "verdict": verdict(result),
        "clairvoyant": list(result.clairvoyant),
        **result.as_dict(),
        "definitions": {**result.definitions, "interval": COVERS},
        **({} if misses is None else {"misses": misses.as_dict()}),
    }
