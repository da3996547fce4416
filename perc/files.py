"""Writing results so that a reader never meets half a file."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from perc.errors import InputError


def check_writable(folder: Path) -> None:
    """Makes the folder, and finds out before long work whether it takes files.

    Raises:
        InputError: if it does not.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder.")
    name = f".probe-{os.getpid()}"
    write_atomically(folder / name, lambda path: None).unlink()


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
