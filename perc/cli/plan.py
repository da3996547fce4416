"""`perc plan`: how much cache a workload needs, and what the next GiB would buy."""

import json as json_module
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.bootstrap import RESAMPLES
from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.plan import DEFAULT_POLICIES, LLAMA_3_8B_BYTES_PER_TOKEN
from perc.plan_break_even import DEFAULT_LINKS

if TYPE_CHECKING:
    from perc.plan import Plan


def plan(
    trace: Annotated[Positional[str | None], arg(metavar="[TRACE]")] = None,
    *,
    target: Annotated[float | None, arg(metavar="RATIO")] = None,
    token_target: Annotated[float | None, arg(metavar="RATIO")] = None,
    ttft_budget: Annotated[float | None, arg(metavar="SECONDS")] = None,
    ttft_percentile: float = 95.0,
    bytes_per_token: float = LLAMA_3_8B_BYTES_PER_TOKEN,
    policies: Annotated[str, arg(metavar="NAMES")] = ",".join(DEFAULT_POLICIES),
    capacities: Annotated[str | None, arg(metavar="SIZES")] = None,
    warmup: float = 0.0,
    links: Annotated[str, arg(metavar="NAMES")] = ",".join(DEFAULT_LINKS),
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Plan a cache: the memory for a target, the knee, the value of the next GiB.

    Args:
        trace: file of the trace; without one, synthetic chat traffic is made.
        target: block hit ratio to reach, such as 0.3; without any target, 50, 80 and
            95 % of the hits of a cache that holds everything.
        token_target: token hit ratio to reach.
        ttft_budget: seconds for the prefill of what is not cached, without a queue.
        ttft_percentile: of the requests that must keep the budget.
        bytes_per_token: 2 * layers * KV heads * head size * bytes of a number; the
            default is Llama-3-8B at 16 bits.
        policies: as for perc compare.
        capacities: of the curve, in blocks (4096) or shares of the distinct blocks
            (0.05 or 5%); by default 32 from the longest request to all blocks.
        warmup: first share of the requests that only fills the cache, such as 0.5.
        links: to memory below the GPU: from which probability of a return on
            offloading pays; such as pcie5,rdma-400g,nvme4.
        bootstrap: samples of sessions for the intervals, 0 for none.
        seed: of those samples.
        json: print one JSON object instead of the tables.
        out: for plan.json, plan.parquet and the charts.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc.capacities import parse_capacities
    from perc.cli.compare import embedded_trace
    from perc.cli.policies import parse_policies
    from perc.cli.progress import progress_bar
    from perc.plan import plan as run

    began = time.perf_counter()
    chosen = parse_policies(policies)
    sizes = None if capacities is None else parse_capacities(capacities)
    traffic = embedded_trace() if trace is None else open_trace(trace, loading)
    with progress_bar("replaying") as progress:
        result = run(
            traffic,
            chosen,
            target_hit_ratio=target,
            target_token_hit_ratio=token_target,
            ttft_budget_s=ttft_budget,
            ttft_percentile=ttft_percentile,
            bytes_per_token=bytes_per_token,
            capacities=sizes,
            links=links.split(","),
            warmup=warmup,
            bootstrap=bootstrap,
            seed=seed,
            progress=progress,
        )
    if result.trace["sessions"] < FEW_SESSIONS and bootstrap:
        print(
            f"note: {result.trace['sessions']} sessions are few: the intervals are "
            "too narrow.",
            file=sys.stderr,
        )
    if out is not None:
        from perc.report.plan_chart import write_plan

        command = ["perc", *sys.argv[1:]]
        written = write_plan(out, result, traffic, command=command)
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    if json:
        print(json_module.dumps(result.as_dict(), allow_nan=False))
    else:
        _print(result)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


FEW_SESSIONS = 30  # below it, resampling says too little about other sessions


def _print(plan: "Plan") -> None:
    from perc.report.break_even_table import break_even_table, returns_sentence
    from perc.report.console import plain_console
    from perc.report.plan_tables import curve_table, needs_table, sentences

    console = plain_console()
    trace = plan.trace
    console.print(
        f"{trace['source']}: {trace['requests']:,} requests of {trace['sessions']:,} "
        f"sessions, {trace['distinct_blocks']:,} distinct blocks. A cache that holds "
        f"everything hits {plan.ideal_block_hit_ratio:.1%} of blocks.",
        markup=False,
    )
    if plan.ideal_block_hit_ratio:
        console.print(needs_table(plan))
        console.print(curve_table(plan))
    console.print(break_even_table(plan))
    console.print(returns_sentence(plan), markup=False)
    for sentence in sentences(plan):
        console.print(sentence, markup=False)
    for name in ("capacity_gib", "ttft", "knee", "break_even", "interval", "counted"):
        console.print(f"{name}: {plan.definitions[name]}", style="dim", markup=False)
