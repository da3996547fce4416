"""How much CPU do 1,000 capacities cost, beside kvcache-simulator's C++?

    python benchmarks/kvcache_simulator.py [TRACE]

Under its rules: longest prefix, token-weighted, last half of the requests, an optimum
that may bypass. For lru and optimal the hit tokens at every capacity are asserted equal
before anything is timed. Its fifo keeps the running request's path, which perc's
bypassing fifo does not; the share of equal capacities is printed. CPU seconds of the
process and its children; compilation is not in perc's time, reading the trace in
neither. Bars: lru 100 times less, optimal 3 times less, fifo no more.
"""

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import common
import numpy as np
import peer_kvcache
import tyro

import perc
from perc.evaluate import evaluate
from perc.lanes import fifo_curve
from perc.metrics import warmup_requests
from perc.policies.registry import registry
from perc.types import Trace

UNCOUNTED = 0.5
BARS = {"lru": 100.0, "optimal": 3.0, "fifo": 1.0}


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    points: int = 1_000,
    repeats: int = 3,
) -> None:
    """Times both sides.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        points: capacities.
        repeats: timed runs of perc; the other side runs once.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=0, peers=("kvcache-simulator",))
    if not peer_kvcache.ready():
        return
    skip = warmup_requests(traffic, UNCOUNTED)
    sizes = peer_kvcache.sizes_that_fill(traffic, skip, points)
    columns = ("capacities", "equal", "perc s", "kvcache-simulator s", "ratio", "bar")
    table = common.table("CPU seconds, perc: minimum / median", "policy", *columns)
    for name, bar in BARS.items():
        own = own_hits(name, traffic, sizes, skip)
        theirs: list[np.ndarray] = []
        other = cpu_s(
            lambda name=name, theirs=theirs: theirs.append(
                peer_kvcache.hit_tokens(traffic, name, sizes, skip)
            )
        )
        equal = float((own() == theirs[0]).mean())  # compiles, too
        assert name == "fifo" or equal == 1.0, name
        mine = common.repeat(own, repeats)
        ratio = other / min(mine)
        holds = "holds" if ratio >= bar else "DOES NOT HOLD"
        table.add_row(
            name,
            f"{len(sizes):,}",
            f"{equal:.0%}",
            common.min_median(mine, digits=3),
            f"{other:.2f}",
            f"{ratio:,.1f}",
            f"{bar:g} {holds}",
        )
    common.console.print(table)


def own_hits(
    name: str, trace: Trace, sizes: list[int], skip: int
) -> Callable[[], np.ndarray]:
    """perc's side: hit tokens i64[K] by the cheapest exact way."""
    if name == "lru":
        return lambda: perc.lru_curve(
            trace, weights=trace.tokens, warmup_requests=skip
        )[sizes]
    if name == "fifo":
        return lambda: fifo_curve(
            trace, sizes, weights=trace.tokens[None], warmup_requests=skip
        )[0]
    asked = int(trace.input_tokens[skip:].sum(dtype=np.int64))
    optimum = replace(registry["belady"](), bypass=True)

    def optimal() -> np.ndarray:
        found = evaluate(optimum, trace, sizes, warmup_requests=skip)
        return np.array([asked - metrics.recompute_tokens for metrics in found])

    return optimal


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process and its children during `work`."""

    def used() -> float:
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        usages = [resource.getrusage(w) for w in who]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before = used()
    work()
    return used() - before


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
