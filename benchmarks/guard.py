"""How much worse than LRU can a guarded policy be, and what does the guard cost?

    python benchmarks/guard.py [FOLDER] [--share 0.005 ...]

FOLDER holds real traces by the names of `TRACES`; without it only synthetic traffic is
replayed. On each trace at each capacity, four policies with and without `perc.guard`:
`perc`; `perc` upside down; a draw; and the newest first. LRU, alone and guarded are
misses; `alone %` and `guarded %` compare them with LRU's, `hits %` compares the guarded
hits with LRU's. `kept` is the share of a gain over LRU that is left under the guard;
`trust` the share of requests served in the policy's order. docs/safety.md rests on
these tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import common
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.table import Table

import perc
from perc.aged import Rows, aged_traffic, replay_rows
from perc.guard import guarded, lru_hits
from perc.policies.registry import registry
from perc.tune_search import first_requests
from perc.types import Aged, Guard, OnlinePolicy, Trace
from perc.workloads.adversary import newest_first, punish
from perc.workloads.shifts import take_turns

TRACES = {
    "conversation": (
        "mooncake_conversation_trace.jsonl.gz",
        None,
        (1_000, 3_000, 10_000, 30_000, 50_000),
    ),
    "coding agents": (
        "claude_code_v6_interleaved24h_b512.jsonl.xz",
        None,
        (233, 466, 932, 1_865, 3_731),
    ),
    "RAGPulse": ("ragpulse_b16.jsonl.xz", 16, (250, 500, 1_000, 2_000, 4_000, 8_891)),
    "LMCache agents": (
        "lmcache_agent_b16.jsonl.xz",
        16,
        (65, 131, 262, 400, 600, 900, 1_311, 4_000),
    ),
}
CONTROLS = ("RAGPulse", "LMCache agents")
AGENTS = 3_000  # requests of the coding agents after the conversation


class Case(NamedTuple):
    """One trace and where it is replayed."""

    name: str
    trace: Trace
    capacities: tuple[int, ...]
    skip: int = 0  # requests that are not counted
    policies: tuple[OnlinePolicy, ...] = ()  # none: all


class Result(NamedTuple):
    """One policy at one capacity, in counted blocks."""

    case: str
    capacity: int
    policy: str
    blocks: int
    lru: int
    alone: int
    guarded: int
    trust: float

    def misses(self, hits: int) -> float:
        """Change of misses against LRU in percent; more is worse."""
        return 100 * (self.lru - hits) / max(self.blocks - self.lru, 1)

    def hits(self, hits: int) -> float:
        """Change of hits against LRU in percent; less is worse."""
        return 100 * (hits - self.lru) / self.lru if self.lru else np.nan


def main(
    folder: Annotated[
        tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="FOLDER")
    ] = None,
    *,
    share: float = Guard.share,
    patience: float = Guard.patience,
    memory: float = Guard.memory,
    credit: float = Guard.credit,
) -> None:
    """Replays everything, prints a table a trace and the worst cases.

    Args:
        folder: where the real traces are.
        share: of the guard.
        patience: of the guard.
        memory: of the guard.
        credit: of the guard.
    """
    guard = Guard(share, patience, memory, credit)
    found: list[Result] = []
    for case in cases(folder, guard):
        common.print_conditions(case.trace, seed=0)
        results = list(run(case, guard))
        common.console.print(case_table(case, results))
        found += results
    print_worst(found)
    print_seconds(folder, guard)


def cases(folder: Path | None, guard: Guard) -> Iterator[Case]:
    """Traces, one after the other, so that one at a time is in memory."""
    yield Case("a loop larger than the cache", loop(1_000, 20_000), (500, 900, 990))
    yield Case(
        "a hot set and scans",
        perc.make("scan", requests=20_000, hot_chains=200),
        (400, 700, 1_000),
    )
    for turn in (700, 1_000, 2_000, 5_000, 10_000):
        trace = take_turns([loop(1_000, 40_000), loop(450, 40_000)], requests=turn)
        yield Case(f"loops of 1,000 and 450, in turns of {turn:,}", trace, (500,))
    chat, agents = (perc.make(name, requests=4_000) for name in ("chat", "agent"))
    sizes = (500, 2_000, 5_000)
    yield Case("chat, then agents", take_turns([chat, agents]), sizes)
    yield Case("agents, then chat", take_turns([agents, chat]), sizes)
    turns = take_turns([chat, agents], requests=300)
    yield Case("chat and agents in turns of 300", turns, sizes)
    for capacity in (100, 400):
        trace = punish(guard, capacity=capacity, requests=200 * capacity)
        yield Case("an adversary", trace, (capacity,), 0, (newest_first(),))
    if folder:
        yield from real_cases(folder)


def real_cases(folder: Path) -> Iterator[Case]:
    """The traces of the board, and the agents after the conversation."""
    sizes = TRACES["conversation"][2]
    chat = real(folder, "conversation")
    half = chat.n_requests // 2
    yield Case("conversation", chat, sizes)
    good = (registry["perc"](),)
    yield Case("conversation, second half counted", chat, sizes, half, good)
    agents = real(folder, "coding agents")
    yield Case("coding agents", agents, TRACES["coding agents"][2])
    shifted = take_turns([chat, first_requests(agents, AGENTS)])
    shift = "conversation, then coding agents"
    yield Case(shift, shifted, sizes[:3])
    yield Case(f"{shift}, which alone count", shifted, sizes[:3], chat.n_requests)
    for name in CONTROLS:
        yield Case(name, real(folder, name), TRACES[name][2])


def real(folder: Path, name: str) -> Trace:
    """One of `TRACES`."""
    file, tokens, _ = TRACES[name]
    return common.open_trace(folder / file, tokens)


def loop(blocks: int, requests: int) -> Trace:
    """One block a request, round and round."""
    return perc.make(
        "scan",
        requests=requests,
        hot_chains=blocks,
        hot_blocks=1,
        hot_order="cyclic",
        scan_requests=0,
    )


def stand_ins() -> tuple[OnlinePolicy, ...]:
    """What a learned policy may be at its best and at its worst."""
    good = registry["perc"]()
    assert isinstance(good.rule, Aged)
    upside_down = replace(
        good, rule=Aged(good.rule.classes, _negative), name="perc upside down"
    )
    drawn = OnlinePolicy((), Aged(_draw, _draw_worth), "a draw", uses=("turn",))
    return good, upside_down, drawn, newest_first()


def _negative(params, reuse):
    rule = registry["perc"]().rule
    assert isinstance(rule, Aged)
    return -jnp.asarray(rule.worth(params, reuse))


def _draw(f):
    return (np.random.default_rng(0).integers(0, 8, len(f.turn)).astype(np.int32),)


def _draw_worth(params, reuse):
    shape = reuse.events[-1].shape
    drawn = np.random.default_rng(1).random((*shape[:2], 1), np.float32)
    return np.broadcast_to(drawn, shape)


def run(case: Case, guard: Guard) -> Iterator[Result]:
    """Every policy at every capacity."""
    trace, skip = case.trace, case.skip
    lru = lru_hits(trace, case.capacities)[:, skip:].sum(1)
    blocks = int((trace.stop - trace.start)[skip:].sum())
    for policy in case.policies or stand_ins():
        traffic = aged_traffic(trace, policy)
        alone = replay_rows(trace, policy, case.capacities, traffic).blocks
        safe = guarded(policy, guard)
        rows = replay_rows(trace, safe, case.capacities, traffic)
        for k, capacity in enumerate(case.capacities):
            yield Result(
                case.name,
                capacity,
                policy.name,
                blocks,
                int(lru[k]),
                int(alone[k, skip:].sum()),
                int(rows.blocks[k, skip:].sum()),
                float(rows.trusted[k, skip:].mean()),
            )


def case_table(case: Case, results: Sequence[Result]) -> Table:
    """A line a policy and capacity."""
    table = common.table(
        case.name,
        "policy",
        "blocks",
        "LRU",
        "alone",
        "guarded",
        "alone %",
        "guarded %",
        "hits %",
        "kept",
        "trust",
    )
    for r in results:
        kept = (r.guarded - r.lru) / (r.alone - r.lru) if r.alone > r.lru else np.nan
        table.add_row(
            r.policy,
            f"{r.capacity:,}",
            *(f"{r.blocks - hits:,}" for hits in (r.lru, r.alone, r.guarded)),
            *(f"{r.misses(hits):+.2f}" for hits in (r.alone, r.guarded)),
            _number(r.hits(r.guarded), "+.2f"),
            _number(kept, ".1%"),
            f"{r.trust:.0%}",
        )
    return table


def _number(value: float, form: str) -> str:
    return "" if np.isnan(value) else format(value, form)


def print_worst(found: Sequence[Result]) -> None:
    """The worst of everything, of the negative controls, and of perc."""
    groups = {
        "all": found,
        "negative controls": [r for r in found if r.case in CONTROLS],
        "negative controls, perc": [
            r for r in found if r.case in CONTROLS and r.policy == "perc"
        ],
        "perc": [r for r in found if r.policy == "perc"],
    }
    for name, results in groups.items():
        if not results:
            continue
        most = max(results, key=lambda r: r.misses(r.guarded))
        fewest = min((r for r in results if r.lru), key=lambda r: r.hits(r.guarded))
        common.say(
            f"worst     {name} ({len(results)} replays): misses "
            f"{most.misses(most.guarded):+.2f} % ({_where(most)}), alone "
            f"{max(r.misses(r.alone) for r in results):+.2f} %; hits "
            f"{fewest.hits(fewest.guarded):+.2f} % ({_where(fewest)})"
        )


def _where(result: Result) -> str:
    return f"{result.policy} at {result.capacity:,}, {result.case}"


def print_seconds(folder: Path | None, guard: Guard) -> None:
    """CPU time of a replay with and without the guard, once compiled."""
    file, tokens, sizes = TRACES["conversation"]
    trace = common.open_trace(folder / file if folder else None, tokens)
    policy = registry["perc"]()
    traffic = aged_traffic(trace, policy)

    def replayed(policy: OnlinePolicy) -> Rows:
        return jax.block_until_ready(replay_rows(trace, policy, sizes, traffic))

    common.print_conditions(trace, seed=0)
    for one in (policy, guarded(policy, guard)):
        replayed(one)
        taken = common.repeat(partial(replayed, one), 5)
        common.say(
            f"time      {one.name}, {len(sizes)} capacities: "
            f"{common.min_median(taken, 1_000)} CPU ms, minimum / median"
        )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
