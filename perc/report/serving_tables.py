"""Simulated runs as a table, as parquet, and as a chart of the queue over time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table

from perc.serving.metrics import Limits, Spread
from perc.serving.served import Served
from perc.serving.state import SERIES

if TYPE_CHECKING:
    import polars as pl


class Run(NamedTuple):
    """One policy at one load."""

    load: float
    policy: str
    figures: dict[str, Any]  # of `perc.serving.metrics.summary`
    intervals: dict[str, tuple]  # of `perc.serving.metrics.intervals`
    served: Served
    groups: dict[str, Spread] = {}  # TTFT of each class, if asked for


def groups_table(runs: Sequence[Run], by: str) -> Table:
    """TTFT of each class of requests, a row a class and run."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("load", "policy", by):
        made.add_column(name, overflow="fold")
    for name in ("requests", "TTFT p50, s", "p90, s", "p99, s"):
        made.add_column(name, justify="right")
    for run in runs:
        rows = list(run.groups.items())
        for label, f in rows:
            shown = ["-" if v is None else _short(v) for v in (f.p50, f.p90, f.p99)]
            cells = [f"{run.load:g}", run.policy, label, f"{f.n:,}", *shown]
            made.add_row(*cells, end_section=label == rows[-1][0])
    return made


COLUMNS = (
    "TTFT\np50, s",
    "TTFT\np99, s",
    "TPOT\np50, ms",
    "goodput\n/s",
    "hit",
    "recompute\ns",
)


def runs_table(runs: Sequence[Run]) -> Table:
    """One row a load and policy; half of its 95 % interval below each figure."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("load", "policy"):
        made.add_column(name, no_wrap=name == "load", overflow="fold", min_width=4)
    for name in COLUMNS:
        made.add_column(name, justify="right", no_wrap=True)
    for i, run in enumerate(runs):
        last = i + 1 == len(runs) or runs[i + 1].load != run.load
        made.add_row(*_cells(run), end_section=last)
    return made


def _cells(run: Run) -> list[str]:
    f, sure = run.figures, run.intervals
    ttft, tpot = f["ttft_s"], f["tpot_s"]
    return [
        f"{run.load:g}",
        run.policy,
        _sure(ttft.p50, sure["ttft_p50_s"]),
        _sure(ttft.p99, sure["ttft_p99_s"]),
        "-" if tpot.p50 is None else f"{1000 * tpot.p50:.3g}",
        _sure(f["goodput_per_s"], sure["goodput_per_s"]),
        f"{f['token_hit_ratio']:.1%}",
        _sure(f["recompute_s"], sure["recompute_s"]),
    ]


def _sure(value: float | None, ends: tuple) -> str:
    """A value, and below it half the width of its interval.

    >>> _sure(1.23456, (1.0, 2.0)), _sure(None, (None, None))
    ('1.23\\n±0.5', '-')
    >>> _sure(0.17, (0.17, 0.17 + 1e-16))  # nothing but rounding
    '0.17'
    """
    if value is None:
        return "-"
    if None in ends or ends[1] - ends[0] <= 1e-9 * abs(value):
        return _short(value)
    half = (ends[1] - ends[0]) / 2
    width = f"{half:,.0f}" if half >= 100 else f"{half:.2g}"
    return f"{_short(value)}\n±{width}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def sentences(runs: Sequence[Run], limits: Limits) -> list[str]:
    """What needs saying beside the figures."""
    found = [
        f"{run.policy} at load {run.load:g}: {run.figures['rejected']:,} of "
        f"{run.figures['submitted']:,} requests rejected, since they found the queue "
        "full or never fit into the cache; its figures are of less work."
        for run in runs
        if run.figures["rejected"]
    ]
    preempted = sum(run.figures["preemptions"] for run in runs)
    if preempted:
        found.append(f"preemptions in all: {preempted:,}; --out has them by request.")
    levels = {"TTFT": limits.ttft_s, "TPOT": limits.tpot_s, "E2E": limits.e2e_s}
    stated = ", ".join(f"{k} <= {v:g} s" for k, v in levels.items() if v < float("inf"))
    found.append(f"goodput: completed requests a second with {stated or 'no limit'}.")
    for load in dict.fromkeys(run.load for run in runs):
        if any(_falls_behind(run) for run in runs if run.load == load):
            found.append(
                f"Load {load:g} is more than the server can do: the queue grows to the "
                "end, so its TTFT tells the trace's length as much as the policy."
            )
    return found


def _falls_behind(run: Run) -> bool:
    """Whether the queue grows as long as requests come, whatever its length.

    Neither where it has a bound, nor where the next turn waits for the last one's end.
    """
    server, figures = run.served.server, run.figures
    bounded = server.closed_loop or server.max_queue is not None
    long = (figures["queue_s"].p50 or 0.0) > 60
    return figures["busy_share"] > 0.99 and long and not bounded


def figures_frame(runs: Sequence[Run]) -> "pl.DataFrame":
    """One row a run, distributions and intervals in columns of their own."""
    import polars as pl

    return pl.DataFrame([flat(run) for run in runs], infer_schema_length=None)


def flat(run: Run) -> dict[str, Any]:
    """The figures of a run as plain numbers."""
    row: dict[str, Any] = {"load": run.load}
    for name, value in run.figures.items():
        if isinstance(value, Spread):
            row |= {f"{name}_{k}": v for k, v in vars(value).items()}
        else:
            row[name] = value
    for name, (low, high) in run.intervals.items():
        row |= {f"{name}_low": low, f"{name}_high": high}
    for label, found in run.groups.items():
        row |= {f"ttft_s_of_{label}_{k}": v for k, v in vars(found).items()}
    return row


def requests_frame(runs: Sequence[Run]) -> "pl.DataFrame":
    """One row a request and run."""
    import polars as pl

    columns = (
        "status",
        "arrived_s",
        "admitted_s",
        "first_token_s",
        "ended_s",
        "hit_blocks",
        "cached_tokens",
        "known_tokens",
        "made_tokens",
        "preemptions",
        "again_tokens",
    )
    frames = [
        pl.DataFrame({name: getattr(run.served, name) for name in columns})
        .with_columns(**_loads_of(run))
        .with_row_index("request")
        .with_columns(load=pl.lit(run.load), policy=pl.lit(run.policy))
        for run in runs
    ]
    return pl.concat(frames)


def _loads_of(run: Run) -> dict:
    """What each request got from the tiers below, if there are any."""
    below = run.served.below
    if below is None:
        return {}
    return {"loaded_blocks": below.loaded_blocks, "load_wait_s": below.wait_s}


def series_frame(runs: Sequence[Run]) -> "pl.DataFrame":
    """The state of each server over time."""
    import polars as pl

    frames = [
        pl.DataFrame(run.served.series, schema=list(SERIES)).with_columns(
            load=pl.lit(run.load), policy=pl.lit(run.policy)
        )
        for run in runs
    ]
    return pl.concat(frames)


def write_folder(folder: Path, runs: Sequence[Run], about: dict) -> list[Path]:
    """Writes run.json, results, requests, series and the chart.

    Raises:
        InputError: if the folder cannot be written to.
    """
    import json

    from perc.files import write_atomically
    from perc.report.chart import save_png

    about = about | {"runs": [flat(run) for run in runs]}
    writers: dict[str, Callable[[Path], object]] = {
        "results.parquet": figures_frame(runs).write_parquet,
        "requests.parquet": requests_frame(runs).write_parquet,
        "series.parquet": series_frame(runs).write_parquet,
        "series.png": save_png(series_chart(runs)),
        # Last: where it stands, the files beside it are of the same run.
        "run.json": lambda path: path.write_text(json.dumps(about, indent=2) + "\n"),
    }
    (folder / "run.json").unlink(missing_ok=True)
    return [write_atomically(folder / name, write) for name, write in writers.items()]


def series_chart(runs: Sequence[Run]):
    """Requests in the queue over time, one line a policy, one panel a load."""
    import altair as alt

    values = series_frame(runs).select("time_s", "queued", "load", "policy").to_dicts()
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line()
        .encode(
            alt.X("time_s:Q", title="time (s)"),
            alt.Y("queued:Q", title="requests in the queue"),
            alt.Color("policy:N").scale(scheme="tableau10"),
            alt.Row("load:N", title="load"),
        )
        .properties(width=640, height=160)
        .resolve_scale(x="independent", y="independent")
    )
