"""Checks a grid before any work: every mistake is named, with what to write instead."""

import hashlib
import inspect
import math
import os
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perc.errors import InputError, first_repeated
from perc.files import names_policy_file, read_toml
from perc.grid import Draw, Grid, PolicySpec, TraceSpec, between, constructors
from perc.traces.formats import FORMATS
from perc.workloads import generators

if TYPE_CHECKING:
    from perc.types import Policy

KEYS = ("traces", "policies", "capacities", "seeds", "warmup")
READING = {  # options of a trace file
    "format": str,
    "block_tokens": int,
    "sessions_per_hour": float,
    "start_seed": int,
}
RANGE, DRAW = ("from", "to", "steps"), ("low", "high", "samples")
SCALES = ("linear", "log")
LARGEST_SEED = 2**32 - 1
MOST = 1_000_000  # configurations of a grid
SCALARS = (bool, int, float, str)


def read(path: str) -> Grid:
    """`perc.grid.read_grid`."""
    wanted = "Give a TOML file of a grid; `perc sweep --help` has an example."
    return read_toml(path, parse, wanted)


def parse(table: Mapping[str, Any]) -> Grid:
    """`perc.grid.parse_grid`."""
    _known("the grid", table, KEYS)
    grid = Grid(
        traces=tuple(
            _trace(f"traces[{i}]", item)
            for i, item in enumerate(_list("traces", table.get("traces")))
        ),
        policies=_policies(_list("policies", table.get("policies"))),
        capacities=tuple(
            _capacity(item) for item in _list("capacities", table.get("capacities"))
        ),
        seeds=tuple(_seed(item) for item in _list("seeds", table.get("seeds", [0]))),
        warmup=_warmup(table.get("warmup", 0.0)),
    )
    _check_size(grid)
    _try_all(grid)
    return grid


def _known(where: str, table: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in table:
        if key not in keys:
            raise InputError(f"{where} has no {key!r}; it has: {', '.join(keys)}.")


def _list(key: str, given: Any) -> list:
    """A list with something in it, nothing twice."""
    if given is None:
        raise InputError(f"{key} is missing; give a list of one or more.")
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{key} is {given!r}; give a list, such as [{given!r}].")
    items = list(given)
    if not items:
        raise InputError(f"{key} is empty; give one or more.")
    plain = ((type(item), item) for item in items if isinstance(item, SCALARS))
    twice = first_repeated(plain)  # 1 is not 1.0 here, nor True
    if twice is not None:
        raise InputError(f"{key} has {twice[1]!r} twice; give each value once.")
    return items


def _number(where: str, given: Any, *, whole: bool = False) -> int | float:
    kind = Integral if whole else Real  # numpy's as well
    if isinstance(given, bool) or not isinstance(given, kind):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"{where} is {given!r}; give {kind}.")
    number = int(given) if isinstance(given, Integral) else float(given)
    if not abs(number) <= sys.float_info.max:  # math.isfinite fails beyond it
        raise InputError(f"{where} is {given!r}; give a finite number.")
    return number


def _seed(given: Any) -> int:
    seed = int(_number("seeds", given, whole=True))
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"seeds has {seed}; give 0 to {LARGEST_SEED}.")
    return seed


def _warmup(given: Any) -> float:
    warmup = float(_number("warmup", given))
    if not 0 <= warmup < 1:
        raise InputError(f"warmup is {warmup}; give a share from 0, below 1.")
    return warmup


def _capacity(given: Any) -> int | float:
    size = _number("capacities", given)
    if isinstance(size, float) and not 0 <= size <= 1:
        raise InputError(
            f"capacities has {size}, no share of the working set; give 0.0 to 1.0, or "
            "a whole number of blocks."
        )
    if size < 0:
        raise InputError(f"capacities has {size} blocks; give 0 or more.")
    return size


def _trace(where: str, given: Any) -> TraceSpec:
    if isinstance(given, str | os.PathLike):
        return _file(where, os.fspath(given), {})
    if not isinstance(given, Mapping):
        if not hasattr(given, "block_tokens"):
            raise InputError(f"{where} is {given!r}; give a path or a table.")
        return TraceSpec(made=given)
    options = dict(given)
    if ("path" in options) == ("workload" in options):
        raise InputError(f"{where} must name a path or a workload, one of them.")
    if "path" in options:
        return _file(where, options.pop("path"), options)
    workload = options.pop("workload")
    if not isinstance(workload, str) or workload not in generators:
        raise InputError(
            f"{where}.workload is {workload!r}; there are {', '.join(generators)}."
        )
    _known(
        f"{where}, {workload},",
        options,
        inspect.signature(generators[workload]).parameters,
    )
    if "seed" in options:
        _number(f"{where}.seed", options["seed"], whole=True)
    return TraceSpec(workload=workload, options=options)


def _file(where: str, path: Any, options: dict) -> TraceSpec:
    if not isinstance(path, str) or not Path(path).exists():
        raise InputError(f"{where}.path is {path!r}: there is no such file.")
    _known(where, options, ("path", *READING))
    for name, value in options.items():
        if READING[name] is not str:
            _number(f"{where}.{name}", value, whole=READING[name] is int)
    if options.get("format", "auto") not in ("auto", *FORMATS):
        raise InputError(
            f"{where}.format is {options['format']!r}; there are {', '.join(FORMATS)}."
        )
    return TraceSpec(path=path, options=options)


def _policies(items: list) -> tuple[PolicySpec, ...]:
    files = _policy_files(items)
    return tuple(_policy(f"policies[{i}]", item, files) for i, item in enumerate(items))


def _policy_files(items: list) -> dict[str, PolicySpec]:
    """The policies of those items that name files, by path."""
    names = (item.get("name") if isinstance(item, Mapping) else item for item in items)
    paths = [
        name for name in names if isinstance(name, str) and names_policy_file(name)
    ]
    if not paths:
        return {}
    from perc.compare import resolve  # imports jax

    found = zip(paths, resolve(paths), strict=True)
    return {
        path: PolicySpec(policy.name, {}, {}, made=policy, digest=_sha256(path))
        for path, policy in found
    }


def _sha256(path: str) -> str:
    """Of a file: what a policy is made of may not show in its parameters."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _policy(where: str, given: Any, files: Mapping[str, PolicySpec]) -> PolicySpec:
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping):
        if not hasattr(given, "name"):
            raise InputError(f"{where} is {given!r}; give a name or a table.")
        return PolicySpec(given.name, {}, {}, made=given, digest=_content(given))
    known = constructors()
    name = given.get("name")
    if not isinstance(name, str):
        raise InputError(f"{where}.name is {name!r}; there are {', '.join(known)}.")
    if name in files:
        if len(given) > 1:
            raise InputError(
                f"{where}: {name} is a file, whose parameters are fixed; give "
                "its name alone, or vary those of a named policy."
            )
        return files[name]
    if name not in known:
        raise InputError(f"{where}.name is {name!r}; there are {', '.join(known)}.")
    allowed = dict(inspect.signature(known[name]).parameters)
    takes_seed = allowed.pop("seed", None) is not None
    if "seed" in given:
        raise InputError(f"{where}.seed: give seeds = [...] beside capacities instead.")
    _known(f"{where}, {name},", given, ("name", *allowed))
    fixed, draws = {}, {}
    for key, parameter in allowed.items():
        value = given.get(key, parameter.default)
        if key not in given and not isinstance(value, (*SCALARS, type(None))):
            continue  # the constructor knows what it means; no column could hold it
        found = _values(f"{where}.{key}", value, parameter)
        (draws if isinstance(found, Draw) else fixed)[key] = found
    _same_samples(where, draws)
    return PolicySpec(name, fixed, draws, takes_seed)


def _values(where: str, given: Any, parameter: inspect.Parameter) -> tuple | Draw:
    """Every value of a parameter, or how to draw it."""
    whole = parameter.annotation is int
    if isinstance(given, Mapping):
        return _spread(where, given, whole)
    if isinstance(given, SCALARS) or given is None:
        given = [given]
    return tuple(_value(where, item, parameter) for item in _list(where, given))


def _value(where: str, given: Any, parameter: inspect.Parameter) -> Any:
    if given is None and parameter.default is None:
        return None
    kind = parameter.annotation
    if kind is float:
        return float(_number(where, given))
    if kind is int:
        return _number(where, given, whole=True)
    if not isinstance(given, kind if kind in (bool, str) else SCALARS):
        raise InputError(f"{where} is {given!r}; give {kind}.")
    return given


def _spread(where: str, given: Mapping[str, Any], whole: bool) -> tuple | Draw:
    """A range or a random distribution."""
    keys = DRAW if set(given) & set(DRAW) else RANGE
    if not set(keys) <= set(given) <= {*keys, "scale"}:
        raise InputError(
            f"{where} has {', '.join(given) or 'nothing'}; give a list, a range "
            "{from, to, steps, scale} or a distribution {low, high, samples, scale}."
        )
    low, high = (_number(f"{where}.{key}", given[key]) for key in keys[:2])
    count = int(_number(f"{where}.{keys[2]}", given[keys[2]], whole=True))
    scale = given.get("scale", "linear")
    if scale not in SCALES:
        raise InputError(f"{where}.scale is {scale!r}; give linear or log.")
    if not low < high or (scale == "log" and low <= 0):
        above = " above 0" if scale == "log" else ""
        raise InputError(
            f"{where} goes from {low} to {high}; give two rising numbers{above}."
        )
    if count < (1 if keys is DRAW else 2):
        raise InputError(f"{where}.{keys[2]} is {count}; give more.")
    if count > MOST:
        raise InputError(f"{where}.{keys[2]} is {count}; give {MOST:,} at most.")
    if keys is DRAW:
        return Draw(low, high, scale, count, whole)
    steps = (between(low, high, i / (count - 1), scale, whole) for i in range(count))
    return tuple(dict.fromkeys(steps))


def _same_samples(where: str, draws: Mapping[str, Draw]) -> None:
    """Parameters are drawn together, so they must be drawn equally often."""
    counts = {name: draw.samples for name, draw in draws.items()}
    if len(set(counts.values())) > 1:
        raise InputError(
            f"{where}: samples differ: {counts}. The parameters of one policy are "
            "drawn together; give all the same samples, or two policies."
        )


def _content(policy: "Policy | Any") -> str:
    """Digest of what a policy object holds, but for its code."""
    import jax
    import numpy as np

    found = hashlib.sha256()
    leaves, structure = jax.tree.flatten(getattr(policy, "params", ()))
    found.update(str((policy.name, structure)).encode())
    for leaf in map(np.asarray, leaves):
        found.update(str((leaf.dtype, leaf.shape)).encode() + leaf.tobytes())
    return found.hexdigest()


def _check_size(grid: Grid) -> None:
    """Counts configurations before the first is made."""
    seeds = len(grid.seeds)
    traces = sum(seeds if trace.seeded else 1 for trace in grid.traces)
    policies = sum(
        math.prod(map(len, spec.fixed.values()))
        * max((draw.samples for draw in spec.draws.values()), default=1)
        * (seeds if spec.seeded else 1)
        for spec in grid.policies
    )
    if traces * policies > MOST:
        raise InputError(
            f"{traces * policies:,} configurations, at most {MOST:,}; give fewer "
            "values, steps, samples or seeds, or several grids."
        )


def _try_all(grid: Grid) -> None:
    """Builds every policy once, so that none fails hours later."""
    for i, spec in enumerate(grid.policies):
        for seed in grid.seeds if spec.seeded else (None,):
            for params in spec.settings(seed):
                try:
                    spec.build(params, seed)
                except InputError as error:
                    raise InputError(f"policies[{i}]: {error}") from None
