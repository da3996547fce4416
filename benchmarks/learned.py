"""Does a learned policy earn its place? Trained on one part, judged on the other.

    python benchmarks/learned.py FOLDER [--only conversation agents controls across]

FOLDER holds the shared traces. Four questions, each a table:

conversation  train on the first 7,000 requests, judge on the rest: share of the gap
              between LRU and the bound, mean of 8 sizes from 2,000 to 20,000 blocks,
              for every method and seed, beside rivals tuned on the same requests
sessions      the same with parts that share no session
agents        train on the first 12 hours of coding agents, judge on the rest: misses
controls      traffic with nothing to gain: hits and misses against LRU
across        train on one trace, serve another
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import common
import numpy as np
import tyro

import perc
from perc.bootstrap import interval
from perc.policies.registry import registry
from perc.train.evaluation import Standing, standings
from perc.train.fit import fit
from perc.train.methods import METHODS
from perc.train.splits import halves_by_session
from perc.tune import SPACES
from perc.tune_search import first_requests
from perc.types import AnyPolicy, Trace

CONVERSATION = "mooncake_conversation_trace.jsonl.gz"
AGENTS = "claude_code_v6_interleaved24h_b512.jsonl.xz"
CONTROLS = {
    "ragpulse_b16.jsonl.xz": (1_000, 4_000, 8_891),
    "lmcache_agent_b16.jsonl.xz": (262, 1_311, 4_000),
}
TRAIN_REQUESTS = 7_000
SIZES = tuple(int(round(x)) for x in np.geomspace(2_000, 20_000, 8))
AGENT_SIZES = (932, 1_865)
HALF_A_DAY_S = 43_200.0
UNTUNED = ("lfu", "gdsf", "tinylfu", "lru_k")
TUNED = ("perc", "perc_decay", "hazard", "workload_aware", "slru")
CHEATS = (
    "* cheats: trained on the whole trace, the judged part included: what even that "
    "does not find, no training on these inputs will\n"
)
QUESTIONS = ("conversation", "sessions", "agents", "controls", "across")


def main(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")],
    *,
    only: tuple[str, ...] = QUESTIONS,
    methods: tuple[str, ...] = tuple(METHODS),
    seeds: int = 5,
    samples: int = 64,
) -> None:
    """Answers the questions.

    Args:
        folder: where the traces are.
        only: questions to answer.
        methods: of training.
        seeds: trainings of each method, from seed 0.
        samples: configurations that each tuned rival may try.
    """
    answers: dict[str, Callable[[], None]] = {
        "conversation": lambda: conversation(folder, methods, seeds, samples),
        "sessions": lambda: sessions(folder, methods[0], seeds),
        "agents": lambda: agents(folder, methods[:1]),
        "controls": lambda: controls(folder, methods[0]),
        "across": lambda: across(folder, methods[0]),
    }
    for question in only:
        answers[question]()


def conversation(folder: Path, methods: Sequence[str], seeds: int, samples: int):
    """Every method on every seed, and tuned rivals."""
    trace = common.open_trace(folder / CONVERSATION, None)
    common.print_conditions(trace, seed=seeds - 1)
    training = first_requests(trace, TRAIN_REQUESTS)
    rivals = _rivals(trace, training, samples)
    learned, seconds = [], {}
    for method in methods:
        for seed in range(seeds):
            began = common.cpu_seconds()
            policy = fit(training, method, seed=seed)
            seconds[f"{method} {seed}"] = common.cpu_seconds() - began
            learned += _both(policy, f"{method} {seed}")
    learned.append(_cheat(trace, methods[0]))
    found = standings(trace, [*rivals, *learned], SIZES, skip=TRAIN_REQUESTS)
    best = max(found[1 : 1 + len(rivals)], key=lambda s: s.mean)
    table = common.table(
        f"Conversation: share of the gap closed, {len(SIZES)} sizes from {SIZES[0]:,} "
        f"to {SIZES[-1]:,} blocks",
        *("policy", "mean", "95 %", f"over {best.name}", "least", "train CPU s"),
    )
    for standing in found:
        over = interval(standing.draws - best.draws)
        taken = seconds.get(standing.name)
        table.add_row(
            standing.name,
            f"{standing.mean:.3f}",
            _span(standing.interval),
            _span(over),
            f"{standing.gap_closed.min():.3f}",
            "" if taken is None else f"{taken:.0f}",
        )
    common.console.print(table)
    common.say(CHEATS)
    _by_size(found)
    for method in methods:
        for ending in ("", "+guard"):
            means = [
                s.mean
                for s in found
                if s.name in [f"{method} {seed}{ending}" for seed in range(seeds)]
            ]
            common.say(
                f"{method}{ending}: mean {np.mean(means):.3f}, least {min(means):.3f}, "
                f"most {max(means):.3f} of {len(means)} seeds"
            )


def sessions(folder: Path, method: str, seeds: int) -> None:
    """Parts without a session in common."""
    trace = common.open_trace(folder / CONVERSATION, None)
    table = common.table(
        f"Conversation, halves by session, {method}: share of the gap closed at half "
        "the sizes",
        *("seed", "learned", "95 %", "perc"),
    )
    for seed in range(seeds):
        learn, judge = halves_by_session(trace, seed)
        policy = fit(learn, method, seed=seed)
        rival = registry["perc"]()
        sizes = [size // 2 for size in SIZES]
        _, own, other, _ = standings(judge, [policy, rival], sizes)
        table.add_row(
            str(seed), f"{own.mean:.3f}", _span(own.interval), f"{other.mean:.3f}"
        )
    common.console.print(table)


def agents(folder: Path, methods: Sequence[str]) -> None:
    """Misses on the second part of the coding agents."""
    trace = common.open_trace(folder / AGENTS, None)
    common.print_conditions(trace, seed=0)
    skip = int(np.searchsorted(trace.arrival_s, HALF_A_DAY_S))
    training = first_requests(trace, skip)
    policies: list[AnyPolicy] = [registry["perc"]()]
    for method in methods:
        policies += _both(fit(training, method), method)
    policies.append(_cheat(trace, methods[0]))
    found = standings(trace, policies, AGENT_SIZES, skip=skip, resamples=0)
    _misses(
        f"Coding agents, after {skip:,} requests: misses against LRU",
        found,
        AGENT_SIZES,
    )
    common.say(CHEATS)


def controls(folder: Path, method: str) -> None:
    """Half of the requests teach, the other half has nothing to gain."""
    for file, sizes in CONTROLS.items():
        trace = common.open_trace(folder / file, 16)
        skip = trace.n_requests // 2
        policy = fit(first_requests(trace, skip), method)
        _shifted(f"{file}: trained on its first half", trace, policy, sizes, skip)


def across(folder: Path, method: str) -> None:
    """Trained on one kind of traffic, serving another."""
    conversation_trace = common.open_trace(folder / CONVERSATION, None)
    agent_trace = common.open_trace(folder / AGENTS, None)
    chat = fit(first_requests(conversation_trace, TRAIN_REQUESTS), method)
    hours = int(np.searchsorted(agent_trace.arrival_s, HALF_A_DAY_S))
    coding = fit(first_requests(agent_trace, hours), method)
    _shifted("chat serves coding agents", agent_trace, chat, (466, *AGENT_SIZES))
    _shifted("coding serves chat", conversation_trace, coding, SIZES)
    for file, sizes in CONTROLS.items():
        trace = common.open_trace(folder / file, 16)
        _shifted(f"chat serves {file}", trace, chat, sizes)
        _shifted(f"coding serves {file}", trace, coding, sizes)


def _shifted(
    title: str, trace: Trace, policy: AnyPolicy, sizes: Sequence[int], skip: int = 0
) -> None:
    policies = _both(policy, "learned")
    found = standings(trace, policies, sizes, skip=skip, resamples=0)
    _misses(f"{title}: misses against LRU", found, sizes)


def _cheat(trace: Trace, method: str) -> AnyPolicy:
    """One that has seen the answers, without its guard."""
    policy = fit(trace, method, guard=None)
    return dataclasses.replace(policy, name=f"{method}, seen all *")


def _both(policy: Any, name: str) -> list[AnyPolicy]:
    """A learned policy without its guard, and with it."""
    bare = dataclasses.replace(policy.rule, guard=None)
    return [
        dataclasses.replace(policy, rule=bare, name=name),
        dataclasses.replace(policy, name=f"{name}+guard"),
    ]


def _rivals(trace: Trace, training: Trace, samples: int) -> list[AnyPolicy]:
    """Rivals by default and, where they have parameters, tuned on the same part."""
    found: list[AnyPolicy] = [registry[name]() for name in (*UNTUNED, *TUNED)]
    for name in TUNED:
        tuned = perc.tune(
            trace,
            registry[name],
            capacities=SIZES,
            space=SPACES[name],
            samples=samples,
            train=training.n_requests / trace.n_requests,
            objective="block_hit_ratio",
            bootstrap=0,
        )
        policy = registry[name](**tuned.parameters)
        found.append(dataclasses.replace(policy, name=f"{name} tuned"))
        common.say(f"tuned     {name}: {tuned.parameters}")
    return found


def _by_size(found: Sequence[Standing]) -> None:
    table = common.table("The same by size", "policy", *(f"{s:,}" for s in SIZES))
    for standing in found:
        table.add_row(standing.name, *(f"{g:.3f}" for g in standing.gap_closed))
    common.console.print(table)


def _misses(title: str, found: Sequence[Standing], sizes: Sequence[int]) -> None:
    base = found[0]
    columns = [f"{size:,} blocks" for size in sizes]
    table = common.table(title, "policy", *columns, "worst hits")
    for standing in found:
        change = standing.misses / base.misses - 1
        hits = standing.hits / np.maximum(base.hits, 1) - 1
        table.add_row(
            standing.name, *(f"{c:+.2%}" for c in change), f"{hits.min():+.2%}"
        )
    common.console.print(table)


def _span(found: Any) -> str:
    low, high = found
    return "" if low is None else f"{low:+.3f} to {high:+.3f}"


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
