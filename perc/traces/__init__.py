"""Traces: read the published formats, write and read perc's own.

`perc.traces.formats` lists the formats; each has a module of its name here.
"""

import importlib
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from perc.errors import InputError, TraceWarning
from perc.traces.formats import FORMATS, Options, known_formats

if TYPE_CHECKING:  # types imports jax, which takes seconds; --help need not wait
    from perc.types import Trace

__all__ = ["load", "save"]


def load(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    block_tokens: int | None = None,
    sessions_per_hour: float | None = None,
    start_seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> "Trace":
    """Reads a trace.

    Args:
        path: the file, plain, .gz, .xz or .zst; for RAGPulse its folder or archive.
        format: a name of `perc.traces.formats.FORMATS`; "auto" goes by the content.
        block_tokens: tokens of a block, where the file does not tell; replaces the
            size that the format is published with.
        sessions_per_hour: density of the invented session starts, for a format
            without absolute times; by default all start within 24 hours.
        start_seed: of the invented session starts.
        progress: called with the share of the file that has been read, 0 to 1.

    Returns:
        The trace, requests sorted by arrival, times counted from the first.

    Raises:
        InputError: if the file or an argument is not as it must be; the message names
            file, line and field, and what to do.

    Warns:
        TraceWarning: whenever something of the file was dropped, changed or invented.
    """
    from perc.traces.detect import detect_format

    name = os.fspath(path)
    if block_tokens is not None and block_tokens < 1:
        raise InputError(f"--block-tokens is {block_tokens}, must be 1 or more.")
    if format != "auto" and format not in FORMATS:
        raise InputError(
            f"--format {format} is unknown; say auto, or one of\n{known_formats()}"
        )
    if format == "auto":
        format = detect_format(name)
    if sessions_per_hour is not None and format != "sessions":
        warnings.warn(
            f"{name}: has times of its own; --sessions-per-hour changes nothing.",
            TraceWarning,
            stacklevel=2,
        )
    reader = importlib.import_module(f"perc.traces.{format}")
    options = Options(block_tokens, sessions_per_hour, start_seed, progress)
    return reader.read(name, options)


def check_target(path: str | os.PathLike[str]) -> None:
    """Finds out before long work whether `save` can write there; makes no folder.

    Raises:
        InputError: if it cannot.
    """
    from perc.files import check_writable
    from perc.traces import parquet

    check_writable(parquet.named_parquet(path).parent)


def save(trace: "Trace", path: str | os.PathLike[str]) -> None:
    """Writes a trace as parquet, for `load` to read back unchanged.

    Args:
        trace: any trace.
        path: a name that ends in .parquet; a file of that name is replaced.

    Raises:
        InputError: if the file cannot be written.
    """
    from perc.traces import parquet

    parquet.write(trace, os.fspath(path))
