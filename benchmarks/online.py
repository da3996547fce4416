"""How long does a policy take whose order depends on what the cache did?

    python benchmarks/online.py [TRACE]

CPU milliseconds a configuration, after compilation, for every online policy of the
registry: (a) on the trace as it is, (b) on the trace cut into requests of one block,
beside libCacheSim's C where it has the policy. There the hits are asserted equal, but
for those policies whose arithmetic differs in precision, where they are printed.
"On prompts" is the peer's time, which knows single blocks only, over perc's of (a).

JAX 0.10 compiles the loops over lists piece by piece, which costs a factor of 20,
unless it is told otherwise:

    XLA_FLAGS=--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=16384

Bars, mean over the capacities: GDSF 5 times, S3-FIFO 3 times less than libCacheSim.
"""

import tempfile
import time
from pathlib import Path
from types import ModuleType

import common
import numpy as np
import tyro
from peer_libcachesim import LibCacheSim, one_block_requests, stock, write_records

from perc.online import Layouts, replay_online
from perc.policies.registry import registry
from perc.types import OnlinePolicy, Trace

POLICIES = {
    name: policy
    for name in registry
    if isinstance(policy := registry[name](), OnlinePolicy)
}
POLICIES["gdsf, closed"] = registry["gdsf"](cost_weight=1.0)
PEERS = {"gdsf": "GDSF", "s3fifo": "S3FIFO", "arc": "ARC", "sieve": "Sieve"}
EXACT = ("s3fifo", "sieve")  # no floats in the rule: equal hits
BARS = {"gdsf": 5.0, "s3fifo": 3.0}


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    points: int = 12,
    smallest: int = 1_000,
    largest: int = 100_000,
    repeats: int = 3,
) -> None:
    """Times the online engines.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        points: capacities, at even distances.
        smallest: capacity in blocks.
        largest: capacity in blocks.
        repeats: timed runs of each configuration, of which the fastest counts.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=0, peers=("libcachesim",))
    capacities = np.linspace(smallest, largest, points).astype(int).tolist()
    alone(traffic, capacities, repeats)
    beside_libcachesim(traffic, capacities, repeats)


def alone(trace: Trace, capacities: list[int], repeats: int) -> None:
    """Prints table (a)."""
    table = common.table(
        "(a) CPU ms a configuration",
        "policy",
        "first call",
        "smallest",
        "mean",
        "largest",
        "ns an access",
    )
    for name, policy in POLICIES.items():
        compile_s, taken, _ = timed(policy, trace, capacities, repeats)
        table.add_row(
            name,
            f"{1e3 * compile_s:,.0f}",
            *(f"{1e3 * s:.1f}" for s in (taken[0], np.mean(taken), taken[-1])),
            f"{1e9 * np.mean(taken) / trace.n_accesses:.0f}",
        )
    common.console.print(table)


def beside_libcachesim(trace: Trace, capacities: list[int], repeats: int) -> None:
    """Prints table (b) and whether the bars hold."""
    library = common.optional("libcachesim", "libcachesim")
    if library is None:
        return
    stream = one_block_requests(trace)
    table = common.table(
        "(b) one block a request, leaf to root; CPU ms a configuration, mean",
        "policy",
        "perc ms",
        "peer ms",
        "peer / perc",
        "on prompts",
        "set up by default",
        "perc hits",
        "peer hits",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accesses.bin"
        write_records(stream, path)
        for name, peer in PEERS.items():
            _, taken, hits = timed(POLICIES[name], stream, capacities, repeats)
            _, prompts, _ = timed(POLICIES[name], trace, capacities, repeats)
            runs = [beside(library, path, peer, size, repeats) for size in capacities]
            sized, default, found = (list(column) for column in zip(*runs, strict=True))
            assert name not in EXACT or found == hits, name
            ratio = np.mean(sized) / np.mean(taken)
            whole = np.mean(sized) / np.mean(prompts)
            table.add_row(
                name,
                f"{1e3 * np.mean(taken):.1f}",
                f"{1e3 * np.mean(sized):.1f}",
                f"{ratio:.2f}",
                f"{whole:.2f}",
                f"{1e3 * np.mean(default):.1f}",
                f"{sum(hits):,}",
                f"{sum(found):,}",
            )
            for kind, times in (("single blocks", ratio), ("prompts", whole)):
                if name in BARS:
                    holds = "holds" if times >= BARS[name] else "DOES NOT HOLD"
                    bar = f"bar {BARS[name]:g}: {holds}"
                    common.say(f"{name} on {kind}: {times:.1f} times, {bar}")
    common.console.print(table)


def beside(
    library: ModuleType, path: Path, peer: str, size: int, repeats: int
) -> tuple[float, float, int]:
    """CPU seconds of one configuration of libCacheSim, and its hits.

    First the replay alone with a hash table of a fitting size, then what a caller who
    names the capacity only waits for, its set-up included.
    """
    runs = [
        LibCacheSim(library, path, stock(library, peer, size)) for _ in range(repeats)
    ]
    sized = min(common.repeat(run.replay, 1)[0] for run in runs)

    def whole() -> None:
        LibCacheSim(library, path, stock(library, peer, size, None)).replay()

    return sized, common.repeat(whole, 1)[0], runs[0].hits


def timed(
    policy: OnlinePolicy, trace: Trace, capacities: list[int], repeats: int
) -> tuple[float, list[float], list[int]]:
    """CPU seconds of the first call more, and by capacity CPU seconds and hits.

    The first call lays the trace out and compiles; the others share its layout.
    """
    shared: Layouts = {}

    def run(size: int) -> np.ndarray:
        return np.asarray(replay_online(trace, policy, [size], shared=shared).blocks)

    began = time.process_time()
    run(capacities[0])
    first = time.process_time() - began
    taken = [min(common.repeat(lambda k=k: run(k), repeats)) for k in capacities]
    hits = [int(run(size).sum()) for size in capacities]
    return first - taken[0], taken, hits


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
