"""The comparison with and without rules, for the terminal."""

from collections.abc import Iterator

from rich import box
from rich.table import Table

from perc.report.tables import by_capacity, policy_table
from perc.report.verdict import LEVEL
from perc.retention.report import RuleComparison, RuledRow

WIDTH = 5  # policies side by side


def rules_table(result: RuleComparison) -> Table:
    """One section a capacity, one line a policy; red where the rules cost hits."""
    hits = ("block hits\nwithout", "\nwith", "\ngain")
    table = policy_table(
        (*hits, "recompute s\nwithout", "\nwith"),
        caption="all requests, without rules and with them; gain in points; * = knows "
        "the future, but not the rules; red = the rules cost hits",
    )
    for row, blocks in by_capacity(table, result.rows):
        old, new = row.without, row.with_rules
        table.add_row(
            blocks,
            row.policy + ("*" if row.policy in result.clairvoyant else ""),
            f"{old.block_hit_ratio:.2%}",
            f"{new.block_hit_ratio:.2%}",
            _points(old.block_hit_ratio, new.block_hit_ratio, 2),
            f"{old.recompute_s:,.1f}",
            f"{new.recompute_s:,.1f}",
            style="red" if new.block_hit_ratio < old.block_hit_ratio else None,
        )
    return table


def class_tables(result: RuleComparison) -> Iterator[Table]:
    """What each class hits and each directive does, a column a policy."""
    sizes = list(dict.fromkeys(row.capacity_blocks for row in result.rows))
    names = list(dict.fromkeys(row.policy for row in result.rows))
    rows = {(row.capacity_blocks, row.policy): row for row in result.rows}
    for at in range(0, len(names), WIDTH):
        some = names[at : at + WIDTH]
        table = Table(
            box=box.SIMPLE_HEAD,
            caption="block hit ratio with rules in %, and the gain by them in points",
            pad_edge=False,
        )
        table.add_column("class", overflow="fold")
        for name in some:
            table.add_column(name, justify="right")
        for size in sizes:
            table.add_row(f"{size:,} blocks", style="bold")
            for label, *cells in _lines([rows[size, name] for name in some], result):
                table.add_row(label, *cells)
            table.add_section()
        yield table


def verdict(result: RuleComparison) -> list[str]:
    """For each policy, who gains most by the rules and who pays most for it."""
    found = []
    for name in dict.fromkeys(row.policy for row in result.rows):
        changes = [
            (one.with_rules - one.without, f"{one.by} {one.name}", row.capacity_blocks)
            for row in result.rows
            if row.policy == name
            for one in row.classes
            if one.by != "all" and one.blocks
        ]
        most = max(changes, default=(0.0, "", 0), key=lambda change: change[0])
        least = min(changes, default=(0.0, "", 0), key=lambda change: change[0])
        ends = (("gain most for", most), ("cost most for", least))
        parts = [
            f"{what} {who}, {points * 100:+.1f} points at {size:,} blocks"
            for what, (points, who, size) in ends
            if abs(points) >= LEVEL and (points > 0) == what.startswith("gain")
        ]
        said = " and ".join(parts) or "change no class by .05 points"
        found.append(f"{name}: the rules {said}.")
    return found


def _lines(rows: list[RuledRow], result: RuleComparison) -> Iterator[list[str]]:
    """Lines of one capacity: a class, and below it what its directives did."""
    for i, one in enumerate(rows[0].classes):
        cells = (row.classes[i] for row in rows)
        label = one.name if one.by == "all" else f"{one.by} {one.name}"
        yield [label, *(_hits(cell) for cell in cells)]
        if one.by == "rule":
            yield from _upkeep_lines(rows, one.name, result.gib_per_block)
        if one.by == "tenant":
            yield from _quota_lines(rows, one.name)
    names = {one.name for one in rows[0].classes if one.by == "rule"}
    for one in rows[0].rules:
        if one.rule not in names:
            yield [one.rule, *("" for _ in rows)]
            yield from _upkeep_lines(rows, one.rule, result.gib_per_block)


def _upkeep_lines(
    rows: list[RuledRow], name: str, gib_per_block: float | None
) -> Iterator[list[str]]:
    found = [next(one for one in row.rules if one.rule == name) for row in rows]
    unit = "block-s" if gib_per_block is None else "GiB-s"
    for what, key in (
        ("pinned blocks", "pinned_blocks"),
        ("pins refused", "pins_refused"),
        (f"held by pin, {unit}", "pin_block_s"),
        (f"held by ttl, {unit}", "ttl_block_s"),
        ("released early", "ttl_released_early"),
        (f"held by priority, {unit}", "priority_block_s"),
    ):
        values = [getattr(one, key) for one in found]
        if any(values):
            scale = gib_per_block if gib_per_block and key.endswith("_s") else 1
            yield [f"  {what}", *(_short(value * scale) for value in values)]


def _quota_lines(rows: list[RuledRow], name: str) -> Iterator[list[str]]:
    found = [one for row in rows for one in row.quotas if one.tenant == name]
    if found:
        peaks = (f"{_short(one.peak_blocks)}" for one in found)
        yield [f"  peak (quota {found[0].quota_blocks:,})", *peaks]
        yield ["  requests over it", *(_short(one.requests_over) for one in found)]


def _hits(one) -> str:
    return f"{one.with_rules:.1%}"[:-1] + f" {_points(one.without, one.with_rules, 1)}"


def _points(before: float, after: float, digits: int) -> str:
    gain = round((after - before) * 100, digits) + 0.0  # no -0
    return f"{gain:+.{digits}f}"


def _short(value: float) -> str:
    """At most six characters of a count.

    >>> [_short(x) for x in (0, 12.3, 9999, 12345, 4.56e6)]
    ['0', '12', '9,999', '12.3k', '4.6M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):,.1f}{letter}"
    return f"{value:,.0f}"
