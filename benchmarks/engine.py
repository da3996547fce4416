"""How long does the engine take for an access, beside what a peer would write?

    python benchmarks/engine.py [TRACE]

Nanoseconds of CPU time an access, one configuration, after compilation, for perc's
rank bit set, beside

(a) an indexed binary heap in numba with the same semantics. The hits of every request
    and the evictions are asserted equal before the clock runs.
(b) libCacheSim's C, which knows objects and no chains. Both replay the trace cut into
    requests of one block, where the hits are asserted equal.

Bars: LRU below 40 ns with JAX 0.12, below 75 ns with JAX 0.10.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import common
import jax
import numpy as np
import tyro
from peer_libcachesim import LibCacheSim, one_block_requests, stock, write_records
from rich.table import Table

import perc
from perc.policies.registry import registry
from perc.replay import engine_columns, replay_one
from perc.types import Trace

BARS_NS = {(0, 10): 75, (0, 12): 40}  # by version of JAX
POLICIES = ("lru", "belady", "perc_decay", "fifo")
PEER_NAMES = {"lru": "LRU", "fifo": "FIFO", "belady": "Belady"}
COLUMNS = ("blocks", "hit ratio", "perc ns", "peer ns", "peer / perc")
Run = Callable[[int], tuple[np.ndarray, int]]  # capacity to hits i32[R], evictions


class Order(NamedTuple):
    """What decides who leaves."""

    ranks: np.ndarray  # i32[N]
    refresh: bool


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    capacities: tuple[int, ...] = (1_000, 10_000, 50_000),
    repeats: int = 9,
    seed: int = 0,
) -> None:
    """Times the engine beside its peers.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        capacities: cache sizes in blocks.
        repeats: timed runs of each configuration.
        seed: of the random order.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=seed, peers=("numba", "libcachesim"))
    orders = {name: order_of(traffic, name) for name in POLICIES}
    # No locality at all, the hardest order for the processor's caches.
    shuffled = np.random.default_rng(seed).permutation(traffic.n_accesses)
    orders["random order"] = Order(shuffled.astype(np.int32), True)
    print_compile_times(traffic, orders)
    lru_ns = beside_heap(traffic, orders, capacities, repeats)
    beside_libcachesim(traffic, capacities, repeats)
    print_verdict(lru_ns)


def order_of(trace: Trace, name: str) -> Order:
    """Scores and sorts the accesses of a trace by a policy of the registry."""
    policy = registry[name]()
    return Order(perc.ranks(trace, perc.scores(policy, trace)), policy.refresh)


def engine(trace: Trace, order: Order) -> Run:
    """`perc.replay` for one order, with the arrays laid out only once."""
    columns = engine_columns(trace, order.ranks)

    def run(capacity: int) -> tuple[np.ndarray, int]:
        hits, evictions = replay_one(columns, capacity, False, order.refresh)
        return np.asarray(hits)[: trace.n_requests], int(evictions)

    return run


def heap(trace: Trace, order: Order) -> Run:
    """The same, by the peer."""
    from peer_heap import replay_heap

    columns = (trace.block, order.ranks, trace.start, trace.stop)
    return lambda size: replay_heap(*columns, trace.n_blocks, size, order.refresh)


def print_compile_times(trace: Trace, orders: dict[str, Order]) -> None:
    """All orders share two programs: hits refresh the rank, or they do not."""
    for name in ("lru", "fifo"):
        order = orders[name]
        columns = engine_columns(trace, order.ranks)
        lowered = replay_one.lower(columns, 1, False, order.refresh)
        seconds = common.repeat(lowered.compile, 1)[0]
        common.say(f"compile   {seconds:.2f} CPU s, perc's program of {name}")


def beside_heap(
    trace: Trace, orders: dict[str, Order], capacities: tuple[int, ...], repeats: int
) -> float:
    """Prints table (a). Returns the slowest of LRU's minima in ns an access."""
    numba = common.optional("numba", "numba")
    table = common.table("(a) same semantics; peer: heap in numba", "order", *COLUMNS)
    slowest = 0.0
    for name, order in orders.items():
        mine, peer = engine(trace, order), heap(trace, order) if numba else None
        for capacity in capacities:
            hits, evictions = mine(capacity)
            if peer:
                others, gone = peer(capacity)
                assert np.array_equal(hits, others) and evictions == gone, name
            taken = common.repeat(partial(mine, capacity), repeats)
            beside = common.repeat(partial(peer, capacity), repeats) if peer else []
            add_row(table, trace, name, capacity, hits, taken, beside)
            if name == "lru":
                slowest = max(slowest, min(taken) * 1e9 / trace.n_accesses)
    common.console.print(table)
    return slowest


def beside_libcachesim(trace: Trace, capacities: tuple[int, ...], repeats: int) -> None:
    """Prints table (b)."""
    library = common.optional("libcachesim", "libcachesim")
    if library is None:
        return
    objects = one_block_requests(trace)
    table = common.table(
        "(b) one block a request, leaf to root; peer: libCacheSim", "order", *COLUMNS
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accesses.bin"
        write_records(objects, path)
        for name, peer_name in PEER_NAMES.items():
            mine = engine(objects, order_of(objects, name))
            for capacity in capacities:
                hits, _ = mine(capacity)
                runs = [
                    LibCacheSim(library, path, stock(library, peer_name, capacity))
                    for _ in range(repeats)
                ]
                beside = [common.repeat(run.replay, 1)[0] for run in runs]
                assert {run.hits for run in runs} == {hits.sum()}, name
                taken = common.repeat(partial(mine, capacity), repeats)
                add_row(table, objects, name, capacity, hits, taken, beside)
    common.console.print(table)


def add_row(
    table: Table,
    trace: Trace,
    name: str,
    capacity: int,
    hits: np.ndarray,
    taken: list[float],
    beside: list[float],
) -> None:
    """One configuration: minimum / median of both, and the ratio of the minima."""
    scale = 1e9 / trace.n_accesses
    table.add_row(
        name,
        f"{capacity:,}",
        f"{hits.sum() / trace.n_accesses:.4f}",
        common.min_median(taken, scale),
        common.min_median(beside, scale) if beside else "",
        f"{min(beside) / min(taken):.2f}" if beside else "",
    )


def print_verdict(lru_ns: float) -> None:
    """The bar of the installed JAX, and whether it holds."""
    major, minor = (int(part) for part in jax.__version__.split(".")[:2])
    bar = BARS_NS.get((major, minor))
    common.say(
        f"LRU takes at most {lru_ns:.1f} ns an access (minimum of each capacity); "
        + (
            f"no bar for JAX {jax.__version__}"
            if bar is None
            else f"bar {bar} ns: {'holds' if lru_ns < bar else 'DOES NOT HOLD'}"
        )
    )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
