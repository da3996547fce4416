"""What engines did with the same requests: figures by arm, arms beside the first.

Every repeat serves all requests in an engine of its own. A figure is the mean over
repeats; its interval is Student's, of the repeats. Against the first arm figures are
compared repeat by repeat, since repeats come in turns and share the machine's mood.
"""

import math
from typing import Any

import numpy as np
import polars as pl
from rich import box
from rich.table import Table
from scipy import stats

LEVEL = 0.95
FIGURES = {
    "hit_share": ("tokens\nfound", "{:.1%}"),
    "ttft_mean_ms": ("TTFT\nmean, ms", "{:,.1f}"),
    "ttft_p50_ms": ("TTFT\np50, ms", "{:,.1f}"),
    "ttft_p99_ms": ("TTFT\np99, ms", "{:,.1f}"),
    "output_per_s": ("output\ntokens/s", "{:,.1f}"),
}


def trials(job: dict[str, Any], results: list[dict[str, Any]]) -> pl.DataFrame:
    """One row an arm and repeat."""
    first = {r["repeat"]: r["answers"] for r in results if r["arm"] == 0}
    return pl.DataFrame([_row(job, result, first) for result in results])


def _row(job, result, first) -> dict[str, Any]:
    answers = result["answers"]
    ttft_ms = 1e3 * np.array([a["ttft_s"] for a in answers])
    asked = sum(a["input_tokens"] for a in answers)
    made = sum(len(a["output"]) for a in answers)
    same = zip(answers, first[result["repeat"]], strict=True)
    return {
        "arm": job["arms"][result["arm"]]["name"],
        "repeat": result["repeat"],
        "requests": len(answers),
        "input_tokens": asked,
        "hit_tokens": (hits := sum(a["hit_tokens"] for a in answers)),
        "hit_share": hits / asked,
        "ttft_mean_ms": float(ttft_ms.mean()),
        "ttft_p50_ms": float(np.median(ttft_ms)),
        "ttft_p99_ms": float(np.quantile(ttft_ms, 0.99)),
        "output_tokens": made,
        "seconds": result["seconds"],
        "output_per_s": made / result["seconds"],
        "same_answers": sum(a["output"] == b["output"] for a, b in same),
    }


def spread(values: np.ndarray) -> tuple[float, float]:
    """The mean, and half of its interval; infinite of one value.

    >>> spread(np.array([1.0, 1.0]))
    (1.0, 0.0)
    """
    n = len(values)
    if n < 2:
        return float(values.mean()), math.inf
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return float(values.mean()), float(half)


def trials_table(found: pl.DataFrame) -> Table:
    """One row an arm; half of each interval below the figure."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("engine", overflow="fold")
    for heading, _ in FIGURES.values():
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("answers as\nthe first's", justify="right", no_wrap=True)
    for (arm,), rows in found.group_by("arm", maintain_order=True):
        cells = []
        for name, (_, form) in FIGURES.items():
            mean, half = spread(rows[name].to_numpy())
            below = "" if math.isinf(half) else f"\n±{form.format(half)}"
            cells.append(form.format(mean) + below)
        same, of = rows["same_answers"].sum(), rows["requests"].sum()
        made.add_row(str(arm), *cells, f"{same:,} of {of:,}")
    return made


def sentences(found: pl.DataFrame) -> list[str]:
    """Every arm against the first one, by the ratio of mean TTFTs of each repeat."""
    names = found["arm"].unique(maintain_order=True).to_list()
    base = found.filter(arm=names[0]).sort("repeat")["ttft_mean_ms"].to_numpy()
    said = []
    for name in names[1:]:
        own = found.filter(arm=name).sort("repeat")["ttft_mean_ms"].to_numpy()
        mean, half = spread(np.log(own / base))
        ratio = f"{name}: mean TTFT is {math.exp(mean):.2f} times {names[0]}'s"
        if math.isinf(half):
            said.append(f"{ratio}; one repeat tells nothing of chance.")
            continue
        low, high = math.exp(mean - half), math.exp(mean + half)
        sure = "beyond chance" if low > 1 or high < 1 else "which may be chance"
        said.append(f"{ratio} ({low:.2f} to {high:.2f}, {sure}).")
    return said
