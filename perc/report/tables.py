"""Tables for the terminal."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich import box
from rich.table import Table

from perc.compare import Comparison
from perc.report.verdict import lru_ratios
from perc.sampling import Estimate

Row = TypeVar("Row", bound=Any)


def policy_table(
    columns: Iterable[str], words: Iterable[str] = ("policy",), **look: Any
) -> Table:
    """An empty table of capacities, `words` that may break, and columns of figures.

    Args:
        columns: heads of the figures.
        words: heads of what stands between capacity and figures.
        look: of `rich.table.Table`: title, caption, ...
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, **look)
    table.add_column("blocks", justify="right", no_wrap=True)
    for name in words:
        table.add_column(name, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def by_capacity(table: Table, rows: Iterable[Row]) -> Iterator[tuple[Row, str]]:
    """Rows with the capacity that heads their section, "" below; adds the sections.

    Args:
        table: gets a section for each capacity.
        rows: sorted by their `capacity_blocks`.
    """
    above = None
    for row in rows:
        first = row.capacity_blocks != above
        if first and above is not None:
            table.add_section()
        above = row.capacity_blocks
        yield row, f"{row.capacity_blocks:,}" if first else ""


def comparison_table(result: Comparison) -> Table:
    """One section a capacity, one line a policy; what loses to LRU is marked."""
    costs = ("recompute\nM tokens", "recompute\ns")
    table = policy_table(
        ("block\nhits", "token\nhits", *costs, "gap\nclosed"),
        caption="gap closed: 0 % = LRU, 100 % = belady, or belady_bypass for a policy "
        "that may bypass; * = knows the future; red = worse than LRU",
    )
    lru = lru_ratios(result)
    for row, blocks in by_capacity(table, result.rows):
        loses = row.block_hit_ratio < lru[row.capacity_blocks]
        table.add_row(
            blocks,
            row.policy + ("*" if row.policy in result.clairvoyant else ""),
            f"{row.block_hit_ratio:.2%}",
            f"{row.token_hit_ratio:.2%}",
            f"{row.recompute_tokens / 1e6:,.2f}",
            f"{row.recompute_s:,.1f}",
            _gap(row.gap_closed),
            style="red" if loses else None,
        )
    return table


def _gap(closed: float | None) -> str:
    if closed is None:
        return "no gap"
    return "< -999%" if closed < -9.99 else f"{closed:+.1%}"


def estimate_table(sizes: list[int], found: dict[str, list[Estimate]]) -> Table:
    """Estimated block hit ratios and their standard errors, a column a policy."""
    caption = "block hit ratio, estimate +- standard error over samples"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, pad_edge=False)
    table.add_column("blocks", justify="right", no_wrap=True)
    for name in found:
        table.add_column(name, justify="right")
    for k, size in enumerate(sizes):
        cells = (estimates[k] for estimates in found.values())
        table.add_row(
            f"{size:,}",
            *(f"{e.block_hit_ratio:.2%} +- {e.standard_error:.2%}" for e in cells),
        )
    return table


def curve_table(result: Comparison) -> Table:
    """Block hit ratios, one line a capacity, one column a policy."""
    policies = list(dict.fromkeys(row.policy for row in result.rows))
    table = Table(box=box.SIMPLE_HEAD, caption="block hit ratio", pad_edge=False)
    table.add_column("blocks", justify="right", no_wrap=True)
    for name in policies:
        mark = "*" if name in result.clairvoyant else ""
        table.add_column(name + mark, justify="right")
    cells: dict[int, list[str]] = {}
    for row in result.rows:
        cells.setdefault(row.capacity_blocks, []).append(f"{row.block_hit_ratio:.2%}")
    for size, ratios in cells.items():
        table.add_row(f"{size:,}", *ratios)
    return table
