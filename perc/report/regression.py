"""Two runs beside each other: what changed, and whether that is more than chance.

Runs of `perc compare` are judged by block hit ratios, runs of `perc simulate` by median
TTFT, goodput and recompute seconds. What both have is compared: equal policy and
capacity, or equal policy and load.

Where both replayed the same trace, a replay is exact: any change is one of perc or of
the policy. Elsewhere a change counts if it is larger than

    sqrt(h_old**2 + h_new**2)

with h half the width of each 95 % interval: the interval of a difference of two
independent estimates that are about normal. Two days of one server are independent;
two traces that share sessions are not, and then this misses small changes.
"""

from dataclasses import dataclass

import polars as pl
from rich import box
from rich.table import Table

from perc.errors import InputError
from perc.report.page.folders import Run

# By command: what rows are told apart by, and figures with 1 where more is better.
KEYS = {
    "compare": "capacity_blocks",
    "compare --rules": "capacity_blocks",
    "simulate": "load",
}
FIGURES = {
    "compare": {"block_hit_ratio": 1},
    "compare --rules": {"block_hit_ratio": 1},
    "simulate": {"ttft_s_p50": -1, "goodput_per_s": 1, "recompute_s": -1},
}
WORDS = {"capacity_blocks": "blocks", "load": "load"}
ENDS = {"ttft_s_p50": "ttft_p50_s"}  # whose interval has another name
EXACT = 1e-9  # relative; below it two sums of equal numbers may differ


@dataclass(frozen=True)
class Change:
    """Of one figure of one policy."""

    policy: str
    at: float  # blocks, or load
    figure: str
    old: float | None
    new: float | None
    verdict: str  # better, worse, same, or unsure: smaller than chance


@dataclass(frozen=True)
class Regression:
    """Of two runs."""

    key: str  # what `Change.at` is
    same_trace: bool
    changes: list[Change]
    gone: list[str]  # policies, and sizes or loads of them, of the old run only
    added: list[str]  # of the new run only

    @property
    def worse(self) -> list[Change]:
        """What got worse by more than chance."""
        return [change for change in self.changes if change.verdict == "worse"]


def compare_runs(old: Run, new: Run) -> Regression:
    """What changed from one run to the other.

    Raises:
        InputError: if they are of two commands, of one that is not compared, count
            other requests of one trace, or have no policy and capacity, or load, in
            common.
    """
    if old.command != new.command or old.command not in KEYS:
        raise InputError(
            f"{old.folder} is of perc {old.command}, {new.folder} of perc "
            f"{new.command}: give two runs of perc compare, two with --rules, or two "
            "of perc simulate."
        )
    key = KEYS[old.command]
    same = _trace_of(old) == _trace_of(new)
    counted = [run.about.get("definitions", {}).get("counted") for run in (old, new)]
    if same and counted[0] != counted[1]:
        raise InputError(
            f"{old.folder} counts {counted[0]}, {new.folder} {counted[1]}: give two "
            "runs with the same --warmup."
        )
    tables = [run.tables["results"] for run in (old, new)]
    joined = tables[0].join(tables[1], on=["policy", key], maintain_order="left")
    if joined.is_empty():
        raise InputError(
            f"{old.folder} and {new.folder} have no policy at the same {key} in "
            "common: there is nothing to compare."
        )
    changes = [
        _change(row, key, figure, sign, same)
        for row in joined.iter_rows(named=True)
        for figure, sign in FIGURES[old.command].items()
    ]
    gone, added = (_only(a, b, key) for a, b in (tables, tables[::-1]))
    return Regression(key, same, changes, gone, added)


def _only(some: pl.DataFrame, others: pl.DataFrame, key: str) -> list[str]:
    """Policies, and places of a policy that both have, which only `some` has."""
    alone = some.join(others, on=["policy", key], how="anti", maintain_order="left")
    both = set(others["policy"])
    found = [
        f"{row['policy']} at {row[key]:,g} {WORDS[key]}"
        if row["policy"] in both
        else row["policy"]
        for row in alone.iter_rows(named=True)
    ]
    return list(dict.fromkeys(found))


def _trace_of(run: Run) -> object:
    """What tells one trace from another."""
    return run.about.get("trace_sha256", run.folder)


def _change(row: dict, key: str, figure: str, sign: int, same: bool) -> Change:
    old, new = row[figure], row[f"{figure}_right"]
    verdict = "same"
    if old is None or new is None:
        verdict = "same" if old is new else "unsure"
    elif abs(new - old) > EXACT * max(abs(old), abs(new)):
        verdict = "better" if sign * (new - old) > 0 else "worse"
        if not same and abs(new - old) <= _chance(row, ENDS.get(figure, figure)):
            verdict = "unsure"
    return Change(row["policy"], row[key], figure, old, new, verdict)


def _chance(row: dict, name: str) -> float:
    """How large a difference of two samples may be by chance; infinite if unknown."""
    square = 0.0
    for side in ("", "_right"):
        low, high = (row.get(f"{name}_{end}{side}") for end in ("low", "high"))
        if low is None or high is None:
            return float("inf")
        square += ((high - low) / 2) ** 2
    return square**0.5


def changes_table(found: Regression) -> Table:
    """One line a figure, one section a capacity or load."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (WORDS[found.key], "policy", "figure"):
        made.add_column(name, overflow="fold")
    for name in ("old", "new", "change"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    for i, change in enumerate(found.changes):
        following = found.changes[i + 1 : i + 2]
        made.add_row(
            f"{change.at:,g}",
            change.policy,
            change.figure,
            *_cells(change),
            change.verdict,
            style={"worse": "red", "better": "green"}.get(change.verdict),
            end_section=any(other.at != change.at for other in following),
        )
    return made


def _cells(change: Change) -> list[str]:
    old, new = change.old, change.new
    if old is None or new is None:
        return ["-" if v is None else f"{v:.4g}" for v in (old, new)] + [""]
    if change.figure.endswith("ratio"):
        points = 100 * (new - old)
        return [f"{old:.2%}", f"{new:.2%}", f"{points:+.2f} points"]
    share = f"{new / old - 1:+.1%}" if old else ""
    return [f"{old:,.4g}", f"{new:,.4g}", share]


def words_of(found: Regression) -> list[str]:
    """What the table means, in sentences."""
    how = (
        "Both replayed the same trace: every change is one of perc, the policy or the "
        "settings, and none is chance."
        if found.same_trace
        else "The runs are of different traces: a change within the 95 % interval of a "
        "difference of independent samples is called unsure."
    )
    only = [
        f"The {which} run alone has {', '.join(names)}."
        for which, names in (("old", found.gone), ("new", found.added))
        if names
    ]
    n = len(found.worse)
    end = "What both have did not get worse." if found.gone else "Nothing got worse."
    if n:
        end = f"{n} of {len(found.changes)} figures got worse."
    return [how, *only, end]
