"""Mutation testing: one fault at a time is put into the code; a test must notice.

    python -m tests.mutants --sample 4        4 mutants of every module, and the list
    python -m tests.mutants step replay --sample 20
    python -m tests.mutants --named           the fixed list alone, named.toml

A mutant changes one comparison, operator, constant, condition, result or call. The
tests of its module (`modules.py` says which) run on it in a copy of the tree: `killed`
if one fails, `survived` if all pass, `timed out` after 30 s and twice what they took
without a fault. The working tree is never touched. Results go to a file after
every mutant, so that the command goes on where it was interrupted; a survivor is tried
again when the tests have changed, anything when the module has.

A tool of its own, and not cosmic-ray or mutmut: one runs the same command for all
mutants in place, the other forks a process in which JAX has threads. Here every module
has its own tests, samples have a seed, and compiled programs that a mutant does not
change come from a store.
"""

import argparse
import os
import resource
import signal
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from tests.mutants.faults import Mutant, sample
from tests.mutants.modules import modules, named
from tests.mutants.runs import Results, Trees


class Baselines:
    """Seconds that the tests of a module take without a fault; they must pass."""

    def __init__(self, trees: Trees, results: Results):
        self._trees, self._results = trees, results
        self._locks: defaultdict[tuple[str, ...], Lock] = defaultdict(Lock)

    def seconds(self, mutant: Mutant) -> float:
        sound = mutant._replace(line=0, column=0, start=0, old="", new="")
        with self._locks[mutant.tests]:
            known = self._results.of(sound)
            if known is None:
                outcome, said, seconds = self._trees.try_out(sound, 3600)
                if outcome != "survived":
                    raise SystemExit(f"without a fault, {mutant.tests} fail:\n{said}")
                self._results.note(sound, outcome, seconds)
                known = outcome, seconds
        return known[1]


def run(wanted: list[Mutant], trees: Trees, results: Results, workers: int) -> Counter:
    """Tries all mutants, prints each outcome, and counts (file, outcome)."""
    counts: Counter = Counter()
    baselines = Baselines(trees, results)

    def one(mutant: Mutant) -> tuple[Mutant, str, float]:
        known = results.of(mutant)
        if known is None:
            limit_s = 30 + 2 * baselines.seconds(mutant)
            outcome, _, seconds = trees.try_out(mutant, limit_s)
            results.note(mutant, outcome, seconds)
            known = outcome, seconds
        return mutant, *known

    pool = ThreadPoolExecutor(workers)
    try:
        for mutant, outcome, seconds in pool.map(one, wanted):
            counts[mutant.file, outcome] += 1
            print(f"{outcome:<9} {seconds:5.0f} s  {mutant}", flush=True)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        trees.stop()
        raise
    return counts


def table(counts: Counter) -> str:
    """Mutants, killed, timed out and survived of every file, and of all."""
    rows, outcomes = [], ("killed", "timed out", "survived")
    files = sorted({file for file, _ in counts})
    for name, of in [*((file, [file]) for file in files), ("all", files)]:
        row = [sum(counts[file, outcome] for file in of) for outcome in outcomes]
        share = 1 - row[2] / max(sum(row), 1)
        rows.append(f"{name:<34}" + "".join(f"{n:>10}" for n in row) + f"{share:>8.0%}")
    head = f"{'':<34}" + "".join(f"{outcome:>10}" for outcome in outcomes)
    return "\n".join(["", head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("modules", nargs="*", help="parts of file names; all if none")
    parser.add_argument("--sample", type=int, default=4, help="a file; 0 = all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--named", action="store_true", help="the fixed list alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=Path(tempfile.gettempdir()) / "perc-mutants"
    )
    given = parser.parse_args()
    chosen = [
        (file, tests)
        for file, tests in modules()
        if not given.modules or any(word in file for word in given.modules)
    ]
    wanted = []
    if not given.named:
        for file, tests in chosen:
            wanted += sample(file, tests, given.sample, given.seed)
    if given.named or not given.modules:
        wanted += named()
    given.out.mkdir(parents=True, exist_ok=True)
    os.nice(5)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops what it started
    resource.setrlimit(resource.RLIMIT_AS, (2**35, 2**35))  # a fault may ask for all
    with tempfile.TemporaryDirectory() as folder:
        trees = Trees(Path(folder), given.out / "programs", given.workers)
        results = Results(given.out / "results.json")
        counts = run(wanted, trees, results, given.workers)
    print(table(counts))


if __name__ == "__main__":
    main()
