"""Tiers below the GPU as a table, and what they cost in waits."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from perc.report.serving_tables import Run
from perc.serving.metrics import duration_s
from perc.serving.tier_metrics import tier_rows

GIB = 2**30
COLUMNS = ("blocks\nheld", "hit\nblocks", "read\nGiB", "written\nGiB", "link\nreads")


def tiers_table(runs: Sequence[Run]) -> Table:
    """One row a tier, the GPU's cache first; a section a run."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("load", "policy", "tier"):
        made.add_column(name, overflow="fold")
    for name in (*COLUMNS, "writes"):
        made.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        served = run.served
        held = int(served.totals["size"])
        head, hits = [f"{run.load:g}", run.policy], int(served.hit_blocks.sum())
        made.add_row(*head, "GPU", f"{held:,}", f"{hits:,}", "", "", "", "")
        rows = tier_rows(served, duration_s(served))
        for row in rows:
            made.add_row(
                "",
                "",
                row["tier"],
                f"{row['resident_blocks']:,}",
                f"{row['hit_blocks']:,}",
                f"{row['read_bytes'] / GIB:,.1f}",
                f"{row['written_bytes'] / GIB:,.1f}",
                f"{row['read_share']:.1%}",
                f"{row['write_share']:.1%}",
                end_section=row is rows[-1],
            )
    return made


def tier_sentences(runs: Sequence[Run]) -> list[str]:
    """What requests and the engine waited for, a sentence a run."""
    found = []
    for run in runs:
        f, below = run.figures, run.served.below
        if below is None:
            continue
        many = int((below.wait_s > 0).sum())
        text = (
            f"{run.policy} at load {run.load:g}: {many:,} requests waited "
            f"{f['load_wait_s']:,.3g} s for loads, the engine did nothing else for "
            f"{f['load_stall_s']:,.3g} s."
        )
        if below.declined:
            offload = run.served.server.offload
            by_rule = offload is not None and offload.load == "recompute"
            why = "not loaded, by that rule" if by_rule else "quicker to compute"
            text += f" {below.declined:,} blocks were {why}."
        found.append(text)
    return found
