"""What the files of each command hold, checked before anything is shown of them.

{"key": shape}     an object that has the key; "key?" may be absent, "*" is any key
[shape]            a list of it, (shape,) one that is not empty
TEXT, NUMBER, ...  a value, by its name in messages
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from perc.errors import InputError

TEXT, NUMBER, MAYBE = "a text", "a finite number", "a finite number or null"
COUNT, TRACE = "a whole number, not negative", "a text, or an object with a source"
PLAIN = "a text, a finite number or null"
# Kinds of columns.
NAME, KEY, REAL, FIGURE = "texts", "whole numbers", "real numbers", "numbers"
ANY = "numbers or texts"
AGAIN = "It is damaged, or of another version of perc. Run the command again."


def _is_number(value: Any) -> bool:
    """Of 64 bits; NaN is none."""
    if type(value) is int:
        return abs(value) < 2**63
    return isinstance(value, float) and abs(value) < float("inf")


VALUES: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    NUMBER: _is_number,
    MAYBE: lambda value: value is None or _is_number(value),
    PLAIN: lambda value: value is None or isinstance(value, str) or _is_number(value),
    COUNT: lambda value: type(value) is int and 0 <= value < 2**63,
    TRACE: lambda value: (
        isinstance(value, str)
        or (isinstance(value, dict) and isinstance(value.get("source"), str))
    ),
}
# Rows are told apart by NAME, KEY and REAL, so these have no gaps; a figure may.
DTYPES: dict[str, Callable[[pl.DataType], bool]] = {
    NAME: lambda dtype: dtype == pl.String,
    KEY: lambda dtype: dtype == pl.Int64,
    REAL: lambda dtype: dtype == pl.Float64,
    FIGURE: lambda dtype: dtype.is_integer() or dtype.is_float() or dtype == pl.Null,
    ANY: lambda dtype: dtype in (pl.String, pl.Boolean) or DTYPES[FIGURE](dtype),
}

_SAYS = {"verdict": [TEXT], "clairvoyant?": [TEXT]}
_WHY = {
    "misses?": {
        "rows": (
            {
                "policy": TEXT,
                "capacity_blocks": NUMBER,
                "group": TEXT,
                "prompt_tokens": NUMBER,
                "hit_tokens": NUMBER,
                "misses": {"*": {"tokens": NUMBER}},
            },
        ),
        "definitions": {"*": TEXT},
    }
}
_NEED = {
    "policy": TEXT,
    "goal": TEXT,
    **dict.fromkeys(("target", "capacity_gib", "capacity_blocks", "of_lru"), MAYBE),
    **dict.fromkeys(("low_blocks?", "high_blocks?", "reached?", "best?"), MAYBE),
    **dict.fromkeys(("of_lru_low?", "of_lru_high?"), MAYBE),
    "method?": TEXT,
    "*": PLAIN,
}
_KNEE = {
    "policy": TEXT,
    **dict.fromkeys(("capacity_gib", "capacity_blocks", "block_hit_ratio"), NUMBER),
}
_ENGINES = {"verdict": [TEXT], "repeats": NUMBER, "at_once": NUMBER}
EVERY = {
    "command?": [TEXT],
    "versions?": {},
    "definitions?": {},
    "trace?": TRACE,
    "trace_sha256?": TEXT,
}
ABOUT: dict[str, dict[str, Any]] = {
    "compare": _SAYS | _WHY,
    "compare --rules": _SAYS | _WHY,
    "simulate": {
        "machine": {"model": TEXT, "tp": NUMBER, "gpu": TEXT},
        "server": {"capacity_blocks": NUMBER},
        "limits?": {"*": NUMBER},
        "notes?": [TEXT],
    },
    "plan": {"knees": [_KNEE], "needs": [_NEED]},
    "sweep": {"configurations": COUNT},
    "vllm-benchmark": _ENGINES,
    "compare-models": _ENGINES,
    "show-job": _ENGINES,
}

_POINT = {"policy": NAME, "capacity_blocks": KEY}
_ROW = _POINT | {"block_hit_ratio": FIGURE}
_TRIALS = {"results": {"arm": NAME, "repeat": KEY}}
COLUMNS: dict[str, dict[str, dict[str, str]]] = {
    "compare": {
        "results": _ROW | {"token_hit_ratio": FIGURE, "recompute_s": FIGURE},
        "curves": _ROW,
        "groups": _POINT
        | {"by": NAME, "group": NAME}
        | dict.fromkeys(("token_hit_ratio", "low", "high", "gain"), FIGURE),
    },
    "compare --rules": {
        "results": _ROW
        | dict.fromkeys(
            ("without_block_hit_ratio", "without_recompute_s", "recompute_s"), FIGURE
        ),
        "classes": _POINT
        | {"by": NAME, "name": NAME, "without": FIGURE, "with_rules": FIGURE},
    },
    "simulate": {
        "results": {"policy": NAME, "load": REAL}
        | dict.fromkeys(("ttft_s_p50", "goodput_per_s", "recompute_s"), FIGURE),
        "series": {"policy": NAME, "load": REAL, "time_s": FIGURE, "queued": FIGURE},
    },
    "plan": {
        "plan": _ROW | {"capacity_gib": FIGURE, "saved_s_per_gib_hour": FIGURE},
    },
    "sweep": {
        "results": {"trace": NAME, "trace_sha256": NAME}
        | _ROW
        | dict.fromkeys(
            ("lru_block_hit_ratio", "bound_block_hit_ratio", "gap_closed"), FIGURE
        ),
    },
    **dict.fromkeys(("vllm-benchmark", "compare-models", "show-job"), _TRIALS),
}
# Columns that are numbers in whatever table they are, beside NAME_low and NAME_high.
FIGURES = {
    *("token_hit_ratio", "recompute_tokens", "recompute_s", "gap_closed", "gain"),
    *("requests", "blocks", "input_tokens", "ttft_s_p99", "tpot_s_p50", "e2e_s_p50"),
    *("evictions", "preemptions", "rejected", "hit_share", "ttft_mean_ms"),
    *("ttft_p50_ms", "ttft_p99_ms", "output_per_s", "same_answers"),
}
ENDS = {"_low": "_high", "_high": "_low"}


def check_about(path: Path, command: str, about: dict[str, Any]) -> None:
    """Checks what a run's JSON says against `ABOUT`.

    Raises:
        InputError: naming the file, the place in it and what must stand there.
    """
    _check(path, about, EVERY | ABOUT[command], "")
    misses = about.get("misses")
    if misses is None:
        return
    causes = set(misses["rows"][0]["misses"])
    for i, row in enumerate(misses["rows"]):
        if set(row["misses"]) != causes:
            raise InputError(
                f"{path}: misses.rows[{i}].misses has other causes than the first "
                f"row. {AGAIN}"
            )
    if unknown := causes - set(misses["definitions"]):
        raise InputError(
            f"{path}: misses.definitions.{min(unknown)} is missing. {AGAIN}"
        )


def _check(path: Path, value: Any, shape: Any, at: str) -> None:
    if isinstance(shape, str):
        if not VALUES[shape](value):
            raise _wrong(path, at, value, shape)
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise _wrong(path, at, value, "an object")
        for key, inner in shape.items():
            name = key.removesuffix("?")
            for found in value if key == "*" else [name] * (name in value):
                _check(path, value[found], inner, f"{at}.{found}".lstrip("."))
            if key == name != "*" and name not in value:
                place = f"{at}.{name}".lstrip(".")
                raise InputError(f"{path}: {place} is missing. {AGAIN}")
    else:
        if not isinstance(value, list):
            raise _wrong(path, at, value, "a list")
        if isinstance(shape, tuple) and not value:
            raise _wrong(path, at, value, "a list of one or more")
        for i, one in enumerate(value):
            _check(path, one, shape[0], f"{at}[{i}]")


def _wrong(path: Path, at: str, value: Any, wanted: str) -> InputError:
    found = json.dumps(value)
    found = found if len(found) <= 40 else f"{found[:40]}..."
    return InputError(f"{path}: {at} is {found}, must be {wanted}. {AGAIN}")


def check_table(path: Path, columns: dict[str, str], table: pl.DataFrame) -> None:
    """Checks that a table has the columns, of their kind, and nothing that is nested.

    Raises:
        InputError: naming the file and the column.
    """
    for name, kind in columns.items():
        _check_there(path, name, table)
        if kind != FIGURE and (gaps := table[name].null_count()):
            raise InputError(
                f"{path}: {name} is empty in {gaps:,} of {len(table):,} rows. {AGAIN}"
            )
    for name, dtype in table.schema.items():
        end = name[name.rfind("_") :]
        if end in ENDS:
            _check_there(path, name.removesuffix(end) + ENDS[end], table)
        usual = FIGURE if name in FIGURES or end in ENDS else ANY
        kind = columns.get(name, usual)
        if not DTYPES[kind](dtype):
            raise InputError(f"{path}: {name} has {dtype}, must be {kind}. {AGAIN}")


def _check_there(path: Path, name: str, table: pl.DataFrame) -> None:
    if name not in table.columns:
        raise InputError(f"{path}: the column {name} is missing. {AGAIN}")
