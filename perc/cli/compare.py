"""`perc compare`: the main job, as a table for people or JSON for programs."""

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.changes import compare_two_runs
from perc.cli.estimated import ESTIMABLE, PUBLISHED, Published, tell_estimates
from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.cli.rules import NO_RULES, Ruling, compare_with_rules, refuse_without_rules
from perc.cli.unused import changed, refuse
from perc.cli.why import causes, print_json
from perc.compare import DEFAULT_POLICIES
from perc.errors import InputError
from perc.policies.registry import registry

if TYPE_CHECKING:
    from perc.attribution import Attribution
    from perc.compare import Comparison
    from perc.types import Trace


POLICIES = arg(
    metavar="NAMES",
    help=f"names from: {', '.join(registry)}. Parameters follow colons: "
    "lru,perc_decay:tau_s=60,belady. A name that ends in .npz is a policy file.",
)


def compare(
    traces: Annotated[
        Positional[tuple[str, ...]], arg(metavar="[TRACE | RUN RUN]")
    ] = (),
    *,
    policies: Annotated[str, POLICIES] = ",".join(DEFAULT_POLICIES),
    capacities: Annotated[str, arg(metavar="SIZES")] = "1%,2%,5%,10%,25%",
    warmup: float = 0.0,
    why: FlagCreatePairsOff[bool] = False,
    why_by: Literal["kind", "turn"] | None = None,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    ruling: OmitArgPrefixes[Ruling] = NO_RULES,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
    published: OmitArgPrefixes[Published] = PUBLISHED,
) -> None:
    """Compare eviction policies on a trace: what each hits, how far from the bound.

    Args:
        traces: file of the trace; without one, synthetic chat traffic is made. Two
            folders of --out: what changed between the runs; exits with 1 if something
            got worse by more than chance.
        policies: see POLICIES.
        capacities: cache sizes in blocks (4096) or shares of the distinct blocks
            (0.05 or 5%).
        warmup: first share of the requests that only fills the cache, such as 0.5.
        why: say why each policy missed: never seen, too little memory, the policy.
        why_by: the same for each kind of request, or for each turn.
        json: print one JSON object instead of the table.
        out: for run.json, results.parquet and the miss-ratio curves.
        ruling: retention rules to compare with.
        loading: how to read the trace.
        published: CachePilot's experiment instead of a trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc import compare as run
    from perc.capacities import parse_capacities
    from perc.cli.policies import parse_policies
    from perc.cli.progress import progress_bar
    from perc.files import check_writable

    given = {"capacities": capacities, "warmup": warmup, "why": why}
    given |= {"why_by": why_by, "out": out, "ruling": ruling, "loading": loading}
    if published.mode == "estimated":
        _refuse_replayed(traces, changed(compare, given))
        named = ESTIMABLE if policies == ",".join(DEFAULT_POLICIES) else policies
        return tell_estimates(named, published, as_json=json)
    refuse(
        changed(compare, {"published": published}),
        "a replayed trace",
        remedy="leave it out, or take --mode estimated",
    )
    if len(traces) > 1:
        if out is not None:
            raise InputError("--out does not go with two runs: redirect the table.")
        given |= {"policies": policies, "json": json}
        refuse(changed(compare, given), "two runs, which tell what they replayed")
        return compare_two_runs(traces)
    trace = traces[0] if traces else None
    began = time.perf_counter()
    chosen, sizes = parse_policies(policies), parse_capacities(capacities)
    refuse_without_rules(ruling)
    if out is not None and not ruling.check:
        check_writable(out)
    if ruling.rules is not None:
        usual = policies == ",".join(DEFAULT_POLICIES)
        named = None if usual else policies
        compare_with_rules(
            ruling,
            None if trace is None else lambda: open_trace(trace, loading),
            None if usual else chosen,
            sizes,
            out=out,
            command=_command(
                trace, named, capacities, warmup, why, why_by, ruling, loading
            ),
            warmup=warmup,
            why=why,
            why_by=why_by,
            as_json=json,
        )
        print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        return
    traffic = embedded_trace() if trace is None else open_trace(trace, loading)
    with progress_bar("replaying") as progress:
        result = run(
            traffic,
            chosen,
            sizes,
            warmup=warmup,
            keep_hits=out is not None,
            progress=progress,
        )
    misses = causes(traffic, chosen, sizes, why=why, why_by=why_by, warmup=warmup)
    _say_notes(traffic, result)
    if out is not None:
        from perc.report.run_folder import write_run

        with progress_bar("drawing") as progress:
            written = write_run(
                out,
                result,
                traffic,
                chosen,
                command=_command(
                    trace, policies, capacities, warmup, why, why_by, ruling, loading
                ),
                warmup=warmup,
                misses=misses,
                progress=progress,
            )
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    if json:
        print_json(result, misses)
    else:
        _print_table(result, misses, embedded=trace is None)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _refuse_replayed(traces: tuple[str, ...], given: dict[str, Any]) -> None:
    where = "--mode estimated, which makes CachePilot's own traffic"
    if traces:
        raise InputError(
            f"{traces[0]}: not read in {where}; leave it out, or take --mode replay."
        )
    refuse(given, where, remedy="leave it out, or take --mode replay")


def _command(
    trace: str | None,
    policies: str | None,
    capacities: str,
    warmup: float,
    why: bool,
    why_by: str | None,
    ruling: Ruling,
    loading: Loading,
) -> list[str]:
    """The command that gives the same again, every flag resolved."""
    words = ["perc", "compare", *([] if trace is None else [trace])]
    flags = {"policies": policies, "capacities": capacities, "warmup": warmup}
    flags |= {"why-by": why_by, "rules": ruling.rules}
    flags["bytes-per-token"] = ruling.bytes_per_token
    words += ["--why"] if why else []
    for name, value in {**flags, **asdict(loading)}.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def embedded_trace() -> "Trace":
    """The traffic of a command that was given no trace."""
    from perc.workloads import make

    print("no trace given: making synthetic chat traffic", file=sys.stderr)
    return make("chat")


def _say_notes(trace: "Trace", result: "Comparison") -> None:
    names = {row.policy.split(":")[0] for row in result.rows}
    if "priority" in names and not trace.priority.any():
        print("note: the trace has no priorities: priority is lru.", file=sys.stderr)
    small = [
        size
        for size in dict.fromkeys(row.capacity_blocks for row in result.rows)
        if size < trace.longest_request
    ]
    if small:
        sizes = ", ".join(f"{size:,}" for size in small)
        print(
            f"note: caches of {sizes} blocks are smaller than the longest request "
            f"({trace.longest_request:,} blocks); one that does not fit keeps its "
            "first blocks.",
            file=sys.stderr,
        )


def _print_table(
    result: "Comparison", misses: "Attribution | None", *, embedded: bool
) -> None:
    from perc.report.console import plain_console
    from perc.report.miss_table import print_misses
    from perc.report.tables import comparison_table
    from perc.report.verdict import verdict

    console = plain_console()
    trace = result.trace
    console.print(
        f"{trace['source']}: {trace['requests']:,} requests, "
        f"{trace['block_accesses']:,} accesses of {trace['distinct_blocks']:,} "
        f"distinct blocks of {trace['block_tokens']} tokens. Of the counted ones an "
        f"infinite cache hits {trace['ideal_counted_block_hit_ratio']:.1%}.",
        markup=False,
    )
    console.print(comparison_table(result))
    for sentence in verdict(result):
        console.print(sentence, markup=False)
    if misses:
        print_misses(console, misses)
    for name in ("recompute_s", "counted"):
        console.print(f"{name}: {result.definitions[name]}", style="dim", markup=False)
    if embedded:
        console.print(
            "\nNext: perc compare YOUR_TRACE, perc inspect YOUR_TRACE, or add "
            "--out run for charts. perc compare --help lists the rest.",
            markup=False,
        )
