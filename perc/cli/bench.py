"""`perc bench`: CachePilot's experiments, as published and as they should be read."""

import json as json_module
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.errors import InputError, check_whole

if TYPE_CHECKING:
    from perc.cachepilot.reference import Machine
    from perc.cachepilot.serving import Clock
    from perc.cachepilot.workloads import Traffic

Experiment = Literal["sessions", "blocks"]
Mode = Literal["realised", "estimated", "thrash"]
SHAPE = "llama-2-7b"  # 524,288 bytes a token, which is what CachePilot's blocks hold
ORDERS = "perc,lru,priority,mru,largest,random"
ESTIMATED = (
    "ESTIMATED by PERC's own formula, on its own numbers: nothing was computed again. "
    "Arrival times change nothing, so neither do rate and spike. No result of perc; "
    "see docs/cachepilot.md."
)
THRASH = (
    "Realised at 0.002 s a token, of sessions that drive each other out all the time: "
    "no server would admit so many."
)
EVICTOR = (
    "ESTIMATED: perc is the optimum of what is measured, and lru a random choice, "
    "because ages are drawn without regard to rates. Says nothing about a server."
)


@dataclass(frozen=True)
class Requests:
    """What comes."""

    workload: str = "mixed"
    """chat, code, summarize, longctx, or mixed."""
    requests: int = 300
    rate: Annotated[float, arg(metavar="PER_S")] = 10.0
    """Arrivals."""
    spike_at: Annotated[int | None, arg(metavar="REQUEST")] = None
    """From this request on, faster."""
    spike_multiplier: float = 4.0
    """So many times."""


@dataclass(frozen=True)
class Memory:
    """Where it goes."""

    vram_gib: float = 24.0
    """Memory of the card."""
    pinned_share: float = 0.35
    """Of the memory, for weights."""
    concurrent: int = 32
    """Sessions at once; the published table has 48."""
    kv: str = "fp16"
    """Format of the cache: fp16, int8, fp8."""


REQUESTS, MEMORY = Requests(), Memory()


def bench(
    experiment: Annotated[Positional[Experiment], arg(metavar="WHAT")] = "sessions",
    *,
    mode: Mode = "realised",
    policies: Annotated[str, arg(metavar="NAMES")] = ORDERS,
    variant: Annotated[
        Literal["classic", "seeded"] | None, arg(metavar="classic|seeded")
    ] = None,
    traffic: OmitArgPrefixes[Requests] = REQUESTS,
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

    many = seeds if seeds is not None else 10 if _realised(experiment, mode) else 1
    check_whole("bench", "seeds", many, 1, 1000)
    each = list(range(seed, seed + many))
    only = {"--batch": batch, "--admission": admission, "--card": card}
    if not _realised(experiment, mode):
        _refuse(only, f"{experiment} in mode {mode}")
    if mode != "estimated" or experiment == "blocks":
        _refuse({"--variant": variant}, f"{experiment} in mode {mode}")
    if experiment == "blocks":
        if traffic != REQUESTS or memory != MEMORY or policies != ORDERS:
            raise InputError("perc bench blocks takes --seed, --seeds and --json only.")
        _tell(*_blocks(each), EVICTOR, json)
        return
    names = [word.strip() for word in policies.split(",") if word.strip()]
    if not names:
        raise InputError(f"--policies {policies!r}: give such as perc,lru.")
    if policies == ORDERS and mode != "realised":
        names.remove("random")
    come = Traffic(
        traffic.workload,
        traffic.requests,
        traffic.rate,
        traffic.spike_at,
        traffic.spike_multiplier,
    )
    machine = Machine(
        memory.vram_gib, memory.pinned_share, memory.concurrent, memory.kv
    )
    if mode == "realised":
        _compare(names, come, machine, batch, admission, card, each, json)
    elif mode == "estimated":
        found = _estimates(names, come, machine, variant or "classic", each)
        _tell(*found, ESTIMATED, json)
    else:
        _tell(*_thrash(names, come, machine, each), THRASH, json)


def _realised(experiment: Experiment, mode: Mode) -> bool:
    return experiment == "sessions" and mode == "realised"


def _refuse(given: dict[str, Any], where: str) -> None:
    for flag, value in given.items():
        if value is not None:
            raise InputError(
                f"{flag} {value} changes nothing for {where}; leave it out."
            )


def _blocks(seeds: list[int]):
    from perc.cachepilot.evictor import benchmark
    from perc.cachepilot.tables import evictor_table

    rows = [(seed, row) for seed in seeds for row in benchmark(seed=seed)]
    return evictor_table, rows


def _estimates(names, traffic: "Traffic", machine: "Machine", variant, seeds):
    from perc.cachepilot.reference import estimate
    from perc.cachepilot.tables import estimated_table

    rows = [
        (seed, estimate(name, traffic, machine, variant=variant, seed=seed))
        for seed in seeds
        for name in names
    ]
    return estimated_table, rows


def _thrash(names, traffic: "Traffic", machine: "Machine", seeds):
    from perc.cachepilot.tables import thrashed_table
    from perc.cachepilot.thrash import thrash

    rows = [
        (seed, thrash(name, traffic, machine, seed=seed))
        for seed in seeds
        for name in names
    ]
    return thrashed_table, rows


def _tell(
    table: Callable, rows: list[tuple[int, Any]], note: str, as_json: bool
) -> None:
    """The table and what it is worth, or both as JSON."""
    from rich.console import Console

    if as_json:
        plain = [{"seed": seed} | _plain(asdict(row)) for seed, row in rows]
        print(json_module.dumps({"note": note, "rows": plain}, allow_nan=False))
        return
    console = Console(highlight=False, markup=False)
    console.print(table(rows))
    console.print(note, style="dim", markup=False)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without the lists of samples."""
    return {key: value for key, value in row.items() if not isinstance(value, list)}


def _clock(card: str) -> "Clock":
    from perc.cachepilot.serving import clock
    from perc.hardware import accelerator
    from perc.model_shapes import model
    from perc.roofline import roofline

    return clock(roofline(model(SHAPE), accelerator(card)))


def _compare(names, traffic, machine, batch, admission, card, seeds, as_json) -> None:
    from rich.console import Console

    from perc.cachepilot.compare import MEASURES, compare, verdicts
    from perc.cachepilot.serving import Rules
    from perc.cachepilot.tables import compared_table
    from perc.cli.progress import progress_bar

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
            | _plain(asdict(run))
            for name in found.policies
            for seed, run in zip(found.seeds, found.runs[name], strict=True)
        ]
        about = {"equal_work": found.equal_work, "verdicts": said, "rows": rows}
        print(json_module.dumps(about, allow_nan=False))
    else:
        console = Console(highlight=False, markup=False)
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
