"""How long does LRU at all capacities take, beside one run a capacity?

    python benchmarks/lru_curve.py [TRACE]

`perc.lru_curve` gives the hits at every capacity in one pass. Beside it, one run a
capacity:

(a) `perc.replay`, hits in blocks over the whole trace;
(b) kvcache-simulator's C++, with its own rules: hits of the longest prefix in tokens
    over the last half of the requests, at capacities that hold the longest request and
    are full before that half begins.

The hits at every capacity of the other way are asserted equal to the curve's. Nothing
of compilation is in the times. Bar: the curve below 0.05 CPU s.
"""

import importlib
from pathlib import Path

import common
import numpy as np
import tyro
from rich.table import Table

import perc
from perc.metrics import warmup_requests
from perc.policies.registry import registry
from perc.types import Trace

BAR_S = 0.05
UNCOUNTED = 0.5  # share of the requests that kvcache-simulator leaves out, the first


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    points: int = 1_000,
    repeats: int = 9,
) -> None:
    """Times the curve beside one run a capacity.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        points: capacities of the other ways, each of which runs once.
        repeats: timed runs of the curve.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=0, peers=("kvcache-simulator",))
    columns = ("capacities", "curve s", "other s", "other / curve")
    table = common.table("CPU seconds; curve: minimum / median", "other way", *columns)
    curve_s = beside_replay(table, traffic, points, repeats)
    beside_simulator(table, traffic, points, repeats)
    common.console.print(table)
    common.say(
        f"the curve takes {curve_s:.4f} CPU s; bar {BAR_S} s: "
        + ("holds" if curve_s < BAR_S else "DOES NOT HOLD")
    )


def beside_replay(table: Table, trace: Trace, points: int, repeats: int) -> float:
    """Adds row (a). Returns the curve's minimum in seconds."""
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    sizes = spread(1, trace.n_blocks, points)
    perc.replay(trace, order, sizes[:1])  # compiles
    found = []
    other = common.repeat(lambda: found.append(perc.replay(trace, order, sizes)), 1)
    curve = perc.lru_curve(trace)
    assert np.array_equal(found[0].blocks.sum(axis=-1), curve[sizes])
    mine = common.repeat(lambda: perc.lru_curve(trace), repeats)
    add_row(table, "perc.replay", len(sizes), mine, other)
    return min(mine)


def beside_simulator(table: Table, trace: Trace, points: int, repeats: int) -> None:
    """Adds row (b), or says why not."""
    if common.optional("kvcache_sim", "kvcache-simulator") is None:
        return
    backend = importlib.import_module("kvcache_sim.cpp_backend")
    try:
        backend.ensure_cpp_simulator()  # compiles
    except RuntimeError as error:
        common.say(f"skipped   kvcache-simulator: {error}")
        return
    skip = warmup_requests(trace, UNCOUNTED)
    # Ids are numbered by first appearance: those of the first half are the lowest.
    filled = int(trace.block[: trace.start[skip]].max()) + 1
    sizes = spread(trace.longest_request, filled, points)
    traffic = simulator_trace(trace)
    found = []

    def sweep() -> None:
        options = dict(capacities=sizes, policies=["lru"], warmup_requests=skip)
        found.append(backend.run_cpp_sweep(traffic, **options).results)

    def curve() -> np.ndarray:
        return perc.lru_curve(trace, weights=trace.tokens, warmup_requests=skip)

    other = common.repeat(sweep, 1)
    hits = [found[0]["lru", size].hitTokens for size in sizes]
    assert np.array_equal(hits, curve()[sizes])
    add_row(
        table, "kvcache-simulator", len(sizes), common.repeat(curve, repeats), other
    )


def simulator_trace(trace: Trace) -> object:
    """The trace as kvcache-simulator's reader would hand it to its C++."""
    return importlib.import_module("kvcache_sim.trace").TraceData(
        ids=trace.block.tolist(),
        tokens=trace.tokens.tolist(),
        request_starts=[*trace.start.tolist(), trace.n_accesses],
        block_size=trace.block_tokens,
        request_count=trace.n_requests,
        unique_raw_blocks=trace.n_blocks,
        total_input_tokens=int(trace.tokens.sum(dtype=np.int64)),
        average_input_tokens=float(trace.input_tokens.mean()),
        parse_errors=0,
        skipped_records=0,
    )


def spread(smallest: int, largest: int, points: int) -> list[int]:
    """Capacities at even distances, each once."""
    return sorted({int(size) for size in np.linspace(smallest, largest, points)})


def add_row(
    table: Table, name: str, points: int, mine: list[float], other: list[float]
) -> None:
    """One other way beside the curve."""
    table.add_row(
        name,
        f"{points:,}",
        common.min_median(mine, digits=4),
        f"{min(other):.2f}",
        f"{min(other) / min(mine):,.0f}",
    )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
