"""Reading settings with errors that say what to do; writing so that no reader ever
meets half a file."""

import os
import re
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from perc.errors import InputError

T = TypeVar("T")
MANY_PARTS = re.compile(rb"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){99}")
POLICY_SUFFIX = ".npz"  # of files that `perc.policies.store` writes


def parquet_faults() -> tuple[type[BaseException], ...]:
    """What reading a damaged parquet file raises: some pages make polars panic."""
    import polars as pl

    return OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException


def load_toml(path: str) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        OSError, ValueError, RecursionError: if it cannot be read, or is no TOML.
    """
    with open(path, "rb") as file:
        text = file.read()
    if MANY_PARTS.search(text):  # tomllib's memory grows with the square of them
        raise ValueError("a key of more than 99 parts")
    return tomllib.loads(text.decode())


def read_toml(path: str, parse: Callable[[dict[str, Any]], T], wanted: str) -> T:
    """Parses the table of a TOML file; every error names the file.

    Args:
        path: of the file.
        parse: makes something of the table.
        wanted: what to give instead of a file that is none, a sentence.

    Raises:
        InputError: if the file cannot be read, is no TOML, or `parse` raises one.
    """
    try:
        table = load_toml(path)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: {error}. {wanted}") from None
    try:
        return parse(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def names_policy_file(text: str) -> bool:
    """Whether the word for a policy is the path of a file, not the name of one.

    Raises:
        InputError: if parameters follow the path.
    """
    path, suffix, settings = text.partition(f"{POLICY_SUFFIX}:")
    if suffix and not text.endswith(POLICY_SUFFIX):
        raise InputError(
            f"{path}{POLICY_SUFFIX} is a file: {settings!r} cannot change its "
            "parameters. Train another, or name a policy, as in perc_decay:tau_s=60."
        )
    return text.endswith(POLICY_SUFFIX)


def check_writable(folder: Path) -> None:
    """Finds out before long work whether a folder will take files.

    Where it does not exist the nearest one above it is tried, and nothing is made: what
    fails later leaves no empty folder behind.

    Raises:
        InputError: if it does not.
    """
    there = folder
    try:
        there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
        if there == folder and not folder.is_dir():
            raise InputError(f"{folder} is a file; choose another folder.")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        why = f"{there}: " if there != folder else ""
        raise InputError(
            f"{folder}: {why}{error.strerror}; choose another folder."
        ) from None


def _umask() -> int:
    mask = os.umask(0)  # the only way to read it is to set it
    os.umask(mask)
    return mask


def write_atomically(path: Path, write: Callable[[Path], object]) -> Path:
    """Lets `write` fill a temporary neighbour, then puts it in place of `path`.

    Raises:
        InputError: if the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; choose another folder.") from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
