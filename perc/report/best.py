"""Which configuration of a sweep hits most."""

import polars as pl


def best_configurations(table: pl.DataFrame) -> pl.DataFrame:
    """The one that hits most, by trace and capacity, bounds left out.

    Args:
        table: of `perc.sweep.sweep`.
    """
    return (
        table.filter(~pl.col("policy").str.starts_with("belady"))
        .sort("block_hit_ratio", descending=True, maintain_order=True)
        .group_by("trace", "capacity_blocks", maintain_order=True)
        .first()
        .sort("trace", "capacity_blocks")
    )
