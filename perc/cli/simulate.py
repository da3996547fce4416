"""`perc simulate`: a trace through a server in simulated time, policy by policy."""

import json as json_module
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.cli.serving_flags import (
    ARRIVALS,
    INFINITE,
    LEVELS,
    MACHINE,
    RETAINING,
    SCHEDULING,
    TIERS,
    Arrivals,
    Levels,
    Machine,
    Retaining,
    Scheduling,
    Tiers,
)
from perc.cli.serving_setup import (
    arriving,
    check_arrivals,
    in_order,
    loads_of,
    order_note,
    server_of,
)

if TYPE_CHECKING:
    from perc.serving.settings import Server


def simulate(
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    *,
    policies: Annotated[str, arg(metavar="NAMES")] = "lru,perc_decay",
    price: Annotated[float | None, arg(metavar="HITS")] = None,
    machine: OmitArgPrefixes[Machine] = MACHINE,
    scheduling: OmitArgPrefixes[Scheduling] = SCHEDULING,
    arrivals: OmitArgPrefixes[Arrivals] = ARRIVALS,
    tiers: OmitArgPrefixes[Tiers] = TIERS,
    retaining: OmitArgPrefixes[Retaining] = RETAINING,
    levels: OmitArgPrefixes[Levels] = LEVELS,
    by: Literal["kind", "priority", "turn", "session"] | None = None,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Serve a trace in simulated time: TTFT, TPOT, goodput, recompute seconds.

    Args:
        trace: file of the trace.
        policies: comma list of policies that score a use or price idle blocks, such as
            lru,perc,workload_aware,perc_decay:tau_s=60, and policy files (x.npz).
        price: serve learned policies as fixed leases, asked at this price in hits per
            block and second; the dearer, the smaller the cache.
        machine: what serves.
        scheduling: how it schedules.
        arrivals: when requests come.
        tiers: memory below the GPU.
        retaining: shields for the prefixes of turns that have a next one.
        levels: what counts as good.
        by: tell TTFT of each class of requests, or tenant, too.
        json: print one JSON object instead of the table.
        out: for run.json, results, requests and series as parquet, and a chart.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc.cli.policies import parse_policies
    from perc.cli.progress import progress_bar
    from perc.files import check_writable
    from perc.report.run_folder import provenance
    from perc.report.serving_tables import flat, write_folder
    from perc.serving.metrics import Limits

    began = time.perf_counter()
    chosen = in_order(parse_policies(policies), price)
    loads = loads_of(arrivals.load)
    check_arrivals(arrivals)
    limits = Limits(levels.slo_ttft, levels.slo_tpot, levels.slo_e2e)
    if out is not None:
        check_writable(out)
    traffic = open_trace(trace, loading)
    cost, server = server_of(traffic, machine, scheduling, arrivals, tiers, retaining)
    note = order_note(traffic, scheduling.order)
    if note:
        print(f"note: {note}", file=sys.stderr)
    with progress_bar("serving") as progress:
        runs = _runs(
            traffic, chosen, loads, arrivals, server, cost, limits, by, progress
        )
    about = {
        **provenance(traffic, ["perc", *sys.argv[1:]]),
        "trace": traffic.source,
        "requests": traffic.n_requests,
        "machine": asdict(machine),
        "server": asdict(server),
        "arrivals": asdict(arrivals),
        "limits": {k: v for k, v in asdict(limits).items() if v < INFINITE},
        "notes": _said(runs, limits),
    }
    if out is not None:
        written = write_folder(out, runs, about)
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    if json:
        found = about | {"runs": [flat(run) for run in runs]}
        print(json_module.dumps(found, allow_nan=False))
    else:
        _print(runs, server, machine, limits, by)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _runs(traffic, chosen, loads, arrivals, server, cost, limits, by, progress) -> list:
    """Every policy at every load."""
    from perc.report.serving_tables import Run
    from perc.serving.laws import check_laws
    from perc.serving.metrics import by_group, intervals, summary
    from perc.serving.simulate import simulate as serve

    runs = []
    for load in loads:
        trace = arriving(traffic, arrivals, load)
        for policy in chosen:
            if progress:
                total = len(loads) * len(chosen)
                progress(len(runs), total, f"{policy.name} at {load:g}")
            served = serve(trace, policy, server, cost)
            check_laws(served)
            figures = summary(trace, served, cost, limits)
            sure = intervals(trace, served, cost, limits, seed=arrivals.seed)
            groups = by_group(trace, served, by) if by else {}
            runs.append(Run(load, policy.name, figures, sure, served, groups))
    return runs


def _print(runs, server: "Server", machine: Machine, limits, by) -> None:
    from perc.report.console import plain_console
    from perc.report.serving_tables import groups_table, runs_table
    from perc.report.tier_tables import tiers_table

    console = plain_console()
    console.print(
        f"{machine.model} on {machine.tp} x {machine.gpu}: "
        f"{server.capacity_blocks:,} blocks of KV cache, {server.token_budget:,} "
        f"tokens a step, {server.order}, {server.batching}",
        markup=False,
    )
    console.print(runs_table(runs))
    if by:
        console.print(groups_table(runs, by))
    if server.offload is not None and server.offload.used:
        console.print(tiers_table(runs))
    for sentence in _said(runs, limits):
        console.print(sentence, markup=False)
    console.print(
        "Simulated: costs of a roofline, not of a measured server. ±: half the 95 % "
        "bootstrap interval over sessions. recompute: prefill of what was computed "
        "before.",
        style="dim",
        markup=False,
    )


def _said(runs, limits) -> list[str]:
    """What needs saying beside the tables."""
    from perc.report.serving_tables import sentences
    from perc.report.tier_tables import tier_sentences

    return [
        *tier_sentences(runs),
        *_shield_sentences(runs),
        *sentences(runs, limits),
    ]


def _shield_sentences(runs) -> list[str]:
    """What retention did, a sentence a run."""
    return [
        f"{run.policy} at load {run.load:g}: {f['shields']:,} turns left a shield; "
        f"{f['shields_in_time']:,} next turns found one, {f['shields_late']:,} did "
        f"not; {f['shields_expired']:,} expired, {f['shields_released']:,} were broken "
        "for room."
        for run in runs
        if "shields" in (f := run.figures)
    ]
