"""A tuning for the terminal: the scores, and whether they are worth it."""

from rich.table import Table

from perc.report.tables import by_capacity, policy_table
from perc.tune import Tuning
from perc.tune_verdict import Margin


def tuning_table(tuning: Tuning) -> Table:
    """One section a capacity, one line a contestant."""
    table = policy_table(
        ("training", "held\nout", "tuned is\nahead by", "gap\nclosed"),
        caption="shares in %; [ ]: 95 % interval of tuned - the line's policy; *: "
        "clairvoyant bound",
    )
    margins = {(m.over, m.capacity_blocks): m for m in tuning.judged.margins}
    for row, blocks in by_capacity(table, tuning.judged.rows):
        margin = margins.get((row.contestant, row.capacity_blocks))
        bound = row.contestant not in ("lru", "default", "tuned")
        table.add_row(
            blocks,
            row.contestant + ("*" if bound else ""),
            f"{100 * row.train:.2f}",
            f"{100 * row.held_out:.2f}",
            points(margin) if margin else "",
            "no gap" if row.gap_closed is None else f"{row.gap_closed:+.1%}",
        )
    return table


def sentences(tuning: Tuning) -> list[str]:
    """What was found, and whether to use it."""
    found = ", ".join(
        f"{key} = {value:g} (default {tuning.defaults[key]:g})"
        for key, value in tuning.parameters.items()
    )
    default, lru = map(tuning.judged.mean_margin, ("default", "lru"))
    if tuning.parameters == tuning.defaults:
        first = "Nothing better than the default parameters was found: keep them."
    elif default.low is None:
        first = f"Over the default {points(default)} points; no interval was asked for."
    elif default.low > 0:
        first = f"Worth it: over the default {points(default)} points on average."
    else:
        first = (
            f"Not worth it: over the default {points(default)} points on average, not "
            "clearly above 0. Keep the default parameters."
        )
    chosen = f"Chosen on the training part: {found}."
    return [chosen, first, _over_lru(lru, tuning), *_losses(tuning)]


def points(margin: Margin) -> str:
    """A difference in points, with its interval."""
    text = f"{100 * margin.value:+.2f}"
    if margin.low is None or margin.high is None:
        return text
    return f"{text} [{100 * margin.low:+.2f}, {100 * margin.high:+.2f}]"


def _over_lru(margin: Margin, tuning: Tuning) -> str:
    text = f"Over LRU, tuned {tuning.policy} is at {points(margin)} points on average"
    if margin.low is None or margin.high is None:
        return f"{text}."
    if margin.low > 0:
        return f"{text}: better than LRU."
    return f"{text}: not clearly above 0. Keep LRU."


def _losses(tuning: Tuning) -> list[str]:
    """Where the mean hides a loss: at one size, or in blocks instead of seconds."""
    behind = [
        f"{m.capacity_blocks:,} ({100 * m.value:+.2f})"
        for m in tuning.judged.margins
        if m.over == "default" and m.capacity_blocks is not None and (m.high or 0) < 0
    ]
    hits = {
        (r.contestant, r.capacity_blocks): r.block_hit_ratio for r in tuning.judged.rows
    }
    fewer = [
        f"{size:,} ({100 * (hits['tuned', size] - hits['lru', size]):+.2f} points)"
        for name, size in hits
        if name == "tuned" and hits["tuned", size] < hits["lru", size]
    ]
    return [
        *([f"Clearly behind the default at {', '.join(behind)}."] if behind else []),
        *([f"Fewer block hits than LRU at {', '.join(fewer)}."] if fewer else []),
    ]
