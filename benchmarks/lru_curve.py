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

from pathlib import Path

import common
import numpy as np
import peer_kvcache
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
    sizes = peer_kvcache.spread(1, trace.n_blocks, points)
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
    if not peer_kvcache.ready():
        return
    skip = warmup_requests(trace, UNCOUNTED)
    sizes = peer_kvcache.sizes_that_fill(trace, skip, points)
    found = []

    def sweep() -> None:
        found.append(peer_kvcache.hit_tokens(trace, "lru", sizes, skip))

    def curve() -> np.ndarray:
        return perc.lru_curve(trace, weights=trace.tokens, warmup_requests=skip)

    other = common.repeat(sweep, 1)
    assert np.array_equal(found[0], curve()[sizes])
    add_row(
        table, "kvcache-simulator", len(sizes), common.repeat(curve, repeats), other
    )


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
