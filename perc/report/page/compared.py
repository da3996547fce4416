"""What a page says of a run of `perc compare`."""

from typing import Any

import polars as pl

from perc.report.page import charts
from perc.report.page.cells import Block, Section, number, percent, points, table_of
from perc.report.page.folders import Run


def compared(run: Run) -> Section:
    """Curves, tables and verdict of the run."""
    about, tables = run.about, run.tables
    bounds = about.get("clairvoyant") or _bounds(tables["results"])
    blocks = [
        Block(
            "Miss-ratio curves",
            [
                "Lower is better. Dashed: the clairvoyant bound, beyond every policy. "
                "Bands: 95 % intervals, sessions drawn again."
            ],
            charts.curves(tables["curves"], bounds),
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


def _bounds(results: pl.DataFrame) -> list[str]:
    names = results["policy"].unique(maintain_order=True).to_list()
    return [name for name in names if name.startswith("belady")]


def why(misses: dict[str, Any]) -> Block:
    """The causes of misses, as `Attribution.as_dict` gives them: a chart."""
    rows = misses["rows"]
    causes = list(rows[0]["misses"])
    flat = [
        {
            "capacity": f"{row['capacity_blocks']:,} blocks",
            "policy": row["policy"]
            if row["group"] == "all"
            else f"{row['policy']}, {row['group']}",
            "cause": name,
            "place": place,
            "share": tokens / max(row["prompt_tokens"], 1),
        }
        for row in rows
        for place, (name, tokens) in enumerate(
            [
                ("hit", row["hit_tokens"]),
                *((cause, row["misses"][cause]["tokens"]) for cause in causes),
            ]
        )
        if tokens
    ]
    occur = {part["cause"] for part in flat}
    return Block(
        "Why prompts missed",
        [
            f"{cause}: {misses['definitions'][cause]}."
            for cause in causes
            if cause in occur
        ],
        charts.stacked(pl.DataFrame(flat), ["hit", *causes]),
        "Shares of the prompt tokens that hit or missed, by cause; the figures are in "
        "run.json under misses.",
    )


def _groups(groups: pl.DataFrame) -> list[Block]:
    """A table for each way of grouping, at the capacity where policies differ most."""
    of_groups = groups.filter(pl.col("by") != "all")
    if of_groups.is_empty():
        return []
    overall = groups.filter(pl.col("by") == "all")
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
