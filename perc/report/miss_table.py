"""Why each policy missed, for the terminal."""

from rich.console import Console
from rich.table import Table

from perc.attribution import CAUSES, Attribution
from perc.metrics import ratio
from perc.report.tables import by_capacity, policy_table

ALWAYS_SHOWN = ("policy", "capacity", "cold")


def miss_table(found: Attribution) -> Table:
    """Shares of the prompt tokens: what hit, and what missed by which cause.

    One section a capacity, one line a policy and group; a line sums to 100 %. The
    causes `hybrid`, `retention` and `rounding` have a column only where they occur.
    """
    grouped = any(row.group != "all" for row in found.rows)
    causes = shown_causes(found)
    table = policy_table(
        ("\nhit", *(f"miss:\n{cause}" for cause in causes)),
        ("policy", "group") if grouped else ("policy",),
        title="Why it missed, % of prompt tokens",
        title_justify="left",
        collapse_padding=True,
    )
    for row, blocks in by_capacity(table, found.rows):
        tokens = (row.hit_tokens, *(row.misses[cause].tokens for cause in causes))
        table.add_row(
            blocks,
            row.policy,
            *([row.group] if grouped else []),
            *(f"{100 * ratio(part, row.prompt_tokens):.2f}" for part in tokens),
        )
    return table


def print_misses(console: Console, found: Attribution) -> None:
    """Prints the table, and what its columns mean."""
    console.print(miss_table(found))
    for sentence in explanations(found):
        console.print(sentence, style="dim", markup=False)


def explanations(found: Attribution) -> list[str]:
    """What the columns of `miss_table` mean, a sentence each."""
    return [f"{cause}: {found.definitions[cause]}." for cause in shown_causes(found)]


def shown_causes(found: Attribution) -> list[str]:
    """The causes that occur, and those that are always looked for."""
    return [
        cause
        for cause in CAUSES
        if cause in ALWAYS_SHOWN or any(row.misses[cause].tokens for row in found.rows)
    ]
