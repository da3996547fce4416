"""A sweep: thousands of configurations into one tidy table, whatever interrupts it.

    traces x policies x parameters x seeds, each at all capacities  ->  one row each

What a trace has in common is computed once: its features, LRU and the clairvoyant bound
at every capacity. A configuration then takes a score, an order and one replay for all
capacities. `perc.grid` says how a sweep is described.
"""

import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perc import sweep_store as store
from perc.compare import Progress
from perc.errors import InputError
from perc.grid import Configuration, Grid, configurations, parse_grid

if TYPE_CHECKING:
    import polars as pl

PART_S = 2.0  # seconds of work that a kill can cost


def sweep(
    traces: Grid | Iterable[Any],
    policies: Iterable[Any] = ("lru", "perc"),
    capacities: Iterable[int | float] = (0.01, 0.05, 0.25),
    *,
    seeds: Iterable[int] = (0,),
    warmup: float = 0.0,
    out: str | os.PathLike[str] | None = None,
    engine: str = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> "pl.DataFrame":
    """Replays traces through every configuration of a grid.

    Args:
        traces: paths, dicts such as `{"workload": "chat", "requests": 300}`, or traces;
            or a whole grid, of `perc.grid.read_grid` or `parse_grid`, which leaves
            nothing more to describe.
        policies: names, dicts of a name and values of its parameters, or policies.
        capacities: blocks (int) or shares of the working set (float).
        seeds: of made traces, random draws and seeded policies; where nothing depends
            on one, a configuration runs once, with no seed.
        warmup: the first share of the requests fills the cache and is not counted.
        out: folder for `results.parquet`. A sweep that was interrupted there goes on.
        engine: "local" (this process, all of JAX's CPU devices), "processes" or "ray".
        workers: how many, for "processes" and "ray"; by default as many as cores.
        progress: called with configurations done, all, and the trace at hand.

    Returns:
        One row a configuration and capacity, in the order of the grid. `config` is the
        same for all rows of a configuration, here and on other machines. `evictions`
        covers the whole trace, all else the counted requests.

    Raises:
        InputError: for a mistake in the grid, a trace that cannot be read, or a folder
            that holds another sweep.

    Example:
        >>> chat = {"workload": "chat", "requests": 100}
        >>> decay = {"name": "perc_decay", "tau_s": [10, 100]}
        >>> table = sweep([chat], [decay], [50, 200])
        >>> table.select("tau_s", "capacity_blocks").rows()
        [(10.0, 50), (10.0, 200), (100.0, 50), (100.0, 200)]
    """
    grid = (
        traces
        if isinstance(traces, Grid)
        else parse_grid(
            {
                "traces": traces,
                "policies": policies,
                "capacities": capacities,
                "seeds": seeds,
                "warmup": warmup,
            }
        )
    )
    if out is None:
        with tempfile.TemporaryDirectory(prefix="perc-sweep-") as folder:
            return _sweep(grid, Path(folder), engine, workers, progress)
    with store.claimed(Path(out)):
        return _sweep(grid, Path(out), engine, workers, progress)


def _sweep(
    grid: Grid,
    folder: Path,
    engine: str,
    workers: int | None,
    progress: Progress | None,
) -> "pl.DataFrame":
    from perc import sweep_engines

    store.begin(folder, grid)
    done = store.results(folder)
    if done is not None:
        return done
    units = configurations(grid)
    finished = store.finished(folder)
    counter = _Counter(len(finished), len(units), progress)
    with sweep_engines.engine(engine, workers) as run:
        for _, same in groupby(units, key=lambda unit: unit[1:3]):
            _sweep_trace(grid, folder, list(same), finished, run, counter)
    counter.say("merging")
    return store.merge(folder, grid, units)


class _Counter:
    """Counts configurations for whoever watches."""

    def __init__(self, done: int, total: int, progress: Progress | None):
        self.done, self._total, self._progress = done, total, progress

    def say(self, what: str) -> None:
        if self._progress:
            self._progress(self.done, self._total, what)


def _sweep_trace(
    grid: Grid,
    folder: Path,
    units: Sequence[Configuration],
    finished: dict[str, str],
    run: Any,
    counter: _Counter,
) -> None:
    """Runs what is left of one trace, and keeps the rows every few seconds."""
    from perc.sweep_unit import make_job, open_trace

    left = [unit for unit in units if unit.id not in finished]
    if not left:
        return
    counter.say("opening the next trace")
    spec = grid.traces[units[0].trace]
    job = make_job(grid, open_trace(spec, units[0].trace_seed))
    before = {finished[unit.id] for unit in units if unit.id in finished}
    if before - {job.sha256}:
        raise InputError(
            f"{job.trace.source} has changed since this sweep began in {folder}. "
            "Choose another folder."
        )
    rows: list[dict] = []
    kept = time.monotonic()
    try:
        counter.say(job.trace.source)
        for found in run(job, left):
            rows += found
            counter.done += 1
            counter.say(job.trace.source)
            if time.monotonic() - kept > PART_S:
                store.write_part(folder, grid, rows)
                rows, kept = [], time.monotonic()
    finally:  # Ctrl-C as well
        if rows:
            store.write_part(folder, grid, rows)
