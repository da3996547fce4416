"""CachePilot's own estimates: mode estimated of `perc bench` and of `perc compare`."""

import json as json_module
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from perc.errors import InputError, check_whole

ESTIMABLE = "perc,lru,priority,mru,largest"
NOTE = (
    "ESTIMATED by PERC's own formula, on its own numbers: nothing was computed again. "
    "Arrival times change nothing. No result of perc; see docs/cachepilot.md."
)
Variant = Annotated[Literal["classic", "seeded"] | None, arg(metavar="classic|seeded")]


@dataclass(frozen=True)
class Requests:
    """What comes."""

    workload: str = "mixed"
    """chat, code, summarize, longctx, or mixed."""
    requests: int = 300


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


@dataclass(frozen=True)
class Published:
    """CachePilot's experiment instead of a trace: what --mode estimated takes."""

    mode: Literal["replay", "estimated"] = "replay"
    """estimated: CachePilot's engine and published digits, as perc bench has them."""
    traffic: OmitArgPrefixes[Requests] = REQUESTS
    memory: OmitArgPrefixes[Memory] = MEMORY
    variant: Variant = None
    """Its first commit, the default, or its last."""
    seed: int = 42
    """The first."""
    seeds: int = 1
    """How many."""


PUBLISHED = Published()


def tell_estimates(policies: str, asked: Published, *, as_json: bool) -> None:
    """Runs CachePilot's engine and prints what it estimates.

    Args:
        policies: comma list of `ESTIMABLE`.
        asked: the experiment.
        as_json: print one JSON object instead of the table.

    Raises:
        InputError: for an unknown name or a number out of range.
    """
    from perc.cachepilot.reference import Machine, estimate
    from perc.cachepilot.tables import estimated_table
    from perc.cachepilot.workloads import Traffic

    traffic = Traffic(asked.traffic.workload, asked.traffic.requests)
    machine = Machine(*asdict(asked.memory).values())
    rows = [
        (
            seed,
            estimate(
                name, traffic, machine, variant=asked.variant or "classic", seed=seed
            ),
        )
        for seed in seeds_of(asked.seed, asked.seeds)
        for name in names_of(policies)
    ]
    tell(estimated_table, rows, NOTE, as_json)


def names_of(policies: str) -> list[str]:
    """The names of a comma list.

    Raises:
        InputError: if there is none.
    """
    names = [word.strip() for word in policies.split(",") if word.strip()]
    if not names:
        raise InputError(f"--policies {policies!r}: give such as perc,lru.")
    return names


def seeds_of(first: int, many: int) -> list[int]:
    """That many seeds from the first on.

    Raises:
        InputError: for none or too many.
    """
    check_whole("experiment", "seeds", many, 1, 1000)
    return list(range(first, first + many))


def tell(
    table: Callable, rows: list[tuple[int, Any]], note: str, as_json: bool
) -> None:
    """Prints the table and what it is worth, or both as JSON."""
    from perc.report.console import plain_console

    if as_json:
        found = [{"seed": seed} | plain(row) for seed, row in rows]
        print(json_module.dumps({"note": note, "rows": found}, allow_nan=False))
        return
    console = plain_console()
    console.print(table(rows))
    console.print(note, style="dim", markup=False)


def plain(row: Any) -> dict[str, Any]:
    """The fields of a dataclass, without its lists of samples."""
    fields = asdict(row).items()
    return {key: value for key, value in fields if not isinstance(value, list)}
