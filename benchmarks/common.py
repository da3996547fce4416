"""What every benchmark needs: the traffic, the conditions, CPU time, optional peers."""

import importlib
import os
import platform
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # compare_command.py measures what these imports cost
    from perc.types import Trace

WIDE = 120  # columns where no terminal says otherwise, so that logs keep their tables
console = Console(
    highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE
)


def open_trace(path: Path | None, block_tokens: int | None) -> "Trace":
    """Loads a trace, or makes the embedded chat traffic if there is none."""
    import perc

    if path is None:
        return perc.make("chat")
    return perc.load(path, block_tokens=block_tokens)


def print_conditions(*traces: "Trace", seed: int, peers: Sequence[str] = ()) -> None:
    """Says under which conditions the numbers below were measured.

    Args:
        traces: what is replayed.
        seed: of whatever the benchmark draws itself.
        peers: distributions whose versions belong to the result.
    """
    from perc.traces.hashing import hash_of

    say(f"command   python {shlex.join(sys.argv)}")
    say(f"machine   {machine()}")
    say(f"versions  {versions(peers)}")
    say(f"seed      {seed}")
    for trace in traces:
        say(
            f"trace     {trace.source}: {trace.n_requests:,} requests, "
            f"{trace.n_accesses:,} accesses of {trace.n_blocks:,} blocks of "
            f"{trace.block_tokens} tokens"
        )
        say(f"          sha256 {hash_of(trace)}")


def machine() -> str:
    """Its processor, how many there are, its system."""
    return f"{_processor()}, {os.cpu_count()} logical CPUs, {platform.system()}"


def versions(peers: Sequence[str] = ()) -> str:
    """Of what a result depends on, and of installed peers."""
    names = ("perc-kv", "jax", "numpy", *peers)
    found = {"python": platform.python_version()} | dict(
        zip(names, map(_version, names), strict=True)
    )
    return ", ".join(f"{name} {number}" for name, number in found.items() if number)


def say(line: str) -> None:
    """Prints a line as it is, however long."""
    console.print(line, soft_wrap=True)


def optional(module: str, install: str) -> ModuleType | None:
    """A peer if it is installed; otherwise one line that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        say(f"skipped   {module} ({error}): pip install {install}")
        return None


def cpu_seconds() -> float:
    """User and system time so far of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def repeat(function: Callable[[], object], repeats: int) -> list[float]:
    """CPU seconds of each call; the caller has compiled what needs compiling."""
    taken = []
    for _ in range(repeats):
        began = cpu_seconds()
        function()
        taken.append(cpu_seconds() - began)
    return taken


def min_median(seconds: Sequence[float], scale: float = 1.0, digits: int = 1) -> str:
    """ "minimum / median" in another unit: other load only ever adds time."""
    least, middle = min(seconds) * scale, statistics.median(seconds) * scale
    return f"{least:,.{digits}f} / {middle:,.{digits}f}"


def table(title: str, *columns: str) -> Table:
    """An empty table: the first column to the left, numbers to the right."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left", no_wrap=True)
    return made


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The CPU's name; `platform` knows it on few systems."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [
        line.split(":")[1].strip() for line in lines if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or platform.machine()
