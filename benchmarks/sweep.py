"""What does a configuration of a sweep cost, all in?

    python benchmarks/sweep.py [TRACE] [--configurations 1000] [--many 50]

Runs `perc sweep` as a person would, a process each, and counts everything: start, the
trace, compilation, LRU and the bound, the table. It is `perc_decay`; its `tau_s` and
`cost_weight` drawn at random: many configurations at one capacity, then fewer at many
capacities. The bars: 1,000 configurations at one capacity in 30 CPU seconds, 10 ms a
configuration and capacity where there are 32, and memory that does not grow with the
number of configurations.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
import tyro

SEED = 0
RUN = "from perc.cli import main; main()"
GRID = """
capacities = {capacities}
seeds = [{seed}]
[[traces]]
{trace}
[[policies]]
name = "perc_decay"
tau_s = {{ low = 1, high = 2000, scale = "log", samples = {configurations} }}
cost_weight = {{ low = 0, high = 1, samples = {configurations} }}
"""


class Spent(NamedTuple):
    """What one process took."""

    cpu_s: float
    peak_mib: float


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    configurations: int = 1000,
    many: int = 50,
    capacities: int = 32,
    block_tokens: int | None = None,
) -> None:
    """Measures sweeps.

    Args:
        trace: file of a trace; without one, the embedded chat traffic.
        configurations: at one capacity.
        many: configurations at many capacities.
        capacities: how many those are.
        block_tokens: tokens of a block, where the file does not tell.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=SEED)
    shares = np.geomspace(0.005, 0.5, capacities).round(6).tolist()
    table = common.table(
        "perc sweep, all in",
        "configurations",
        "capacities",
        "CPU s",
        "ms a row",
        "ms a configuration",
        "peak MiB",
    )
    spec = f'workload = "chat"\nseed = {SEED}' if trace is None else f"path = '{trace}'"
    if block_tokens is not None:
        spec += f"\nblock_tokens = {block_tokens}"
    runs = (
        (1, [0.05]),
        (max(configurations // 10, 1), [0.05]),
        (configurations, [0.05]),
        (many, shares),
    )
    for count, sizes in runs:
        spent = sweep(spec, count, sizes)
        table.add_row(
            f"{count:,}",
            f"{len(sizes)}",
            f"{spent.cpu_s:,.1f}",
            f"{1e3 * spent.cpu_s / count / len(sizes):,.2f}",
            f"{1e3 * spent.cpu_s / count:,.1f}",
            f"{spent.peak_mib:,.0f}",
        )
    common.console.print(table)


def sweep(trace: str, configurations: int, capacities: list[float]) -> Spent:
    """Runs `perc sweep` once; the table that it prints is left out."""
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.toml"
        grid.write_text(
            GRID.format(
                capacities=capacities,
                seed=SEED,
                trace=trace,
                configurations=configurations,
            )
        )
        words = ["sweep", f"@{grid}", "--out", f"{folder}/out"]
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, *words], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"perc {' '.join(words)} ended with {process.returncode}")
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
