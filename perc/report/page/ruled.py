"""What a page says of a run of `perc compare --rules`."""

import polars as pl

from perc.report.page.cells import Block, Section, number, percent, points, table_of
from perc.report.page.compared import why
from perc.report.page.folders import Run

OVERALL = [
    ("capacity_blocks", "blocks", number),
    ("policy", "policy", str),
    ("without_block_hit_ratio", "block hits without", percent),
    ("block_hit_ratio", "with the rules", percent),
    ("gain", "gain, points", points),
    ("without_recompute_s", "recompute without, s", number),
    ("recompute_s", "with the rules, s", number),
]
OF_CLASSES = [
    ("capacity_blocks", "blocks", number),
    ("policy", "policy", str),
    ("name", "", str),
    ("requests", "requests", number),
    ("blocks", "blocks asked for", number),
    ("without", "block hits without", percent),
    ("with_rules", "with the rules", percent),
    ("gain", "gain, points", points),
]


def ruled(run: Run) -> Section:
    """All requests, then each rule, tenant and kind: who gains, who pays."""
    classes = run.tables["classes"].filter(pl.col("by") != "all")
    blocks = [
        Block(
            "With the rules and without",
            ["Both replay the same requests. Click a heading to sort."],
            tables=[table_of(run.tables["results"], "All requests", OVERALL)],
        )
    ]
    blocks += [
        Block(
            f"By {by}",
            tables=[
                table_of(
                    classes.filter(pl.col("by") == by),
                    f"Block hits by {by}",
                    [(k, heading or str(by), say) for k, heading, say in OF_CLASSES],
                )
            ],
        )
        for by in classes["by"].unique(maintain_order=True)
    ]
    if "misses" in run.about:
        blocks.append(why(run.about["misses"]))
    return Section(f"Rules on {run.source}", run, run.about["verdict"], blocks)
