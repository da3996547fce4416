"""`perc curve`: hit ratios at many capacities."""

import json as json_module
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.compare import POLICIES
from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.semantics import SEMANTICS

if TYPE_CHECKING:
    from perc.compare import Comparison

ALL, ALL_OTHERS = "all", 64
_SEMANTICS = arg(
    metavar="NAME",
    help="whose rules: " + "; ".join(f"{k}: {v.about}" for k, v in SEMANTICS.items()),
)


def curve(
    trace: Annotated[Positional[str | None], arg(metavar="[TRACE]")] = None,
    *,
    policies: Annotated[str, POLICIES] = "lru,perc,belady",
    capacities: Annotated[str, arg(metavar="SIZES")] = "",
    semantics: Annotated[str, _SEMANTICS] = "perc",
    warmup: float = 0.0,
    sample: Annotated[float | None, arg(metavar="RATE")] = None,
    json: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Hit ratios over cache size: LRU at every capacity, others on a grid.

    Args:
        trace: file of the trace; without one, synthetic chat traffic is made.
        policies: see POLICIES.
        capacities: sizes in blocks or shares, as in compare; "all" gives lru at every
            capacity and the others at 64 sizes; by default 16 sizes, evenly spread on
            a logarithmic axis.
        semantics: see _SEMANTICS.
        warmup: first share of the requests that only fills the cache, such as 0.5.
        sample: estimate block hit ratios from five samples of this share of the
            blocks each, such as 0.01, with their standard error; for traces that are
            too long to replay whole.
        json: print one JSON object, as compare does, instead of the table.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc import compare as run
    from perc.capacities import log_grid, parse_capacities
    from perc.cli.compare import embedded_trace
    from perc.cli.policies import parse_policies
    from perc.cli.progress import progress_bar
    from perc.compare import lru_everywhere
    from perc.semantics import under

    chosen, share = under(semantics, parse_policies(policies), warmup)
    sizes = parse_capacities(capacities) if capacities not in ("", ALL) else None
    traffic = embedded_trace() if trace is None else open_trace(trace, loading)
    if sizes is None:
        sizes = log_grid(traffic, ALL_OTHERS if capacities == ALL else 16)
    if sample is not None:
        _print_estimates(traffic, chosen, sizes, sample, share, json)
        return
    with progress_bar("replaying") as progress:
        result = run(traffic, chosen, sizes, warmup=share, progress=progress)
    result.definitions["semantics"] = SEMANTICS[semantics].about
    if capacities == ALL and "lru" in {policy.name for policy in chosen}:
        others = [row for row in result.rows if row.policy != "lru"]
        result.rows[:] = lru_everywhere(traffic, warmup=share) + others
    if json:
        print(json_module.dumps(result.as_dict(), allow_nan=False))
    elif capacities == ALL:
        _print_lines(result)
    else:
        _print_table(result)


def _print_estimates(traffic, chosen, sizes, rate, share, as_json) -> None:
    from perc.capacities import in_blocks
    from perc.metrics import warmup_requests
    from perc.report.console import plain_console
    from perc.report.tables import estimate_table
    from perc.sampling import SAMPLES, estimate

    skip, blocks = warmup_requests(traffic, share), in_blocks(traffic, sizes)
    found = {
        policy.name: estimate(policy, traffic, blocks, rate=rate, warmup_requests=skip)
        for policy in chosen
    }
    if as_json:
        rows = [
            {"policy": name, "capacity_blocks": size, **asdict(one)}
            for name, estimates in found.items()
            for size, one in zip(blocks, estimates, strict=True)
        ]
        about = f"{SAMPLES} disjoint samples, each {rate} of the blocks"
        print(json_module.dumps({"definitions": {"sample": about}, "rows": rows}))
        return
    plain_console().print(estimate_table(blocks, found))


def _print_table(result: "Comparison") -> None:
    from perc.report.console import plain_console
    from perc.report.tables import curve_table

    console = plain_console()
    console.print(curve_table(result))
    for name in ("semantics", "counted"):
        console.print(f"{name}: {result.definitions[name]}", style="dim", markup=False)


def _print_lines(result: "Comparison") -> None:
    """Too many for a table: plain columns that other programs read."""
    print("policy\tcapacity_blocks\tblock_hit_ratio\ttoken_hit_ratio")
    sys.stdout.writelines(
        f"{row.policy}\t{row.capacity_blocks}\t{row.block_hit_ratio:.6f}\t"
        f"{row.token_hit_ratio:.6f}\n"
        for row in result.rows
    )
