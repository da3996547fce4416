"""An explanation for the terminal: what counts, how it bends the worth, examples."""

from rich import box
from rich.table import Table

from perc.explanation import INPUTS, Example, Explanation
from perc.history import NEVER_S


def headline(found: Explanation) -> list[str]:
    """What the policy reaches beside LRU and the bound, and what the guard does."""
    gap = found.bound - found.lru
    closed = (
        f", {(found.block_hit_ratio - found.lru) / gap:.1%} of the gap"
        if gap > 0
        else ""
    )
    guard = found.guard
    whose = (
        "With its guard" if guard.stored else "It has no guard. With the default one"
    )
    return [
        f"At {found.capacity_blocks:,} blocks LRU hits {found.lru:.2%} of blocks, this "
        f"policy without a guard {found.block_hit_ratio:.2%}{closed}, the bound "
        f"{found.bound:.2%}.",
        f"{whose} it hits {guard.block_hit_ratio:.2%} and is trusted in "
        f"{guard.trusted:.1%} of the requests.",
        *found.notes,
    ]


def importance_table(found: Explanation) -> Table:
    """One line an input, the most important first; constant ones are left out."""
    table = _table("lost: points of block hit ratio if the input is shuffled")
    table.add_column("what it is", overflow="fold")
    _add_numbers(table, "lost", "lowest", "highest")
    for row in found.inputs:
        if not row.constant:
            lost = (f"{x:+.2f}" for x in (row.mean, row.low, row.high))
            table.add_row(row.input, INPUTS[row.input][1], *lost)
    return table


def importance_sentences(found: Explanation) -> list[str]:
    """What the table does not say by itself."""
    constant = [row.input for row in found.inputs if row.constant]
    sure = [row.input for row in found.inputs if row.low > 0]
    return [
        f"Missed in every shuffle: {', '.join(sure) or 'none'}.",
        *([f"The same in the whole trace: {', '.join(constant)}."] if constant else []),
    ]


def dependence_table(found: Explanation) -> Table:
    """Worth at the lowest, the middle and the highest value of each input."""
    table = _table("hits per block and minute of a block idle for so long, typical run")
    ages = found.dependence[0].ages_s if found.dependence else []
    _add_numbers(table, "if it were", *(f"idle {duration(age)}" for age in ages))
    for one in found.dependence:
        last = len(one.values) - 1
        shown = {quantity(one.input, one.values[v]): v for v in (last, last // 2, 0)}
        for text, v in reversed(shown.items()):
            worth = (f"{line[v]:.3g}" for line in one.worth)
            table.add_row(one.input if v == 0 else "", text, *worth)
        table.add_section()
    return table


def _table(caption: str) -> Table:
    """A table with a line or more for each input."""
    table = Table(box=box.SIMPLE_HEAD, caption=caption, pad_edge=False)
    table.add_column("input", no_wrap=True)
    return table


def _add_numbers(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def stories(found: Explanation) -> list[str]:
    """The examples, in words."""
    if not found.won and not found.lost:
        return ["No counted request was served otherwise than by LRU."]
    won = ["Largest gains over LRU:"] if found.won else ["It never gained over LRU."]
    lost = ["Largest losses to LRU:"] if found.lost else ["It never lost to LRU."]
    return [*won, *map(story, found.won), *lost, *map(story, found.lost)]


def story(e: Example) -> str:
    """What happened to one request."""
    return (
        f"- Request {e.request:,} (session {e.session}, turn {e.turn}, "
        f"{e.input_tokens:,} tokens): {e.hit_blocks:,} of {e.blocks:,} blocks were "
        f"there, under LRU {e.lru_hit_blocks:,}. What made the difference was last "
        f"used {duration(e.idle_s)} before, by request {e.last_request:,}. Then it was "
        f"thought worth {e.worth_then:.3g} hits per block and minute, more than "
        f"{e.below_then:.0%} of all blocks at use; at the end {e.worth_now:.3g}, more "
        f"than {e.below_now:.0%}."
    )


def quantity(name: str, value: float) -> str:
    """A value of an input with its unit."""
    unit = INPUTS[name][0]
    if unit == "s":
        return "never" if abs(value - NEVER_S) < 1 else duration(value)
    if unit == "share":
        return f"{value:.0%}"
    return f"{value:,.0f} {unit}" if unit == "tokens" else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
