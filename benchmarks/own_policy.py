"""What does a policy of your own cost, beside libCacheSim's plug-in policies?

    python benchmarks/own_policy.py [TRACE]

The policy is LRU, written by a user: as a score of each use (`Policy`), as a score
inside the replay that may look at the cache (`Scored`), and as libCacheSim's plug-in,
Python functions over an ordered dict. All replay the trace cut into requests of
one block; the hits are asserted equal. perc also replays the prompts as they are, which
is its task and which the plug-in cannot. CPU milliseconds a configuration, after
compilation.

Bar: 50 times less than the plug-in.
"""

import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import common
import numpy as np
import tyro
from peer_libcachesim import HASH_POWER, LibCacheSim, one_block_requests, write_records

import perc
from perc.online import online_traffic, replay_traffic
from perc.types import Features, Memory, OnlinePolicy, Policy, Scored, Trace

BAR = 50.0


def by_use(params: dict, f: Features):
    """A user's score of a use."""
    return f.step


def by_cache(params: dict, f: Features, m: Memory):
    """A user's score inside the replay, which could read what the cache did."""
    return f.step, m.own


RANKED = Policy({}, by_use, "a score of each use", uses=("step",))
ONLINE = OnlinePolicy({}, Scored(by_cache), "a score inside the replay", ("step",))


def plug_in(library: ModuleType, size: int) -> Any:
    """The same rule for libCacheSim."""

    def init(_) -> OrderedDict:
        return OrderedDict()

    def hit(order: OrderedDict, request: Any) -> None:
        order.move_to_end(request.obj_id)

    def miss(order: OrderedDict, request: Any) -> None:
        order[request.obj_id] = None

    def evict(order: OrderedDict, _) -> int:
        return order.popitem(last=False)[0]

    def remove(order: OrderedDict, block: int) -> None:
        order.pop(block, None)

    def free(order: OrderedDict) -> None:
        order.clear()

    return library.PluginCache(
        size, init, hit, miss, evict, remove, free, hashpower=HASH_POWER
    )


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    points: int = 100,
    smallest: int = 1_000,
    largest: int = 100_000,
    repeats: int = 1,
) -> None:
    """Times one rule three ways.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        points: capacities, at even distances.
        smallest: capacity in blocks.
        largest: capacity in blocks.
        repeats: timed runs of all configurations, of which the fastest counts.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=0, peers=("libcachesim",))
    library = common.optional("libcachesim", "libcachesim")
    if library is None:
        return
    stream = one_block_requests(traffic)
    sizes = np.linspace(smallest, largest, points).astype(int).tolist()
    table = common.table(
        f"CPU ms a configuration, {points} capacities", "policy", "ms", "plug-in / perc"
    )
    beside, expected = plugged(library, stream, sizes)
    table.add_row("libCacheSim's plug-in", f"{1e3 * beside:,.1f}", "1.0")
    for policy, kind in ((RANKED, ranked), (ONLINE, online)):
        assert kind(stream)(sizes) == expected, policy.name
        for requests, name in ((stream, policy.name), (traffic, f"{policy.name} *")):
            run = kind(requests)
            run(sizes[:1])
            taken = min(common.repeat(lambda run=run: run(sizes), repeats)) / points
            ratio = beside / taken
            table.add_row(name, f"{1e3 * taken:,.1f}", f"{ratio:,.1f}")
            holds = "holds" if ratio >= BAR else "DOES NOT HOLD"
            common.say(f"{name}: {ratio:,.0f} times, bar {BAR:g}: {holds}")
    common.console.print(table)
    common.say("* on the prompts as they are: as many accesses, in whole requests")


def plugged(
    library: ModuleType, trace: Trace, sizes: list[int]
) -> tuple[float, list[int]]:
    """Mean CPU seconds of the plug-in, and its hits at each capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accesses.bin"
        write_records(trace, path)
        runs = [LibCacheSim(library, path, plug_in(library, size)) for size in sizes]
        taken = [common.repeat(run.replay, 1)[0] for run in runs]
    return float(np.mean(taken)), [run.hits for run in runs]


def ranked(trace: Trace) -> Callable[[list[int]], list[int]]:
    """Scores, ranks and replays, all of it each time."""

    def run(sizes: list[int]) -> list[int]:
        order = perc.ranks(trace, perc.scores(RANKED, trace))
        return np.asarray(perc.replay(trace, order, sizes).blocks).sum(axis=1).tolist()

    return run


def online(trace: Trace) -> Callable[[list[int]], list[int]]:
    """Replays; the trace is laid out once for all configurations."""
    traffic = online_traffic(trace, ONLINE)

    def run(sizes: list[int]) -> list[int]:
        return [
            int(np.asarray(replay_traffic(ONLINE, traffic, size)[0]).sum())
            for size in sizes
        ]

    return run


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
