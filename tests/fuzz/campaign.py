"""Hostile files for target after target, each tried in a worker process.

A process of its own, so that a crash or a hang of native code is found as well.
"""

import multiprocessing
import resource
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.attempt import Outcome, attempt
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets

DATA = 12 << 30  # bytes that a worker may hold; what asks for more has failed
SHOWN = 3  # failures of a target that are kept


class Plan(NamedTuple):
    """What is tried, and how long."""

    names: list[str]  # of targets
    seed: int
    share_s: float  # of each
    limit_s: float  # of a file
    mib: float


@dataclass
class Tally:
    """What became of the files of a target."""

    name: str
    tried: int = 0
    read: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    most_mib: float = 0.0
    failures: dict[str, Path] = field(default_factory=dict)  # by what was said

    def count(self, outcome: Outcome) -> None:
        self.tried += 1
        self.read += outcome.read and not outcome.failed
        self.failed += outcome.failed
        self.slowest_s = max(self.slowest_s, outcome.seconds)
        self.most_mib = max(self.most_mib, outcome.mib)


def fuzz(target: Target, plan: Plan, folder: Path) -> Tally:
    """Tries hostile files until the time is up. `folder` holds what is being tried."""
    tally = Tally(target.name)
    draw, seeds = Random(f"{plan.seed} {target.name}"), target.seeds()
    for data in seeds:  # compiles what is compiled, and shows that they are valid
        outcome = attempt(target, target.pack(data, Whole()), folder, seconds=300)
        if outcome.failed or not outcome.read:
            raise AssertionError(f"{target.name}: a seed is refused: {outcome.said}")
    kinds: set[str] = set()
    end = time.monotonic() + plan.share_s
    while time.monotonic() < end or not tally.tried:
        data = target.pack(target.mutate(seeds, draw), draw)
        outcome = attempt(target, data, folder, seconds=plan.limit_s, mib=plan.mib)
        tally.count(outcome)
        kind = "\n".join(outcome.said.splitlines()[-5:])[:600]
        if outcome.failed and kind not in kinds and len(kinds) < SHOWN:
            kinds.add(kind)
            tally.failures[outcome.said] = _keep(target, data, folder)
    return tally


class Whole(Random):
    """Draws nothing but the archive as it is."""

    def random(self) -> float:
        return 0.9


def _keep(target: Target, data: bytes, folder: Path) -> Path:
    name = f"{target.name}-{len(list(folder.parent.glob('*.kept')))}.kept"
    path = folder.parent / name.replace(" ", "-").replace(",", "")
    path.write_bytes(data)
    return path


def _work(names: list[str], plan: Plan, out: Path, to: Connection):
    """In a process of its own: sends the name of a target, then its tally."""
    resource.setrlimit(resource.RLIMIT_DATA, (DATA, DATA))
    targets = all_targets()
    for name in names:
        to.send(name)
        folder = out / "tried"
        folder.mkdir(exist_ok=True)
        to.send(fuzz(targets[name], plan, folder))


def run(plan: Plan, out: Path) -> list[Tally]:
    """Tallies of all targets; a worker that dies or hangs is replaced."""
    left, found = list(plan.names), []
    while left:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        worker = multiprocessing.get_context("spawn").Process(
            target=_work, args=(left, plan, out, theirs), daemon=True
        )
        worker.start()
        theirs.close()
        tally = _listen(ours, left, found, plan)
        if tally is not None:
            worker.kill()
            worker.join()
            tried = out / "tried" / all_targets()[tally.name].file
            kept = out / f"{tally.name.replace(' ', '-')}-dead.kept"
            kept.write_bytes(tried.read_bytes() if tried.is_file() else b"")
            why = f"the process died or hung (exit code {worker.exitcode})"
            tally.failures[why] = kept
            found.append(tally)
        worker.join()
    return found


def _listen(
    worker: Connection, left: list[str], found: list[Tally], plan: Plan
) -> Tally | None:
    """Takes finished targets out of `left`; returns that of a worker that is lost."""
    most_s = plan.share_s + 2 * plan.limit_s + 300
    name = left[0]
    try:
        while left:
            if not worker.poll(most_s):
                raise EOFError
            told = worker.recv()
            if isinstance(told, str):
                name = told
                continue
            found.append(told)
            left.remove(name)
            print(f"{name}: {told.tried:,} tried", file=sys.stderr, flush=True)
    except (EOFError, ConnectionError):
        left.remove(name)
        return Tally(name)
    return None
