"""What a page says of a plan and of a sweep."""

from typing import Any

import polars as pl

from perc.report.best import best_configurations
from perc.report.page import charts
from perc.report.page.cells import Block, Section, number, percent, table_of
from perc.report.page.folders import Run

MEANINGS = {
    "block hits": "blocks of the longest resident prefix / blocks looked up",
    "gap closed": "(policy - LRU) / (bound - LRU) in block hit ratio",
    "the bound": "belady, which knows the future, or belady_bypass for a policy that "
    "may refuse to store a block",
    "recompute": "seconds to prefill the prompt tokens that were not in the cache",
}


def planned(run: Run) -> Section:
    """Knees, needs and curves of a run of `perc plan`."""
    curve, about = run.tables["plan"], run.about
    summary = [
        f"{knee['policy']}: the knee is at {knee['capacity_gib']:,.1f} GiB "
        f"({knee['capacity_blocks']:,} blocks), where "
        f"{percent(knee['block_hit_ratio'])} of blocks hit; beyond it memory buys less."
        for knee in about["knees"]
    ]
    needs = pl.DataFrame(about["needs"], infer_schema_length=None)
    blocks = [
        Block(
            "What the next GiB is worth",
            ["Seconds of prefill saved in an hour of this traffic by one more GiB."],
            charts.lines(
                curve,
                "capacity_gib",
                "saved_s_per_gib_hour",
                ("capacity (GiB)", "seconds saved per GiB and hour"),
                log=True,
            ),
            "Value of the next GiB over capacity, a line a policy; the figures are in "
            "plan.parquet.",
            [
                table_of(
                    curve,
                    "The curve",
                    [
                        ("policy", "policy", str),
                        ("capacity_gib", "GiB", number),
                        ("capacity_blocks", "blocks", number),
                        ("block_hit_ratio", "block hits", percent),
                        ("token_hit_ratio", "token hits", percent),
                        ("recompute_s", "recompute, s", number),
                        ("saved_s_per_gib_hour", "next GiB saves, s/h", number),
                    ],
                )
            ],
        )
    ]
    if not needs.is_empty():
        columns = [
            ("policy", "policy", str),
            ("goal", "goal", str),
            ("target", "target", number),
            ("capacity_gib", "GiB needed", number),
            ("capacity_blocks", "blocks needed", number),
            ("of_lru", "of LRU's need", number),
        ]
        blocks.append(
            Block(
                "Memory for a target",
                ["The figures are in needs.parquet."],
                tables=[table_of(needs, "Memory for a target", columns)],
            )
        )
    return Section(f"Plan for {run.source}", run, summary, blocks)


def swept(run: Run) -> Section:
    """The best of each capacity in a run of `perc sweep`."""
    results = run.tables["results"]
    fixed = {"trace", "trace_sha256", "seed", "policy", "capacity_blocks", "warmup"}
    after = results.columns.index("policy") + 1
    named = results.columns[after : results.columns.index("capacity_blocks")]
    best = best_configurations(results)
    columns = [
        ("trace", "trace", str),
        ("capacity_blocks", "blocks", number),
        ("policy", "policy", str),
        *((name, name, _any) for name in named if name not in fixed),
        ("block_hit_ratio", "block hits", percent),
        ("lru_block_hit_ratio", "LRU's", percent),
        ("bound_block_hit_ratio", "the bound's", percent),
        ("gap_closed", "gap closed", percent),
        ("recompute_s", "recompute, s", number),
    ]
    traces = results.select("trace", "trace_sha256").unique(maintain_order=True)
    return Section(
        "Sweep",
        run,
        [
            f"{run.about['configurations']:,} configurations, {len(results):,} rows: "
            "one of each at each capacity."
        ],
        [
            Block(
                "Best configurations",
                ["At each capacity; bounds left out. results.parquet has all."],
                tables=[table_of(best, "Best configurations", columns)],
            )
        ],
        MEANINGS,
        ["perc sweep takes the grid that stands in sweep.json under grid."]
        + [f"{name}: sha256 {digest}." for name, digest in traces.iter_rows()],
    )


def _any(value: Any) -> str:
    return value if isinstance(value, str) else number(value)
