"""The runs below a folder: which are there, finished or at work."""

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

DEEPEST = 3  # folders below the one that is shown


@dataclass(frozen=True)
class Entry:
    """A run as a list shows it."""

    name: str  # path below the folder, the key of its page
    folder: Path
    command: str
    changed_s: float  # time of the last change, seconds since 1970
    done: int | None = None  # configurations of a sweep
    total: int | None = None  # None of one whose sweep.json does not tell

    @property
    def finished(self) -> bool:
        """Whether there is a page to show."""
        return self.command != "sweep" or (self.folder / "results.parquet").exists()


def list_runs(root: Path) -> dict[str, Entry]:
    """The runs below a folder by name, what changed last first.

    Links are not followed, so nothing outside the folder is listed.
    """
    found = [_entry(root, folder) for folder in _folders(root, DEEPEST)]
    known = [entry for entry in found if entry is not None]
    known.sort(key=lambda entry: (-entry.changed_s, entry.name))
    return {entry.name: entry for entry in known}


def _folders(folder: Path, deep: int) -> list[Path]:
    found = [folder]
    if deep:
        for below in sorted(folder.iterdir()):
            if below.is_dir() and not below.is_symlink():
                found += _folders(below, deep - 1)
    return found


def _entry(root: Path, folder: Path) -> Entry | None:
    for name in ("run.json", "plan.json", "sweep.json"):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            below = folder.relative_to(root).as_posix()
            name = root.name if below == "." else below
            changed = path.stat().st_mtime
            if path.name == "sweep.json":
                return _sweep(name, folder, changed, _read(path))
            command = "plan" if path.name == "plan.json" else _command(_read(path))
            return Entry(name, folder, command, changed)
    return None


def _read(path: Path) -> dict:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _command(about: dict) -> str:
    words = about.get("command")
    return str(words[1]) if isinstance(words, list) and len(words) > 1 else "?"


def _sweep(name: str, folder: Path, changed: float, about: dict) -> Entry:
    total = about.get("configurations")
    total = total if isinstance(total, int) else None
    if (folder / "results.parquet").exists():
        return Entry(name, folder, "sweep", changed, total, total)
    done = 0
    for part in (folder / "parts").glob("[!.]*.parquet"):
        try:
            done += pl.scan_parquet(part).select(pl.len()).collect().item()
            changed = max(changed, part.stat().st_mtime)
        except (OSError, pl.exceptions.PolarsError):
            continue  # the sweep has just merged its parts
    return Entry(name, folder, "sweep", changed, done, total)
