"""From which probability of a return offloading pays, link by link."""

from rich import box
from rich.table import Table

from perc.plan import Plan


def break_even_table(plan: Plan) -> Table:
    """One row a link."""
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption="offloading pays above so many returns a write; 1 = each block once",
    )
    made.add_column("link", no_wrap=True)
    for name in ("move\nms", "compute\nms", "first\nblock", "middle\nblock"):
        made.add_column(name, justify="right", no_wrap=True)
    for row in plan.break_even:
        made.add_row(
            row.link,
            f"{1000 * row.write_s:.3g}",
            f"{1000 * row.recompute_middle_s:.3g}",
            _share(row.first),
            _share(row.middle),
        )
    return made


def returns_sentence(plan: Plan) -> str:
    """What this traffic's blocks do."""
    parts = [
        f"{row.share:.1%} of blocks used {'once' if row.uses == 1 else words}"
        for row in plan.returns
        if row.blocks
        for words in [f"{row.uses} times" + (" or more" if row.uses == 3 else "")]
    ]
    return f"Used again: {', '.join(parts)}."


def _share(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g}"
