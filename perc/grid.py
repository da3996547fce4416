"""What a sweep runs, as data: traces x policies x seeds, each at all capacities.

A grid is a TOML file (`read_grid`) or a dict of the same shape (`parse_grid`):

    capacities = [0.01, 0.05, 4096]  # shares of the distinct blocks, or blocks
    seeds = [0, 1]                   # of made traces, random draws, seeded policies
    warmup = 0.5                     # this share of the requests is not counted

    [[traces]]
    path = "conversation.jsonl.gz"   # and format, block_tokens, ... as for perc.load
    [[traces]]
    workload = "chat"                # and the parameters of perc.make
    requests = 12031

    [[policies]]
    name = "lru"
    [[policies]]
    name = "perc_decay"
    tau_s = { from = 10, to = 1000, steps = 25, scale = "log" }
    cost_weight = [0, 0.5, 1]        # every value with every other: 75 configurations
    [[policies]]
    name = "trained.npz"             # a policy file, as it is
    [[policies]]
    name = "perc_decay"              # drawn together: 200 configurations a seed
    tau_s = { low = 1, high = 2000, scale = "log", samples = 200 }
    cost_weight = { low = 0, high = 1, samples = 200 }

Each configuration has an id, the digest of what it says, so that it is the same on
every machine. Draws come from a hash for the same reason.
"""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from perc.cost import DEFAULT_COST, PrefillCost

if TYPE_CHECKING:  # types imports jax, for which reading a grid need not wait
    from perc.types import Policy, Trace

DIGITS = 9  # significant ones of what is computed, so that all machines agree
ID_DIGITS = 16


@dataclass(frozen=True)
class TraceSpec:
    """A trace, or how to get it."""

    path: str | None = None  # a file, read with `options`
    workload: str | None = None  # a generator, called with `options`
    options: Mapping[str, Any] = field(default_factory=dict)
    made: "Trace | None" = None  # already there

    @property
    def seeded(self) -> bool:
        """Whether the seeds of the grid make different traces of it."""
        return self.workload is not None and "seed" not in self.options

    def identity(self, seed: int | None) -> dict:
        """What the trace is, as plain data."""
        if self.made is not None:
            from perc.traces.hashing import hash_of

            return {"sha256": hash_of(self.made)}
        given = {"path": self.path} if self.path else {"workload": self.workload}
        seeds = {} if seed is None else {"seed": seed}
        return {**given, **self.options, **seeds}


@dataclass(frozen=True)
class Draw:
    """A parameter that is drawn at random, `samples` times for each seed."""

    low: float
    high: float
    scale: str
    samples: int
    whole: bool = False  # rounded to a whole number

    def value(self, *key: object) -> float:
        """One draw; the same key gives the same."""
        digest = hashlib.sha256(json.dumps(key).encode()).digest()
        share = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
        return between(self.low, self.high, share, self.scale, self.whole)


@dataclass(frozen=True)
class PolicySpec:
    """A policy of the registry with values for its parameters, or a policy object."""

    name: str
    fixed: Mapping[str, tuple]  # all values of each parameter, defaults included
    draws: Mapping[str, Draw]
    takes_seed: bool = False  # it has a parameter `seed`
    made: "Policy | Any | None" = None  # already there
    digest: str | None = None  # of `made`

    @property
    def seeded(self) -> bool:
        """Whether the seeds of the grid make different policies of it."""
        return self.takes_seed or bool(self.draws)

    def settings(self, seed: int | None) -> Iterator[dict[str, Any]]:
        """The parameters of each configuration."""
        samples = max((draw.samples for draw in self.draws.values()), default=1)
        for values in itertools.product(*self.fixed.values()):
            grid = dict(zip(self.fixed, values, strict=True))
            for i in range(samples):
                drawn = {
                    name: draw.value(seed, self.name, name, i)
                    for name, draw in self.draws.items()
                }
                yield grid | drawn

    def build(self, params: Mapping[str, Any], seed: int | None) -> "Policy | Any":
        """The policy of one configuration."""
        if self.made is not None:
            return self.made
        seeds = {"seed": seed} if self.takes_seed else {}
        return constructors()[self.name](**params, **seeds)


@dataclass(frozen=True)
class Grid:
    """A whole sweep. `parse_grid` and `read_grid` make it, and check it."""

    traces: tuple[TraceSpec, ...]
    policies: tuple[PolicySpec, ...]
    capacities: tuple[int | float, ...]
    seeds: tuple[int, ...] = (0,)
    warmup: float = 0.0
    cost: PrefillCost = DEFAULT_COST

    @property
    def parameters(self) -> dict[str, type]:
        """Every parameter of every policy, with the type of its column."""
        found: dict[str, set[type]] = {}
        for spec in self.policies:
            for name, values in spec.fixed.items():
                types = {type(value) for value in values if value is not None}
                found.setdefault(name, set()).update(types)
            for name, draw in spec.draws.items():
                found.setdefault(name, set()).add(int if draw.whole else float)
        return {name: _column_type(types) for name, types in found.items()}


class Configuration(NamedTuple):
    """One policy with all its parameters on one trace."""

    id: str
    trace: int  # index into `Grid.traces`
    trace_seed: int | None
    policy: int  # index into `Grid.policies`
    seed: int | None  # None if nothing depends on it
    params: dict[str, Any]


def configurations(grid: Grid) -> list[Configuration]:
    """All of them in the order of the grid, those of one trace together, each once."""
    found: dict[str, Configuration] = {}
    for t, trace in enumerate(grid.traces):
        for trace_seed in grid.seeds if trace.seeded else (None,):
            what = [trace.identity(trace_seed), grid.warmup, asdict(grid.cost)]
            for p, seed, params in _policies(grid, trace_seed):
                spec = grid.policies[p]
                # The seed of a made trace is part of the trace.
                own = seed if spec.seeded else None
                key = digest([*what, spec.name, spec.digest, params, own])
                found.setdefault(
                    key, Configuration(key, t, trace_seed, p, seed, params)
                )
    return list(found.values())


def _policies(
    grid: Grid, trace_seed: int | None
) -> Iterator[tuple[int, int | None, dict]]:
    for p, spec in enumerate(grid.policies):
        seeds = grid.seeds if spec.seeded and trace_seed is None else (trace_seed,)
        for seed in seeds:
            for params in spec.settings(seed):
                yield p, seed, params


def describe(grid: Grid) -> dict:
    """The grid as plain data, for `sweep.json`."""
    return {
        "traces": [trace.identity(None) for trace in grid.traces],
        "policies": [
            {
                "name": spec.name,
                **({"sha256": spec.digest} if spec.digest else {}),
                **{name: list(values) for name, values in spec.fixed.items()},
                **{name: asdict(draw) for name, draw in spec.draws.items()},
            }
            for spec in grid.policies
        ],
        "capacities": list(grid.capacities),
        "seeds": list(grid.seeds),
        "warmup": grid.warmup,
        "cost": asdict(grid.cost),
    }


def digest(plain: object) -> str:
    """Short digest of plain data, the same everywhere."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


def between(low: float, high: float, share: float, scale: str, whole: bool) -> float:
    """The point that lies `share` of the way from low to high, ends included."""
    if share in (0, 1):
        value = high if share else low
    elif scale == "log":
        value = low * math.exp(share * math.log(high / low))
    else:
        value = low + share * (high - low)
    return round(value) if whole else float(f"{value:.{DIGITS}g}")


def constructors() -> Mapping[str, Any]:
    """Policies by name, looked up when asked for."""
    from perc.policies.registry import registry

    return registry


def _column_type(types: set[type]) -> type:
    if types <= {bool}:
        return bool
    if types <= {bool, int}:
        return int
    return float if types <= {bool, int, float} else str


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Reads a TOML file as described above.

    Raises:
        InputError: if it cannot be read, or for the first mistake in it, by name.
    """
    from perc.sweep_parse import read

    return read(os.fspath(path))


def parse_grid(table: Mapping[str, Any]) -> Grid:
    """Checks a dict of the same shape. Traces and policies may be objects.

    Raises:
        InputError: for the first mistake, by name.
    """
    from perc.sweep_parse import parse

    return parse(table)
