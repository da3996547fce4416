"""What do the parameters of `perc_decay` change, and where does it lose to LRU?

    python benchmarks/perc_parameters.py [TRACE ...] [--capacities 1000,5%]

For each trace and capacity: block hit ratio and recompute seconds of it for every
`tau_s` and `cost_weight`, beside LRU, LFU and the clairvoyant bound (Belady: a bound
for hits, for recompute seconds only something to compare with). The first half of the
requests fills the cache and is not counted. Below each table: where LRU does better.

The docstring of `perc.policies.perc_decay` rests on these tables.
"""

import inspect
from pathlib import Path

import common
import numpy as np
import tyro
from rich.table import Table

import perc
from perc.capacities import in_blocks, parse_capacities
from perc.cost import DEFAULT_COST
from perc.features import features
from perc.metrics import Metrics, measure, warmup_requests
from perc.policies.registry import registry
from perc.ranks import scores_from
from perc.types import Policy, Trace

TAU_S = (0.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0)
COST_WEIGHTS = (0.0, 0.25, 0.5, 1.0)
WARMUP = 0.5
BESIDE = ("lru", "lfu", "belady")
_PARAMETERS = inspect.signature(registry["perc_decay"]).parameters
DEFAULT = (_PARAMETERS["tau_s"].default, _PARAMETERS["cost_weight"].default)
Found = dict[str | tuple[float, float], list[Metrics]]  # by policy, one a capacity


def main(
    traces: tyro.conf.Positional[tuple[Path, ...]] = (),
    *,
    capacities: str = "1%,2%,5%,10%,25%",
    block_tokens: int | None = None,
) -> None:
    """Varies the parameters of `perc_decay`.

    Args:
        traces: files of traces; without one, the embedded chat traffic.
        capacities: blocks or shares of the working set, as for `perc compare`.
        block_tokens: tokens of a block, where the files do not tell.
    """
    traffic = [common.open_trace(path, block_tokens) for path in traces or (None,)]
    common.print_conditions(*traffic, seed=0)
    common.say(
        f"counted   all but the first {WARMUP:.0%} of the requests; "
        f"seconds: {DEFAULT_COST.name}"
    )
    for trace in traffic:
        sizes = in_blocks(trace, parse_capacities(capacities))
        found = run_all(trace, sizes)
        common.console.print(parameter_table(trace, sizes, found))
        print_losses(sizes, found)


def run_all(trace: Trace, sizes: list[int]) -> Found:
    """Every policy at every size; the features of `perc_decay` are computed once."""
    found: Found = {}
    for name in BESIDE:
        policy = registry[name]()
        found[name] = run(trace, policy, perc.scores(policy, trace), sizes)
    values = features(trace, registry["perc_decay"]().uses)
    for tau_s in TAU_S:
        for weight in COST_WEIGHTS:
            if tau_s == 0 and weight > 0:  # the score is the time alone
                found[tau_s, weight] = found[tau_s, 0.0]
                continue
            policy = registry["perc_decay"](tau_s=tau_s, cost_weight=weight)
            score = scores_from(policy, trace, values)
            found[tau_s, weight] = run(trace, policy, score, sizes)
    return found


def run(
    trace: Trace, policy: Policy, score: np.ndarray, sizes: list[int]
) -> list[Metrics]:
    """What one policy reaches at each size."""
    order = perc.ranks(trace, score)
    hits = perc.replay(trace, order, sizes, refresh=policy.refresh).blocks
    skip = warmup_requests(trace, WARMUP)
    return [measure(trace, np.asarray(row), warmup_requests=skip) for row in hits]


def parameter_table(trace: Trace, sizes: list[int], found: Found) -> Table:
    """One section a capacity: hit ratios to the left, seconds to the right."""
    weights = [f"cw {weight:g}" for weight in COST_WEIGHTS]
    table = common.table(
        f"{trace.source}\nblock hits in %, then recompute seconds; rows tau_s, columns "
        "cost_weight; * worse than LRU",
        "at blocks",
        *weights,
        *weights,
    )
    for k, size in enumerate(sizes):
        lru = found["lru"][k]
        for name in BESIDE:
            cells = [cell(found[name][k], lru)]
            table.add_row(f"{size:,} {name}", *_side_by_side(cells))
        for tau_s in TAU_S:
            cells = [cell(found[tau_s, weight][k], lru) for weight in COST_WEIGHTS]
            table.add_row(f"{size:,} tau_s {tau_s:g}", *_side_by_side(cells))
        table.add_section()
    return table


def cell(metrics: Metrics, lru: Metrics) -> tuple[str, str]:
    """Hit ratio and seconds; a star where LRU does better."""
    fewer = metrics.block_hit_ratio < lru.block_hit_ratio
    slower = metrics.recompute_s > lru.recompute_s
    return (
        f"{metrics.block_hit_ratio:.2%}"[:-1] + ("*" if fewer else " "),
        f"{metrics.recompute_s:,.1f}" + ("*" if slower else " "),
    )


def _side_by_side(cells: list[tuple[str, str]]) -> list[str]:
    empty = [("", "")] * (len(COST_WEIGHTS) - len(cells))
    return [text for column in zip(*cells, *empty, strict=True) for text in column]


def print_losses(sizes: list[int], found: Found) -> None:
    """One line a capacity: how many pairs lose to LRU, and by how much at worst."""
    pairs = [(tau_s, weight) for tau_s in TAU_S for weight in COST_WEIGHTS]
    for k, size in enumerate(sizes):
        lru = found["lru"][k]
        hits = {p: found[p][k].block_hit_ratio - lru.block_hit_ratio for p in pairs}
        slower = {p: found[p][k].recompute_s / lru.recompute_s - 1 for p in pairs}
        fewest, slowest = (
            min(hits, key=hits.__getitem__),
            max(slower, key=slower.__getitem__),
        )
        common.say(
            f"at {size:,}, pairs (tau_s, cost_weight) worse than LRU: "
            f"in hits {sum(x < 0 for x in hits.values())} of {len(pairs)}, down to "
            f"{100 * hits[fewest]:+.3f} points {fewest}; "
            f"in seconds {sum(x > 0 for x in slower.values())}, up to "
            f"{slower[slowest]:+.3%} {slowest}; the default {DEFAULT}: "
            f"{100 * hits[DEFAULT]:+.3f} points, seconds {slower[DEFAULT]:+.3%}"
        )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
