"""Reads the folders that perc's commands write with `--out`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from perc.errors import InputError

# What a folder of each command has beside its JSON.
TABLES = {
    "compare": ("results", "curves", "groups"),
    "compare --rules": ("results", "classes"),
    "simulate": ("results", "series"),
    "plan": ("plan",),
    "sweep": ("results",),
    "vllm-benchmark": ("results",),
    "compare-models": ("results",),
    "show-job": ("results",),
}
IN_RUN_JSON = ("compare", "simulate", "vllm-benchmark", "compare-models", "show-job")
OPTIONAL = ("groups", "series")  # folders of an older perc have none


@dataclass(frozen=True)
class Run:
    """A folder: which command wrote it, what it says, and its tables."""

    folder: Path
    command: str  # one of TABLES
    about: dict[str, Any]  # run.json, plan.json or sweep.json
    tables: dict[str, pl.DataFrame]

    @property
    def source(self) -> str:
        """The trace, in a few words."""
        trace = self.about.get("trace", "")
        return trace["source"] if isinstance(trace, dict) else str(trace)


def read_run(folder: Path) -> Run:
    """Reads one folder.

    Raises:
        InputError: naming the folder and file, if it is none of perc's, was interrupted
            or is damaged.
    """
    command, about = _describe(folder)
    tables = {}
    for name in TABLES[command]:
        path = folder / f"{name}.parquet"
        if not path.exists():
            if name in OPTIONAL:
                continue
            raise InputError(
                f"{folder}: {path.name} is missing; the run was interrupted or a file "
                "was deleted. Run the command again."
            )
        try:
            tables[name] = pl.read_parquet(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise InputError(
                f"{path}: no parquet that can be read ({error}). Run the command again."
            ) from None
    return Run(folder, command, about, tables)


def _describe(folder: Path) -> tuple[str, dict[str, Any]]:
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder. perc compare, simulate, plan and sweep write "
            "one with --out."
        )
    for name, command in (("plan.json", "plan"), ("sweep.json", "sweep")):
        if (folder / name).exists():
            return command, _json(folder / name)
    path = folder / "run.json"
    if not path.exists():
        raise InputError(
            f"{folder}: no run.json, plan.json or sweep.json in it; it is no finished "
            "run of perc compare, simulate, plan or sweep."
        )
    about = _json(path)
    words = about.get("command") or []
    command = words[1] if len(words) > 1 else ""
    if command not in IN_RUN_JSON:
        raise InputError(f"{path}: of no command that a report can show: {words}.")
    if command == "compare" and "rules" in about:
        command = "compare --rules"
    return command, about


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no JSON that can be read ({error}).") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must hold one JSON object.")
    return found
