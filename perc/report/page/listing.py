"""The runs below a folder: which are there, finished, at work or damaged.

Links are not followed, neither folders nor files, so nothing outside is shown.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perc.errors import InputError
from perc.report.page.folders import (
    Run,
    describe,
    described_by,
    read_run,
    read_table,
    shown,
)

DEEPEST = 3  # folders below the one that is shown


@dataclass(frozen=True)
class Entry:
    """A run as a list shows it."""

    name: str  # path below the folder, the key of its page
    folder: Path
    command: str  # "?" of one whose JSON is damaged
    changed_s: float  # time of the last change, seconds since 1970
    finished: bool = True  # whether there is a page to show
    done: int | None = None  # configurations of a sweep
    total: int | None = None

    def read(self) -> Run:
        """The run, its own files only.

        Raises:
            InputError: if it is damaged.
        """
        return read_run(self.folder, links=False)


def list_runs(root: Path) -> dict[str, Entry]:
    """The runs below a folder by name, what changed last first."""
    found = [_entry(root, folder) for folder in _folders(root, DEEPEST)]
    known = [entry for entry in found if entry is not None]
    known.sort(key=lambda entry: (-entry.changed_s, entry.name))
    return {entry.name: entry for entry in known}


def damage(entry: Entry) -> str:
    """Why a finished run cannot be shown; nothing if it can."""
    return _damage(entry, _state_of(entry.folder))


@lru_cache(maxsize=4096)
def _damage(entry: Entry, _state: frozenset) -> str:
    """The same of a folder in this state: to read every table each time takes long."""
    try:
        entry.read()
    except InputError as error:
        return str(error)
    return ""


def _state_of(folder: Path) -> frozenset:
    try:
        with os.scandir(folder) as found:
            facts = [(one.name, one.stat(follow_symlinks=False)) for one in found]
    except OSError:
        return frozenset()
    return frozenset((name, s.st_ino, s.st_mtime_ns, s.st_size) for name, s in facts)


def _folders(folder: Path, deep: int) -> list[Path]:
    found = [folder]
    if deep:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            return found  # not ours to read, or gone
        for below in inside:
            if os.path.isdir(below) and not below.is_symlink():
                found += _folders(below, deep - 1)
    return found


def _entry(root: Path, folder: Path) -> Entry | None:
    path = described_by(folder)
    if path is None:
        return None
    try:
        changed = path.lstat().st_mtime
    except OSError:
        return None  # a run has just begun to replace it
    # No path below ends so: a run of the folder itself is told from one of its name.
    below = f"{root.name}/" if folder == root else shown(folder.relative_to(root))
    try:
        command, about = describe(folder, links=False)
    except InputError:
        return Entry(below, folder, "?", changed)
    if command == "sweep":
        return _sweep(below, folder, changed, about["configurations"])
    return Entry(below, folder, command, changed)


def _sweep(name: str, folder: Path, changed: float, total: int) -> Entry:
    if os.path.lexists(folder / "results.parquet"):
        return Entry(name, folder, "sweep", changed, True, total, total)
    done: set[str] = set()  # a configuration has a row for each capacity
    parts = folder / "parts"
    for part in [] if parts.is_symlink() else parts.glob("[!.]*.parquet"):
        try:
            done.update(read_table(part, ["config"], links=False)["config"])
            changed = max(changed, part.lstat().st_mtime)
        except (OSError, InputError):
            continue  # damaged, or the sweep has just merged its parts
    # More than all are of no sweep that perc made.
    return Entry(name, folder, "sweep", changed, False, min(len(done), total), total)
