"""Reads the folders that perc's commands write with `--out`.

Whatever stands in a folder is checked here, once: what is behind can trust a `Run`.
"""

import errno
import io
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from perc.errors import InputError
from perc.files import parquet_faults
from perc.printable import printable
from perc.report.page.shape import AGAIN, COLUMNS, check_about, check_table

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
DESCRIBED = ("plan.json", "sweep.json", "run.json")  # the first that is there counts
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


def read_run(folder: Path, *, links: bool = True) -> Run:
    """Reads one folder.

    Args:
        folder: as a command wrote it.
        links: whether its files may be links to files elsewhere.

    Raises:
        InputError: naming the folder and file, if it is none of perc's, was interrupted
            or is damaged.
    """
    command, about = describe(folder, links=links)
    tables = {}
    for name in TABLES[command]:
        path = folder / f"{name}.parquet"
        if not os.path.lexists(path):
            if name in OPTIONAL:
                continue
            raise InputError(
                f"{folder}: {path.name} is missing; the run was interrupted or a file "
                "was deleted. Run the command again."
            )
        tables[name] = read_table(path, links=links)
        check_table(path, COLUMNS[command][name], tables[name])
    return Run(folder, command, about, tables)


def described_by(folder: Path) -> Path | None:
    """The JSON that makes a folder a run, if it has one; perhaps not a readable one."""
    paths = (folder / name for name in DESCRIBED)
    return next((path for path in paths if os.path.lexists(path)), None)


def describe(folder: Path, *, links: bool = True) -> tuple[str, dict[str, Any]]:
    """Which command wrote a folder, and what its JSON says.

    Raises:
        InputError: as `read_run` does.
    """
    check_name(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder. perc compare, simulate, plan and sweep write "
            "one with --out."
        )
    path = described_by(folder)
    if path is None:
        raise InputError(
            f"{folder}: no run.json, plan.json or sweep.json in it; it is no finished "
            "run of perc compare, simulate, plan or sweep."
        )
    about = _json(path, links)
    command = path.stem if path.name != "run.json" else _command(path, about)
    check_about(path, command, about)
    return command, about


def check_name(folder: Path) -> None:
    """Refuses a folder that no page could name.

    Raises:
        InputError: if there are bytes in its path that are no text, or controls.
    """
    if shown(folder) != str(folder):
        raise InputError(
            f"{shown(folder)}: its name holds bytes that are no text, or a control "
            "character such as a newline; rename the folder."
        )


def shown(path: Path) -> str:
    """A path as text that any page can hold: what is no text is escaped.

    >>> shown(Path("a\\nb")), shown(Path("caf\u00e9"))
    ('a\\\\nb', 'caf\u00e9')
    """
    return printable(str(path))


def read_table(
    path: Path, columns: list[str] | None = None, *, links: bool = True
) -> pl.DataFrame:
    """A parquet file.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        return pl.read_parquet(io.BytesIO(_bytes(path, links)), columns=columns)
    except parquet_faults() as error:
        raise InputError(
            f"{path}: no parquet that can be read ({error}). Run the command again."
        ) from None


def _command(path: Path, about: dict[str, Any]) -> str:
    words = about.get("command")
    command = words[1] if isinstance(words, list) and len(words) > 1 else None
    if command not in IN_RUN_JSON:
        raise InputError(
            f"{path}: of no command that a report can show: "
            f"{json.dumps(words)[:80]}. {AGAIN}"
        )
    ruled = command == "compare" and "rules" in about
    return "compare --rules" if ruled else command


def _json(path: Path, links: bool) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path, links))
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate is no text
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: no JSON that can be read ({error}). Run the command again."
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: must hold one JSON object. {AGAIN}")
    return found


def _bytes(path: Path, links: bool) -> bytes:
    """A file; one that is a pipe is not waited for."""
    more = os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        with open(path, "rb", opener=lambda p, flags: os.open(p, flags | more)) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file.read()
    except OSError as error:
        if links or error.errno != errno.ELOOP:
            raise
        raise InputError(
            f"{path}: is a link, and perc serve follows none. Put the file itself here."
        ) from None
    raise InputError(f"{path}: is no regular file. Run the command again.")
