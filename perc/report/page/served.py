"""What a page says of simulated and of real servers."""

import polars as pl

from perc.report.page import charts
from perc.report.page.cells import Block, Section, number, percent, table_of
from perc.report.page.folders import Run

MEANINGS = {
    "TTFT": "seconds from the arrival of a request to its first token, the queue in it",
    "TPOT": "seconds between the first token and the last, over the tokens between",
    "E2E": "seconds from the arrival of a request to its last token",
    "goodput": "requests a second that were completed within every limit",
    "token hits": "prompt tokens that were found in the cache / prompt tokens",
    "recompute": "seconds of prefill of blocks that the run had computed before and "
    "that were not in the cache, and of what preempted requests did twice",
    "preemptions": "requests that gave their blocks back before they were done",
    "interval": "95 %, sessions drawn again with replacement",
}
BY_LOAD = (
    ("Median TTFT", "ttft_s_p50", "TTFT p50 (s)"),
    ("Goodput", "goodput_per_s", "goodput (requests/s)"),
)


def simulated(run: Run) -> Section:
    """Loads and policies of a run of `perc simulate`."""
    results = run.tables["results"]
    limits = {
        name.removesuffix("_s").upper(): f"{value:g} s"
        for name, value in run.about.get("limits", {}).items()
    }
    stated = ", ".join(f"{k} <= {v}" for k, v in limits.items()) or "no limit"
    machine = run.about["machine"]
    summary = [
        f"{machine['model']} on {machine['tp']} x {machine['gpu']}, "
        f"{run.about['server']['capacity_blocks']:,} blocks of KV cache; simulated "
        "with the costs of a roofline, not measured.",
        *_best_runs(results),
        *run.about.get("notes", []),
    ]
    blocks = [
        Block(
            "Serving figures",
            [f"Goodput: completed requests a second with {stated}."],
            tables=[
                table_of(
                    _with_ends(results),
                    "All loads and policies",
                    [
                        ("load", "load", number),
                        ("policy", "policy", str),
                        ("ttft_s_p50", "TTFT p50, s", number),
                        ("ttft_s_p99", "TTFT p99, s", number),
                        ("tpot_s_p50", "TPOT p50, s", number),
                        ("e2e_s_p50", "E2E p50, s", number),
                        ("goodput_per_s", "goodput, /s", number),
                        ("token_hit_ratio", "token hits", percent),
                        ("recompute_s", "recompute, s", number),
                        ("preemptions", "preemptions", number),
                        ("rejected", "rejected", number),
                    ],
                )
            ],
        )
    ]
    blocks += _tiers(results)
    if results["load"].n_unique() > 1:
        blocks += [
            Block(
                f"{title} by load",
                chart=charts.lines(results, "load", column, ("load", says)),
                chart_says=f"{title} over load, a line a policy; the figures are in "
                "results.parquet.",
            )
            for title, column, says in BY_LOAD
        ]
    if "series" in run.tables:
        blocks += [
            Block(
                f"Requests in the queue at load {load:g}",
                chart=charts.lines(
                    run.tables["series"].filter(pl.col("load") == load),
                    "time_s",
                    "queued",
                    ("time (s)", "requests in the queue"),
                ),
                chart_says="Requests in the queue over time, a line a policy; the "
                "figures are in series.parquet.",
            )
            for load in results["load"].unique(maintain_order=True)
        ]
    return Section(f"Serving {run.source}", run, summary, blocks, MEANINGS)


def _tiers(results: pl.DataFrame) -> list[Block]:
    """What each tier below the GPU held and moved."""
    ending = "_resident_blocks"
    found = []
    for column in results.columns:
        if not (column.startswith("tier_") and column.endswith(ending)):
            continue
        start = column.removesuffix(ending)
        name = start.removeprefix("tier_")
        table = table_of(
            results,
            f"Tier {name}",
            [
                ("load", "load", number),
                ("policy", "policy", str),
                (column, "blocks held", number),
                (f"{start}_hit_blocks", "hit blocks", number),
                (f"{start}_read_bytes", "GiB read", _gib),
                (f"{start}_written_bytes", "GiB written", _gib),
                (f"{start}_read_share", "link reads", percent),
                (f"{start}_write_share", "link writes", percent),
            ],
        )
        found.append(Block(f"Tier {name}, below the GPU", tables=[table]))
    return found


def _gib(value: float | None) -> str:
    return number(None if value is None else value / 2**30)


def _with_ends(results: pl.DataFrame) -> pl.DataFrame:
    """Intervals under the names of their figures."""
    ends = ("low", "high")
    names = {f"ttft_{q}_s_{e}": f"ttft_s_{q}_{e}" for q in ("p50", "p99") for e in ends}
    return results.rename({k: v for k, v in names.items() if k in results.columns})


def _best_runs(results: pl.DataFrame) -> list[str]:
    found = []
    for load in results["load"].unique(maintain_order=True):
        here = results.filter(pl.col("load") == load).drop_nulls("ttft_s_p50")
        if here.is_empty():
            found.append(f"Load {load:g}: no request was completed.")
            continue
        best = here.sort("ttft_s_p50", maintain_order=True).row(0, named=True)
        lru = here.filter(pl.col("policy") == "lru")
        beside = ""
        if best["policy"] != "lru" and not lru.is_empty():
            beside = f", LRU {lru['ttft_s_p50'][0]:.3g} s"
        if len(here) > 1 and _meets_others(here, best):
            beside += "; its interval meets others, so that is not decided"
        found.append(
            f"Load {load:g}: the lowest median TTFT is {best['ttft_s_p50']:.3g} s with "
            f"{best['policy']}{beside}."
        )
    return found


def _meets_others(here: pl.DataFrame, best: dict) -> bool:
    """Whether the interval of a policy's median TTFT meets one of another's."""
    high = best.get("ttft_p50_s_high")
    if high is None:
        return False
    others = here.filter(pl.col("policy") != best["policy"])
    return bool((others["ttft_p50_s_low"] <= high).any())


def tried(run: Run) -> Section:
    """Arms of a run of `perc vllm-benchmark`, as they were measured."""
    about = run.about
    columns = [
        ("arm", "engine", str),
        ("repeat", "repeat", number),
        ("requests", "requests", number),
        ("hit_share", "tokens found", percent),
        ("ttft_mean_ms", "TTFT mean, ms", number),
        ("ttft_p50_ms", "TTFT p50, ms", number),
        ("ttft_p99_ms", "TTFT p99, ms", number),
        ("output_per_s", "output tokens/s", number),
        ("same_answers", "answers as the first's", number),
    ]
    return Section(
        "Real engines",
        run,
        about["verdict"],
        [
            Block(
                "Every engine",
                [
                    f"{about['repeats']} engines each, arms in turn, answers greedy, "
                    f"{about['at_once']} requests at a time."
                ],
                tables=[table_of(run.tables["results"], "Every engine", columns)],
            )
        ],
    )
