"""`perc sweep`: thousands of configurations into one table, resumable at any time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    import polars as pl

    from perc.compare import Progress
    from perc.grid import Grid

LINE_EVERY_S = 10.0  # in a log, where no bar can move
MOST_LINES = 40  # of the table


def sweep(
    grid: Annotated[Positional[str], arg(metavar="@GRID.toml")],
    *,
    out: Annotated[Path, arg(metavar="FOLDER")],
    engine: Literal["local", "processes", "ray"] = "local",
    workers: Annotated[int | None, arg(metavar="INT")] = None,
) -> None:
    """Replay every configuration of a grid: traces, policies, parameters, capacities.

    A grid is a TOML file, for example: capacities = [0.01, 4096]; [[traces]] with
    path = "trace.jsonl" or workload = "chat"; [[policies]] with name = "perc_decay",
    tau_s = {from = 10, to = 1000, steps = 25, scale = "log"}, cost_weight = [0, 0.5].
    `python -m pydoc perc.grid` shows all that it can say.

    Args:
        grid: the file.
        out: for results.parquet. If it was interrupted there, the same command goes on.
        engine: this process, processes beside it, or the Ray cluster of RAY_ADDRESS
            (one of this machine without that).
        workers: how many, for processes and ray; by default as many as cores.

    Raises:
        InputError: if the grid, a trace or a flag is not as it must be.
    """
    from perc.grid import configurations, read_grid
    from perc.sweep import sweep as run

    began = time.perf_counter()
    parsed = read_grid(grid.removeprefix("@"))
    try:
        with sweep_progress() as progress:
            table = run(
                parsed, out=out, engine=engine, workers=workers, progress=progress
            )
    except KeyboardInterrupt:
        print(
            f"perc: what is finished is kept in {out}; the same command goes on there",
            file=sys.stderr,
        )
        raise
    _print(table, parsed, len(configurations(parsed)), out)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


@contextmanager
def sweep_progress() -> Iterator["Progress"]:
    """A callback that shows how many are done, how fast, and the time left.

    On a terminal it is a bar, elsewhere a line now and then.
    """
    pace = _pace_since_now()
    if not sys.stderr.isatty():
        yield _lines(pace)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=pace(done, total) or what
        )


def _lines(pace: Callable[[int, int], str]) -> "Progress":
    said = time.monotonic()

    def say(done: int, total: int, what: str) -> None:
        nonlocal said
        rate = pace(done, total)
        if time.monotonic() - said >= LINE_EVERY_S:
            said = time.monotonic()
            print(
                f"{done:,} of {total:,} configurations, {rate or what}", file=sys.stderr
            )

    return say


def _pace_since_now() -> Callable[[int, int], str]:
    """Says the rate and the time left, by what was done since the first call."""
    first: tuple[int, float] | None = None

    def pace(done: int, total: int) -> str:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = done, now
        new, seconds = done - first[0], now - first[1]
        if not new or not seconds:
            return ""
        left = round((total - done) * seconds / new)
        clock = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
        return f"{new / seconds:,.1f} a second, {clock} left"

    return pace


def _print(table: "pl.DataFrame", grid: "Grid", count: int, out: Path) -> None:
    from perc.report.best import best_configurations
    from perc.report.console import plain_console
    from perc.sweep_store import RESULTS

    console = plain_console()
    console.print(
        f"{count:,} configurations at {len(grid.capacities):,} capacities: "
        f"{len(table):,} rows",
        markup=False,
    )
    best = best_configurations(table)
    for trace in best["trace"].unique(maintain_order=True)[:MOST_LINES]:
        console.print(
            _best_table(trace, best.filter(trace=trace), list(grid.parameters))
        )
    console.print(
        f"The best of {count:,} on the traffic that chose it looks better than it is: "
        "perc tune judges on requests that the search did not see.",
        markup=False,
    )
    console.print(f"Rows: {out / RESULTS}", markup=False, soft_wrap=True)
    console.print(
        f"Next: python -c \"import polars as pl; print(pl.read_parquet('"
        f"{out / RESULTS}'))\"",
        markup=False,
        soft_wrap=True,
    )


def _best_table(trace: str, best: "pl.DataFrame", parameters: list[str]):
    from perc.report.tables import policy_table

    shown = policy_table(
        ("block\nhits", "LRU", "bound", "gap\nclosed"),
        ("best configuration",),
        title=trace,
        title_justify="left",
        caption="gap closed: 0 % = LRU, 100 % = clairvoyant bound",
    )
    for row in best.head(MOST_LINES).iter_rows(named=True):
        named = [f"{p}={_short(row[p])}" for p in parameters if row[p] is not None]
        gap = row["gap_closed"]
        shown.add_row(
            f"{row['capacity_blocks']:,}",
            ":".join([row["policy"], *named]),
            f"{row['block_hit_ratio']:.2%}",
            f"{row['lru_block_hit_ratio']:.2%}",
            f"{row['bound_block_hit_ratio']:.2%}",
            "no gap" if gap is None else f"{gap:+.1%}",
        )
    return shown


def _short(value: bool | float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
