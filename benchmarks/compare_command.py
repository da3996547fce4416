"""How much CPU time does the whole `perc compare` take, and where does it go?

    python benchmarks/compare_command.py [TRACE]

The command runs five policies at five capacities in a process of its own, whose user
and system time is what counts. Then it runs twice inside this process, with clocks
around its parts: what the first run takes more than the second is compilation and late
imports. Bar: 20 s of CPU time.
"""

import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import common
import tyro

from perc.cli import main as perc_main

# From the start of the process: the interpreter, perc, jax, tyro and rich.
IMPORTED_S = time.process_time()
BAR_S = 20.0
POLICIES, CAPACITIES = "lru,perc,priority,lfu,belady", "1000,3000,10000,30000,100000"
PARTS = {  # what `perc compare` calls, and the part of its time that this is
    "perc.traces.load": "load",
    "perc.workloads.make": "load",
    "perc.compare.scores": "score and rank",
    "perc.compare.ranks": "score and rank",
    "perc.compare.replay": "replay",
}
COMMAND = [sys.executable, "-c", "from perc.cli import main; main()"]


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
    policies: str = POLICIES,
    capacities: str = CAPACITIES,
    repeats: int = 5,
) -> None:
    """Times the whole command.

    Args:
        trace: file of the trace; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
        policies: as for `perc compare`.
        capacities: as for `perc compare`.
        repeats: runs of the command.
    """
    words = ["compare", *([str(trace)] if trace else [])]
    words += ["--policies", policies, "--capacities", capacities]
    if block_tokens:
        words += ["--block-tokens", str(block_tokens)]
    splits = [split(words), split(words)]
    common.print_conditions(common.open_trace(trace, block_tokens), seed=0)
    common.say(f"measured  perc {' '.join(words)}")
    taken = common.repeat(lambda: run_command(words), repeats)
    table = common.table("CPU seconds", "part", "first run", "second run")
    table.add_row("start and imports", f"{IMPORTED_S:.2f}", "")
    for part in splits[0]:
        table.add_row(part, *(f"{seconds[part]:.2f}" for seconds in splits))
    totals = [sum(seconds.values()) for seconds in splits]
    table.add_section()
    table.add_row("sum", f"{IMPORTED_S + totals[0]:.2f}", f"{totals[1]:.2f}")
    common.console.print(table)
    common.say(
        f"whole command, {repeats} runs: {common.min_median(taken, digits=2)} CPU s "
        f"(minimum / median); bar {BAR_S:.0f} s: "
        + ("holds" if max(taken) < BAR_S else "DOES NOT HOLD")
    )


def run_command(words: list[str]) -> None:
    """The command in a process of its own."""
    subprocess.run([*COMMAND, *words], check=True, capture_output=True)


def split(words: list[str]) -> dict[str, float]:
    """CPU seconds by part of one run in this process."""
    seconds = {part: 0.0 for part in [*PARTS.values(), "rest"]}
    began = time.process_time()
    with contextlib.ExitStack() as stack:
        for name, part in PARTS.items():
            stack.enter_context(_clock(name, seconds, part))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        perc_main(words)
    seconds["rest"] = time.process_time() - began - sum(seconds.values())
    return seconds


@contextlib.contextmanager
def _clock(name: str, seconds: dict[str, float], part: str) -> Iterator[None]:
    """Adds the time of each call of a function to its part."""
    module, _, attribute = name.rpartition(".")
    function: Callable = getattr(sys.modules[module], attribute)

    def timed(*args, **kwargs):
        began = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[part] += time.process_time() - began

    with mock.patch.object(sys.modules[module], attribute, timed):
        yield


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
