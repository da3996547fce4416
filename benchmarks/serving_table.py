"""What do users wait for, under which policy, and where does a policy lose?

    python benchmarks/serving_table.py FOLDER

LRU, priority, workload-aware, PERC and a learned policy, each in front of the same
requests in simulated time, on two traces of a folder at three loads each. The first
half of the requests teaches the learned policy, a network a seed; the second half is
served, from an empty cache. Prints one table a trace in Markdown, and every figure in
which a policy is worse than LRU.

±: half the 95 % bootstrap interval over sessions (`perc.serving.metrics.intervals`).
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

NATIVE = "xla_cpu_small_while_loop_byte_threshold=1000000"  # as `perc` sets it
os.environ.setdefault("XLA_FLAGS", f"--xla_backend_extra_options={NATIVE}")

import common  # noqa: E402
import numpy as np  # noqa: E402
import tyro  # noqa: E402

import perc  # noqa: E402
from perc.hardware import accelerator  # noqa: E402
from perc.model_shapes import model  # noqa: E402
from perc.policies.registry import registry  # noqa: E402
from perc.roofline import Roofline, roofline  # noqa: E402
from perc.sampling import of_accesses  # noqa: E402
from perc.serving.arrivals import scaled  # noqa: E402
from perc.serving.laws import check_laws  # noqa: E402
from perc.serving.metrics import Limits, intervals, summary  # noqa: E402
from perc.serving.settings import Server  # noqa: E402
from perc.serving.simulate import simulate  # noqa: E402
from perc.traces.build import factorize  # noqa: E402
from perc.train.fit import fit  # noqa: E402
from perc.train.splits import BY_REQUEST  # noqa: E402
from perc.tune_search import first_requests  # noqa: E402
from perc.types import AnyPolicy, Trace  # noqa: E402

NAMES = ("lru", "priority", "workload_aware", "perc")
LIMITS = Limits(ttft_s=5.0, tpot_s=0.1)


class Case(NamedTuple):
    """A trace, and the server in front of which it comes."""

    file: str
    blocks: int
    loads: tuple[float, ...]


CASES = (
    Case("mooncake_conversation_trace.jsonl.gz", 4350, (0.8, 1.0, 1.2)),
    Case("claude_code_v6_interleaved24h_b512.jsonl.xz", 1500, (0.5, 1.0, 2.0)),
)


class Row(NamedTuple):
    """A policy at a load."""

    load: float
    policy: str
    values: dict[str, float]
    sure: dict[str, tuple]


FIGURES = {  # name of the interval: heading, and whether more is worse
    "ttft_p50_s": ("TTFT p50, s", True),
    "ttft_p99_s": ("p99, s", True),
    "goodput_per_s": ("goodput /s", False),
    "recompute_s": ("recompute, s", True),
}


def main(
    folder: Path,
    /,
    requests: int = 6000,
    seeds: int = 2,
    steps: int = 300,
    resamples: int = 1000,
) -> None:
    """Measures.

    Args:
        folder: of the traces.
        requests: of each trace, the first ones; half teach, half are served.
        seeds: learned policies, each of another seed.
        steps: of training, one network each.
        resamples: of the bootstrap.
    """
    cost = roofline(model("llama-3.1-8b"), accelerator("h100"), tp=4)
    for case in CASES:
        whole = perc.load(folder / case.file)
        whole = first_requests(whole, min(requests, whole.n_requests))
        half = whole.n_requests // 2
        seen, unseen = first_requests(whole, half), later_requests(whole, half)
        common.print_conditions(unseen, seed=0)
        policies: list[AnyPolicy] = [registry[name]() for name in NAMES]
        for seed in range(seeds):
            policy = fit(seen, seed=seed, steps=steps, members=1)
            policies.append(replace(policy, name=f"learned, seed {seed}"))
        rows = [
            served(scaled(unseen, load), policy, load, case, cost, resamples)
            for load in case.loads
            for policy in policies
        ]
        report(case, unseen, rows)


def later_requests(trace: Trace, first: int) -> Trace:
    """The requests from that one on, as if the others had never come."""
    stays = np.arange(trace.n_requests) >= first
    part = of_accesses(trace, stays[trace.request])
    columns = {name: getattr(part, name)[stays] for name in BY_REQUEST}
    columns["arrival_s"] = columns["arrival_s"] - columns["arrival_s"][0]
    return replace(
        part,
        **columns,
        session=factorize(trace.session[stays]).astype(np.int32),
        request=(part.request - first).astype(np.int32),
        source=f"{trace.source}, requests {first:,} to {trace.n_requests - 1:,}",
    )


def served(
    trace: Trace,
    policy: AnyPolicy,
    load: float,
    case: Case,
    cost: Roofline,
    resamples: int,
) -> Row:
    """A policy at a load, its laws checked."""
    found = simulate(trace, policy, Server(case.blocks), cost)
    check_laws(found)
    figures: dict[str, Any] = summary(trace, found, cost, LIMITS)
    values = {
        "ttft_p50_s": figures["ttft_s"].p50,
        "ttft_p99_s": figures["ttft_s"].p99,
        "goodput_per_s": figures["goodput_per_s"],
        "recompute_s": figures["recompute_s"],
        "hit": figures["token_hit_ratio"],
        "completed": figures["completed"],
    }
    sure = intervals(trace, found, cost, LIMITS, resamples=resamples)
    return Row(load, policy.name, values, sure)


def report(case: Case, trace: Trace, rows: list[Row]) -> None:
    """The table, and where a policy loses."""
    say = common.say
    say(
        f"\n{case.file}: {trace.n_requests:,} requests, llama-3.1-8b on 4 x h100, "
        f"{case.blocks:,} blocks; goodput within {LIMITS.ttft_s:g} s of TTFT and "
        f"{LIMITS.tpot_s:g} s of TPOT\n"
    )
    heads = [heading for heading, _ in FIGURES.values()]
    say(f"| load | policy | {' | '.join(heads)} | hit |")
    say(f"|--:|---|{'--:|' * (len(heads) + 1)}")
    for row in rows:
        cells = [_cell(row.values[name], row.sure[name]) for name in FIGURES]
        hit = f"{row.values['hit']:.1%}"
        say(f"| {row.load:g} | {row.policy} | {' | '.join(cells)} | {hit} |")
    done = {row.values["completed"] for row in rows}
    say(f"\nEvery row completed {', '.join(f'{n:,}' for n in sorted(done))} requests.")
    losses = [line for row in rows for line in _losses(row, _lru_of(row, rows))]
    say("Worse than LRU (! = the two intervals do not meet):")
    for line in losses or ["nothing"]:
        say(f"- {line}")
    say("")


def _lru_of(row: Row, rows: list[Row]) -> Row:
    return next(r for r in rows if r.load == row.load and r.policy == "lru")


def _losses(row: Row, lru: Row) -> list[str]:
    lines = []
    for name, (heading, more_is_worse) in FIGURES.items():
        mine, other = row.values[name], lru.values[name]
        worse = mine - other if more_is_worse else other - mine
        if worse <= 1e-9 * abs(other):
            continue
        (low, high), (least, most) = row.sure[name], lru.sure[name]
        apart = low > most or high < least
        lines.append(
            f"{row.policy} at load {row.load:g}: {heading} {mine:.4g}, LRU "
            f"{other:.4g}{' !' if apart else ''}"
        )
    return lines


def _cell(value: float, ends: tuple) -> str:
    half = (ends[1] - ends[0]) / 2
    if value >= 1000:
        return f"{value:,.0f} ±{half:,.0f}"
    return f"{value:.3g} ±{float(f'{half:.1g}'):g}"


if __name__ == "__main__":
    tyro.cli(main)
