"""`perc bench`: CachePilot's experiments, as published and as they should be read."""

import json as json_module
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.estimated import (
    ESTIMABLE,
    MEMORY,
    REQUESTS,
    Memory,
    Published,
    Requests,
    Variant,
    names_of,
    plain,
    seeds_of,
    tell,
    tell_estimates,
)
from perc.cli.unused import changed, refuse
from perc.errors import InputError

if TYPE_CHECKING:
    from perc.cachepilot.reference import Machine
    from perc.cachepilot.serving import Clock
    from perc.cachepilot.workloads import Traffic

Experiment = Literal["sessions", "blocks"]
Mode = Literal["realised", "estimated", "thrash"]
SHAPE = "llama-2-7b"  # 524,288 bytes a token, which is what CachePilot's blocks hold
ORDERS = f"{ESTIMABLE},random"
TIMED = (
    "--rate",
    "--spike-at",
    "--spike-multiplier",
    "--batch",
    "--admission",
    "--card",
)
IDLE = {  # flags that change nothing, by mode
    "realised": ("--variant",),
    "estimated": TIMED,
    "thrash": ("--variant", *TIMED),
}
REMEDY = {
    "realised": "leave it out, or take --mode estimated",
    "estimated": "leave it out, or take --mode realised",
    "thrash": "leave it out, or take another --mode",
}
THRASH = (
    "Realised at 0.002 s a token, of sessions that drive each other out all the time: "
    "no server would admit so many."
)
EVICTOR = (
    "ESTIMATED: perc is the optimum of what is measured, and lru a random choice, "
    "because ages are drawn without regard to rates. Says nothing about a server."
)


@dataclass(frozen=True)
class Times:
    """When they come, of mode realised: the other engines know no arrivals."""

    rate: Annotated[float, arg(metavar="PER_S")] = 10.0
    """Arrivals."""
    spike_at: Annotated[int | None, arg(metavar="REQUEST")] = None
    """From this request on, faster."""
    spike_multiplier: float = 4.0
    """So many times."""


TIMES = Times()


def bench(
    experiment: Annotated[Positional[Experiment], arg(metavar="WHAT")] = "sessions",
    *,
    mode: Mode = "realised",
    policies: Annotated[str, arg(metavar="NAMES")] = ORDERS,
    variant: Variant = None,
    traffic: OmitArgPrefixes[Requests] = REQUESTS,
    times: OmitArgPrefixes[Times] = TIMES,
    memory: OmitArgPrefixes[Memory] = MEMORY,
    batch: Annotated[str | None, arg(metavar="MODE")] = None,
    admission: Annotated[str | None, arg(metavar="fits|evict")] = None,
    card: Annotated[str | None, arg(metavar="NAME")] = None,
    seed: int = 42,
    seeds: Annotated[int | None, arg(metavar="INT")] = None,
    json: FlagCreatePairsOff[bool] = False,
) -> None:
    """Session eviction as CachePilot measures it: realised, or its own estimates.

    Args:
        experiment: sessions: its serving engine; blocks: its block-level benchmark.
        mode: realised: all requests to their end on a simulated clock, and what was
            computed again; estimated: its engine and its published digits; thrash: its
            engine where evicted sessions come back.
        policies: comma list of perc, lru, priority (shortest first), mru, largest;
            random in mode realised.
        variant: of mode estimated: its first commit, the default, or its last.
        traffic: what comes.
        times: when it comes, of mode realised.
        memory: where it goes.
        batch: of mode realised: adaptive, the default; max_throughput; low_latency.
        admission: of mode realised: newcomers wait until they fit, the default, or
            evict.
        card: of mode realised: the accelerator whose speed is simulated; a100 by
            default.
        seed: the first.
        seeds: how many; 10 in mode realised, 1 elsewhere.
        json: print one JSON object instead of the table.

    Raises:
        InputError: for an unknown name, a number out of range, or an option that would
            change nothing.
    """
    from perc.cachepilot.reference import Machine
    from perc.cachepilot.workloads import Traffic

    realised = experiment == "sessions" and mode == "realised"
    each = seeds_of(seed, seeds if seeds is not None else 10 if realised else 1)
    given = {
        "mode": mode,
        "policies": policies,
        "variant": variant,
        "traffic": traffic,
        "times": times,
        "memory": memory,
        "batch": batch,
        "admission": admission,
        "card": card,
    }
    _refuse_idle(experiment, mode, changed(bench, given), times)
    if experiment == "blocks":
        tell(*_blocks(each), EVICTOR, json)
        return
    if policies == ORDERS and not realised:
        policies = ESTIMABLE
    if mode == "estimated":
        asked = Published(mode, traffic, memory, variant, seed, len(each))
        tell_estimates(policies, asked, as_json=json)
        return
    names = names_of(policies)
    come = Traffic(traffic.workload, traffic.requests, *asdict(times).values())
    machine = Machine(*asdict(memory).values())
    if realised:
        _compare(names, come, machine, batch, admission, card, each, json)
    else:
        tell(*_thrash(names, come, machine, each), THRASH, json)


def _refuse_idle(experiment, mode: str, given: dict[str, Any], times: Times) -> None:
    """Refuses what would change nothing in the experiment and its mode."""
    if experiment == "blocks":
        refuse(given, "perc bench blocks, which takes --seed, --seeds and --json only")
        return
    refuse(given, f"mode {mode}", idle=IDLE[mode], remedy=REMEDY[mode])
    if times.spike_at is None and "--spike-multiplier" in given:
        raise InputError(
            f"--spike-multiplier {times.spike_multiplier:g} without --spike-at changes "
            "nothing; give --spike-at as well."
        )


def _blocks(seeds: list[int]):
    from perc.cachepilot.evictor import benchmark
    from perc.cachepilot.tables import evictor_table

    rows = [(seed, row) for seed in seeds for row in benchmark(seed=seed)]
    return evictor_table, rows


def _thrash(names, traffic: "Traffic", machine: "Machine", seeds):
    from perc.cachepilot.tables import thrashed_table
    from perc.cachepilot.thrash import thrash

    rows = [
        (seed, thrash(name, traffic, machine, seed=seed))
        for seed in seeds
        for name in names
    ]
    return thrashed_table, rows


def _clock(card: str) -> "Clock":
    from perc.cachepilot.serving import clock
    from perc.hardware import accelerator
    from perc.model_shapes import model
    from perc.roofline import roofline

    return clock(roofline(model(SHAPE), accelerator(card)))


def _compare(names, traffic, machine, batch, admission, card, seeds, as_json) -> None:
    from perc.cachepilot.compare import MEASURES, compare, verdicts
    from perc.cachepilot.serving import Rules
    from perc.cachepilot.tables import compared_table
    from perc.cli.progress import progress_bar
    from perc.report.console import plain_console

    rules = Rules(batch or "adaptive", admission or "fits")
    with progress_bar("serving") as progress:
        found = compare(
            names,
            traffic,
            machine,
            _clock(card or "a100"),
            rules=rules,
            seeds=seeds,
            progress=progress,
        )
    said = verdicts(found)
    if as_json:
        rows = [
            {"policy": name, "seed": seed}
            | {key: read(run) for key, read in MEASURES.items()}
            | plain(run)
            for name in found.policies
            for seed, run in zip(found.seeds, found.runs[name], strict=True)
        ]
        about = {"equal_work": found.equal_work, "verdicts": said, "rows": rows}
        print(json_module.dumps(about, allow_nan=False))
    else:
        console = plain_console()
        console.print(compared_table(found))
        for sentence in said:
            console.print(sentence, markup=False)
        console.print(
            f"Means of seeds {seeds[0]} to {seeds[-1]}; ±: half the 95 % bootstrap "
            f"interval over seeds. recompute: prefill seconds of {SHAPE} on one "
            f"{card or 'a100'}, by a roofline; estimated: PERC's formula, of the same "
            "evictions.",
            style="dim",
            markup=False,
        )
    if not found.equal_work:
        sys.exit(1)
