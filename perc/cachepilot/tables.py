"""What `perc bench` prints."""

from rich import box
from rich.table import Table

from perc.cachepilot.compare import Compared, Mean
from perc.cachepilot.evictor import Evicted
from perc.cachepilot.reference import Estimated
from perc.cachepilot.thrash import Thrashed


def compared_table(found: Compared) -> Table:
    """A row a policy: means over seeds, and half their intervals below."""
    table = _table(
        "policy",
        "recom-\npute, s",
        "TTFT\np50, s",
        "TTFT\np99, s",
        "TPOT\np95, ms",
        "end\ns",
        "evic-\ntions",
        "com-\npleted",
        "esti-\nmated, s",
    )
    n = len(found.seeds)
    for name in found.policies:
        runs = found.runs[name]
        means = [
            found.mean(name, key) for key in ("recompute_s", "ttft_p50_s", "ttft_p99_s")
        ]
        tpot = Mean(*(1000 * x for x in found.mean(name, "tpot_p95_s")))
        means += [tpot, found.mean(name, "end_s")]
        table.add_row(
            name,
            *(f"{one.mean:,.4g}\n±{(one.high - one.low) / 2:.2g}" for one in means),
            f"{sum(run.evictions for run in runs) / n:,.0f}",
            f"{sum(run.completed for run in runs) / n:,.0f}",
            f"{sum(run.estimated_s for run in runs) / n:,.1f}",
        )
    return table


def estimated_table(rows: list[tuple[int, Estimated]]) -> Table:
    """A row a seed and policy of the reference mode."""
    table = _table(
        "policy",
        "seed",
        "estimated\ncost, s",
        "events",
        "served",
        "at its\nend",
        "drop-\nped",
        "tokens",
        "at p = 1\ns",
    )
    for seed, row in rows:
        table.add_row(
            row.policy,
            str(seed),
            f"{row.cost_s:,.6f}",
            f"{row.evictions:,}",
            f"{row.served:,}",
            f"{row.reached:,}",
            f"{row.dropped:,}",
            f"{row.tokens:,}",
            f"{row.certain_cost_s:,.1f}",
        )
    return table


def thrashed_table(rows: list[tuple[int, Thrashed]]) -> Table:
    """A row a seed and policy."""
    table = _table(
        "policy",
        "seed",
        "realised\ns",
        "re-\nstores",
        "evic-\ntions",
        "com-\npleted",
        "tokens",
        "estimated\ns",
    )
    for seed, row in rows:
        table.add_row(
            row.policy,
            str(seed),
            f"{row.realised_s:,.3f}",
            f"{row.restores:,}",
            f"{row.evictions:,}",
            f"{row.completed:,}",
            f"{row.tokens:,}",
            f"{row.estimated_s:,.3f}",
        )
    return table


def evictor_table(rows: list[tuple[int, Evicted]]) -> Table:
    """A row a seed and order."""
    table = _table(
        "order",
        "seed",
        "estimated\ncost, s",
        "tokens\nfreed",
        "one draw of\nreturns, s",
    )
    for seed, row in rows:
        table.add_row(
            row.order,
            str(seed),
            f"{row.cost_s:,.6f}",
            f"{row.tokens:,}",
            f"{row.realised_s:,.1f}",
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
