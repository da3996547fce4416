"""`perc compare --rules FILE`: what retention rules gain, and what they cost."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, arg

from perc.cli.why import causes, print_json
from perc.errors import InputError

if TYPE_CHECKING:
    from perc.attribution import Attribution, Grouping
    from perc.retention import RuleComparison, Rules
    from perc.types import AnyPolicy, Trace


@dataclass(frozen=True)
class Ruling:
    """Retention rules, and what to do with them."""

    rules: Annotated[Path | None, arg(metavar="FILE")] = None
    """TOML file of retention rules: replay with them and without, and compare."""
    check: FlagCreatePairsOff[bool] = False
    """Only check the file of --rules, and say what it selects of TRACE."""
    bytes_per_token: Annotated[float | None, arg(metavar="FLOAT")] = None
    """Of keys and values, to count in GiB what rules hold; 131072 for Llama-3-8B."""


NO_RULES = Ruling()


def compare_with_rules(
    ruling: Ruling,
    open_it: "Callable[[], Trace] | None",
    policies: "list[AnyPolicy] | None",
    capacities: list[int | float],
    *,
    out: Path | None,
    command: Sequence[str],
    warmup: float,
    why: bool,
    why_by: "Grouping | None",
    as_json: bool,
) -> None:
    """Checks the rules, replays with and without them, and prints the comparison.

    Args:
        ruling: the flags.
        open_it: opens the trace; None where none was named and it would be made.
        policies: those to compare; None = the usual ones.
        capacities: blocks or shares of the working set.
        out: folder for run.json and the tables as parquet.
        command: how to get the same again.
        warmup: first share of the requests that only fills the cache.
        why: say why each policy missed, the rules among the causes.
        why_by: the same for each kind or turn.
        as_json: print one JSON object.

    Raises:
        InputError: if the file or the trace is not as it must be.
    """
    from perc.cli.compare import embedded_trace
    from perc.cli.progress import progress_bar
    from perc.retention import compare_rules, load_rules
    from perc.retention.report import RULED_POLICIES

    source = Path(str(ruling.rules))
    rules = load_rules(str(source))
    if ruling.check and out is not None:
        raise InputError("--check replays nothing, so it writes no --out.")
    if ruling.check:
        _print_check(ruling, rules, open_it() if open_it else None)
        return
    trace = open_it() if open_it else embedded_trace()
    if policies is None:
        print(
            "note: perc chooses victims by itself, so perc_decay stands in for it.",
            file=sys.stderr,
        )
    with progress_bar("replaying") as progress:
        result = compare_rules(
            trace,
            rules,
            policies,
            capacities,
            warmup=warmup,
            bytes_per_token=ruling.bytes_per_token,
            progress=progress,
        )
    misses = causes(
        trace,
        policies or RULED_POLICIES,
        capacities,
        why=why,
        why_by=why_by,
        warmup=warmup,
        ruled=result.hits,
    )
    if out is not None:
        from perc.report.ruled_folder import write_ruled_run

        written = write_ruled_run(
            out, result, trace, rules=source, command=command, misses=misses
        )
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    if as_json:
        print_json(result, misses)
    else:
        _print_tables(result, misses)


def refuse_without_rules(ruling: Ruling) -> None:
    """Refuses flags that only say something about rules.

    Raises:
        InputError: if one is given without `--rules`.
    """
    if ruling.rules is None and (ruling.check or ruling.bytes_per_token is not None):
        flag = "--check" if ruling.check else "--bytes-per-token"
        raise InputError(f"{flag} needs a file of rules: --rules rules.toml")


def _print_check(ruling: Ruling, rules: "Rules", trace: "Trace | None") -> None:
    from perc.retention.report import class_rows

    count = f"{len(rules.rules)} rule(s), {len(rules.tenants)} tenant(s)"
    print(f"{ruling.rules}: {count}, no mistakes")
    if trace is None:
        print("Name a trace as well to see what they select of it.")
        return
    nothing = trace.start * 0
    for row in class_rows(trace, rules, nothing, nothing, 0):
        if row.by in ("rule", "tenant"):
            print(
                f"  {row.by} {row.name}: {row.requests:,} of {trace.n_requests:,} "
                f"requests, {row.blocks:,} of {trace.n_accesses:,} block accesses"
            )
    print(f"  kinds of {trace.source}: {', '.join(sorted(trace.kinds))}")


def _print_tables(result: "RuleComparison", misses: "Attribution | None") -> None:
    from perc.report.console import plain_console
    from perc.report.miss_table import print_misses
    from perc.retention.tables import class_tables, rules_table, verdict

    console = plain_console()
    trace = result.trace
    console.print(
        f"{trace['source']}: {trace['requests']:,} requests, "
        f"{trace['block_accesses']:,} accesses of {trace['distinct_blocks']:,} "
        f"distinct blocks of {trace['block_tokens']} tokens.",
        markup=False,
    )
    console.print(rules_table(result))
    for table in class_tables(result):
        console.print(table)
    for sentence in verdict(result):
        console.print(sentence, markup=False)
    if misses:
        print_misses(console, misses)
    for name in ("rule", "tenant", "block_s", "gib_s", "counted"):
        if name in result.definitions:
            text = f"{name}: {result.definitions[name]}"
            console.print(text, style="dim", markup=False)
