"""Policies beside each other over seeds, at equal work, and where PERC loses.

All policies serve the same requests of each seed, so their differences are paired:

    d_s = value of the other - value of perc     interval: bootstrap of d's mean
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perc.bootstrap import LEVEL, RESAMPLES
from perc.cachepilot.reference import Machine
from perc.cachepilot.serving import Clock, Realised, Rules, serve
from perc.cachepilot.workloads import Traffic
from perc.errors import InputError

FEWEST_SEEDS = 2
Read = Callable[[Realised], float]
MEASURES: dict[str, Read] = {  # the less the better
    "recompute_s": lambda r: r.recompute_s,
    "ttft_p50_s": lambda r: float(np.percentile(r.ttft_s, 50)),
    "ttft_p99_s": lambda r: float(np.percentile(r.ttft_s, 99)),
    "tpot_p95_s": lambda r: float(np.percentile(r.tpot_s, 95)),
    "end_s": lambda r: r.end_s,
}
WORDS = {
    "recompute_s": "recompute",
    "ttft_p50_s": "median TTFT",
    "ttft_p99_s": "p99 TTFT",
    "tpot_p95_s": "p95 TPOT",
    "end_s": "time until all is done",
}


class Mean(NamedTuple):
    """Of seeds, with the interval at `LEVEL`."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """P policies, S seeds."""

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: dict[str, list[Realised]]  # [P][S]

    def values(self, policy: str, measure: str) -> np.ndarray:
        """One number a seed, f64[S]."""
        return np.array([MEASURES[measure](run) for run in self.runs[policy]])

    def mean(self, policy: str, measure: str) -> Mean:
        """Of one policy."""
        return mean_of(self.values(policy, measure))

    def behind(self, policy: str, measure: str, first: str = "perc") -> Mean:
        """By how much a policy is worse than the first; below 0 it is better."""
        return mean_of(self.values(policy, measure) - self.values(first, measure))

    @property
    def equal_work(self) -> bool:
        """Whether all completed the same requests and tokens, seed by seed."""
        done = [
            tuple((run.completed, run.rejected, run.tokens) for run in self.runs[name])
            for name in self.policies
        ]
        return len(set(done)) == 1


def mean_of(values: np.ndarray) -> Mean:
    """The mean f64[S] -> and its percentile bootstrap over seeds.

    >>> mean_of(np.array([1.0, 1.0, 1.0]))
    Mean(mean=1.0, low=1.0, high=1.0)
    """
    draws = np.random.default_rng(0)
    picked = draws.integers(len(values), size=(RESAMPLES, len(values)))
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(values[picked].mean(1), [tail, 100 - tail])
    return Mean(float(values.mean()), float(low), float(high))


def compare(
    policies: Sequence[str],
    traffic: Traffic,
    machine: Machine,
    cost: Clock,
    *,
    rules: Rules | None = None,
    seeds: Sequence[int] = tuple(range(10)),
    progress: Callable[[int, int, str], None] | None = None,
) -> Compared:
    """Serves every seed's traffic under every policy.

    Args:
        policies: of `sessions.ORDERS`, or random; perc is added if missing.
        traffic: the requests.
        machine: memory and concurrency.
        cost: of a step.
        rules: batch mode and admission.
        seeds: two or more.
        progress: told of runs that are done, of how many, and the next.

    Raises:
        InputError: for too few seeds or an unknown policy.
    """
    if len(set(seeds)) < FEWEST_SEEDS:
        raise InputError(f"{len(seeds)} seeds give no interval; give {FEWEST_SEEDS}.")
    names = tuple(dict.fromkeys(("perc", *policies)))
    runs: dict[str, list[Realised]] = {name: [] for name in names}
    for k, seed in enumerate(seeds):
        for j, name in enumerate(names):
            if progress:
                at = k * len(names) + j
                progress(at, len(seeds) * len(names), f"{name}, seed {seed}")
            found = serve(name, traffic, machine, cost, rules=rules, seed=seed)
            runs[name].append(found)
    return Compared(names, tuple(seeds), runs)


def verdicts(found: Compared) -> list[str]:
    """Sentences: whether the work was equal, and where PERC loses, ties or wins."""
    said = []
    if not found.equal_work:
        said.append("INVALID: the policies did not complete the same work.")
    for measure, words in WORDS.items():
        losses, wins = [], []
        for name in found.policies[1:]:
            behind = found.behind(name, measure)
            # Times smaller than a nanosecond are rounding, not a difference.
            if behind.high < -1e-9:
                losses.append(f"{name} (by {-behind.mean:.3g} s)")
            elif behind.low > 1e-9:
                wins.append(name)
        if losses:
            said.append(f"perc loses in {words} to {', '.join(losses)}.")
        if wins:
            said.append(f"perc wins in {words} over {', '.join(wins)}.")
        if not losses and not wins:
            said.append(f"Nothing is decided in {words}.")
    return said
