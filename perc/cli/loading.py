"""The flags with which every command that takes a trace is told how to read it."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from perc.traces.formats import FORMATS

if TYPE_CHECKING:
    from perc.types import Trace

_FORMAT_HELP = "auto: by the content. Otherwise: " + "; ".join(
    f"{name} ({about})" for name, about in FORMATS.items()
)


@dataclass(frozen=True)
class Loading:
    """How to read a trace."""

    format: Annotated[str, tyro.conf.arg(help=_FORMAT_HELP)] = "auto"
    block_tokens: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Tokens of a block, where the file does not tell or was cut otherwise."""
    sessions_per_hour: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """Density of session starts, where the file has no absolute times; by default all
    sessions start within 24 hours."""
    start_seed: int = 0
    """Seed of those starts."""


AS_IT_COMES = Loading()


def save_trace(trace: "Trace", path: "str | os.PathLike[str]", *, redact: bool) -> None:
    """Writes a trace, with --redact without the words of its file.

    Raises:
        InputError: if it cannot be written.
    """
    from perc.traces import save
    from perc.traces.redact import redacted

    save(redacted(trace) if redact else trace, path)


def open_trace(path: str, loading: Loading) -> "Trace":
    """Loads a trace, with progress on stderr if that is a terminal.

    Raises:
        InputError: if the file or a flag is not as it must be.
    """
    from perc.traces import load

    def read(progress=None) -> "Trace":
        return load(
            path,
            format=loading.format,
            block_tokens=loading.block_tokens,
            sessions_per_hour=loading.sessions_per_hour,
            start_seed=loading.start_seed,
            progress=progress,
        )

    if not sys.stderr.isatty():
        return read()
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"reading {path}", total=1.0)
        return read(lambda share: bar.update(task, completed=share))
