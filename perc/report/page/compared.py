"""What a page says of a run of `perc compare`."""

from typing import Any

import polars as pl

from perc.report.flat_misses import flat_misses
from perc.report.page import charts
from perc.report.page.cells import Block, Section, number, percent, points, table_of
from perc.report.page.folders import Run

BEST = 8  # curves of policies beside LRU's and the bounds'


def compared(run: Run) -> Section:
    """Curves, tables and verdict of the run."""
    about, tables = run.about, run.tables
    bounds = about.get("clairvoyant") or _bounds(tables["results"])
    shown, left_out = _legible(tables["curves"], bounds)
    blocks = [
        Block(
            "Miss-ratio curves",
            [
                "Lower is better. Dashed: the clairvoyant bound, beyond every policy. "
                "Bands: 95 % intervals, sessions drawn again.",
                *left_out,
            ],
            charts.curves(shown, bounds),
            "Block miss ratio over capacity in blocks, a line a policy; the figures "
            "are in curves.parquet.",
        ),
        Block(
            "Policies and capacities",
            ["Click a heading to sort."],
            tables=[
                table_of(
                    tables["results"],
                    "All policies at all capacities",
                    [
                        ("capacity_blocks", "blocks", number),
                        ("policy", "policy", str),
                        ("block_hit_ratio", "block hits", percent),
                        ("token_hit_ratio", "token hits", percent),
                        ("recompute_tokens", "recomputed tokens", number),
                        ("recompute_s", "recompute, s", number),
                        ("gap_closed", "gap closed", percent),
                    ],
                )
            ],
        ),
    ]
    if "misses" in about:
        blocks.append(why(about["misses"]))
    if "groups" in tables:
        blocks += _groups(tables["groups"])
    return Section(f"Comparison on {run.source}", run, about["verdict"], blocks)


def _legible(curves: pl.DataFrame, bounds: list[str]) -> tuple[pl.DataFrame, list[str]]:
    """The curves that one chart can show, and which are left out if there are more.

    LRU, the bounds, and those that hit the most blocks, all capacities together.
    """
    mean = pl.col("block_hit_ratio").mean()
    by_hits = (
        curves.group_by("policy", maintain_order=True)
        .agg(mean)
        .sort("block_hit_ratio", descending=True, maintain_order=True)["policy"]
        .to_list()
    )
    ends = ["lru", *bounds]
    best = [name for name in by_hits if name not in ends][:BEST]
    shown = curves.filter(pl.col("policy").is_in([*ends, *best]))
    left = len(by_hits) - shown["policy"].n_unique()
    said = f"LRU, the bounds and the {BEST} best of {len(by_hits)} policies; the table "
    return shown, [said + "has all."] if left else []


def _bounds(results: pl.DataFrame) -> list[str]:
    names = results["policy"].unique(maintain_order=True).to_list()
    return [name for name in names if name.startswith("belady")]


def why(misses: dict[str, Any]) -> Block:
    """The causes of misses, as `Attribution.as_dict` gives them: a chart."""
    causes = list(misses["rows"][0]["misses"])
    order = ["hit", *causes]
    rows = flat_misses(misses)
    occur = {row["cause"] for row in rows}
    bars = [
        {
            "capacity": f"{row['capacity_blocks']:,} blocks",
            "policy": row["policy"]
            if row["group"] == "all"
            else f"{row['policy']}, {row['group']}",
            "cause": row["cause"],
            "place": order.index(row["cause"]),
            "share": row["share"],
        }
        for row in rows
    ]
    return Block(
        "Why prompts missed",
        [
            f"{cause}: {misses['definitions'][cause]}."
            for cause in causes
            if cause in occur
        ],
        charts.stacked(pl.DataFrame(bars), order),
        "Shares of the prompt tokens that hit or missed, by cause; the figures are in "
        "misses.parquet.",
    )


def _groups(groups: pl.DataFrame) -> list[Block]:
    """A table for each way of grouping, at the capacity where policies differ most."""
    of_groups = groups.filter(pl.col("by") != "all")
    overall = groups.filter(pl.col("by") == "all")
    if of_groups.is_empty() or overall.is_empty():
        return []
    widest = (
        overall.group_by("capacity_blocks", maintain_order=True)
        .agg(spread=pl.col("gain").max() - pl.col("gain").min())
        .sort("spread", descending=True, maintain_order=True)["capacity_blocks"][0]
    )
    here = of_groups.filter(pl.col("capacity_blocks") == widest).rename(
        {"low": "token_hit_ratio_low", "high": "token_hit_ratio_high"}
    )
    return [
        Block(
            f"By {by}",
            [
                f"At {widest:,} blocks, where policies differ most; groups.parquet has "
                "all capacities. Gain: token hit ratio less LRU's, in points."
            ],
            tables=[
                table_of(
                    here.filter(pl.col("by") == by),
                    f"Token hits by {by}",
                    [
                        ("group", by, str),
                        ("policy", "policy", str),
                        ("requests", "requests", number),
                        ("input_tokens", "prompt tokens", number),
                        ("token_hit_ratio", "token hits", percent),
                        ("gain", "gain over LRU", points),
                    ],
                )
            ],
        )
        for by in here["by"].unique(maintain_order=True)
    ]
