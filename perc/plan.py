"""How much cache a workload needs: capacities for a target, and what more would buy.

A target is a hit ratio, or a budget for the time to first token (TTFT). TTFT is here
the prefill of what is not cached, without a queue in front of it: the least that a
user waits. Queues are the serving simulator's subject.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from perc.bootstrap import COVERS, RESAMPLES, Measure
from perc.capacities import in_blocks, log_grid
from perc.compare import Progress, check_blocks, describe, resolve
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.metrics import warmup_requests
from perc.plan_break_even import (
    DEFAULT_LINKS,
    BreakEven,
    Returns,
    break_evens,
    returns,
)
from perc.plan_curves import (
    BLOCK,
    TOKEN,
    Curve,
    Knee,
    Point,
    curve_of,
    knees,
    needs,
    points,
)
from perc.plan_needs import Goal, Need, Setting
from perc.types import AnyPolicy, Trace

DEFAULT_POLICIES = ("lru", "perc", "belady")
# Llama-3-8B (its model card): keys and values of 32 layers, 8 KV heads of 128 numbers
# of 2 bytes.
LLAMA_3_8B_BYTES_PER_TOKEN = 2 * 32 * 8 * 128 * 2
GRID_POINTS = 32
IDEAL = Measure("share_of_ideal")
IDEAL_SHARES = (0.5, 0.8, 0.95)  # targets where none is given
GIB = 1 << 30


@dataclass(frozen=True)
class Plan:
    """The answer of `plan`; every list in the order of the policies."""

    trace: dict  # what was replayed, plain numbers
    definitions: dict  # what each number means, and every option that shaped it
    points: list[Point]
    needs: list[Need]
    knees: list[Knee]  # without policies whose curve has none
    ideal_block_hit_ratio: float  # of a cache that holds everything
    clairvoyant: tuple[str, ...]  # policies that are bounds, not choices
    break_even: list[BreakEven]  # one a link
    returns: list[Returns]  # of the trace's blocks

    def as_dict(self) -> dict:
        """What `--json` prints."""
        return asdict(self)


def plan(
    trace: Trace,
    policies: Iterable[str | AnyPolicy] = DEFAULT_POLICIES,
    *,
    target_hit_ratio: float | None = None,
    target_token_hit_ratio: float | None = None,
    ttft_budget_s: float | None = None,
    ttft_percentile: float = 95.0,
    bytes_per_token: float = LLAMA_3_8B_BYTES_PER_TOKEN,
    capacities: Iterable[int | float] | None = None,
    warmup: float = 0.0,
    cost: PrefillCost = DEFAULT_COST,
    links: Iterable[str] = DEFAULT_LINKS,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Finds the capacity that each policy needs, and what more capacity would buy.

    Without a target, the targets are 50, 80 and 95 % of the block hits that a cache
    of any size could have.

    Args:
        trace: the traffic.
        policies: names from the registry, or policies with names of their own.
        target_hit_ratio: of blocks.
        target_token_hit_ratio: of prompt tokens.
        ttft_budget_s: seconds for the prefill of what is not cached.
        ttft_percentile: of the counted requests that must keep the budget.
        bytes_per_token: of keys and values in the cache.
        capacities: blocks (int) or shares of the working set (float) of the curve, to
            which the whole working set is added; None is a logarithmic grid.
        warmup: the first share of the requests fills the cache and is not counted.
        cost: prices recomputed tokens.
        links: of `perc.hardware`, to tiers below the GPU, for the break-even.
        bootstrap: samples of sessions for the intervals.
        seed: of those samples.
        progress: called before each policy.

    Raises:
        InputError: for a trace without blocks, an unknown policy, or a number out of
            range.
    """
    check_blocks(trace, required=True)
    _check(bytes_per_token, bootstrap)
    chosen = resolve(policies)
    skip = warmup_requests(trace, warmup)
    moves = break_evens(trace, bytes_per_token, cost, tuple(links))
    goals = _goals(
        target_hit_ratio, target_token_hit_ratio, ttft_budget_s, ttft_percentile
    )
    grid = sorted({*_grid(trace, capacities), trace.n_blocks})
    lru = next((p for p in chosen if p.name == "lru"), None) or resolve(["lru"])[0]
    running = [lru, *(p for p in chosen if p is not lru)]
    gib = trace.block_tokens * bytes_per_token / GIB
    setting = Setting(trace, skip, cost, grid, goals, gib, bootstrap, seed)
    curves: dict[str, Curve] = {}
    for policy in running:
        if progress:
            progress(len(curves), len(running), policy.name)
        curves[policy.name] = curve_of(policy, setting)
    if progress:
        progress(len(running), len(running), "done")
    base = curves["lru"]
    names = [policy.name for policy in chosen]
    return Plan(
        trace=describe(trace),
        definitions=_definitions(setting, warmup, bytes_per_token, ttft_percentile),
        points=[point for name in names for point in points(curves[name], base)],
        needs=[need for name in names for need in needs(curves[name], base)],
        knees=[knee for name in names for knee in knees(curves[name])],
        ideal_block_hit_ratio=float(base.block[-1]),
        clairvoyant=tuple(p.name for p in chosen if p.clairvoyant),
        break_even=moves,
        returns=returns(trace),
    )


def default_capacities(trace: Trace) -> list[int]:
    """A logarithmic grid from the longest request to the whole working set."""
    return log_grid(trace, GRID_POINTS)


def _check(bytes_per_token: float, bootstrap: int) -> None:
    if not 0 < bytes_per_token < np.inf:
        raise InputError(
            f"{bytes_per_token} bytes per token; give 2 * layers * KV heads * head "
            "size * bytes of a number, such as 131072 for Llama-3-8B at 16 bits."
        )
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap samples; give 0 (none) or more.")


def _goals(
    block: float | None,
    token: float | None,
    budget_s: float | None,
    percentile: float,
) -> list[Goal]:
    for target in (block, token):
        if target is not None and not 0 < target <= 1:
            raise InputError(
                f"a target hit ratio of {target}; give above 0, at most 1."
            )
    if budget_s is not None and not 0 < budget_s < np.inf:
        raise InputError(f"a TTFT budget of {budget_s} s; give more than 0.")
    if not 0 < percentile <= 100:
        raise InputError(f"a TTFT percentile of {percentile}; give above 0, to 100.")
    goals = []
    if block is not None:
        goals.append(Goal(BLOCK.name, block, BLOCK, block))
    if token is not None:
        goals.append(Goal(TOKEN.name, token, TOKEN, token))
    if budget_s is not None:
        within = Measure("within_budget", budget_s)
        name = f"ttft_p{percentile:g}_s"
        goals.append(Goal(name, budget_s, within, percentile / 100))
    return goals or [Goal(IDEAL.name, share, IDEAL, share) for share in IDEAL_SHARES]


def _grid(trace: Trace, capacities: Iterable[int | float] | None) -> list[int]:
    if capacities is None:
        return default_capacities(trace)
    return [min(size, trace.n_blocks) for size in in_blocks(trace, capacities)]


def _definitions(
    at: Setting, warmup: float, bytes_per_token: float, percentile: float
) -> dict:
    n = at.trace.n_requests
    model = (
        " (Llama-3-8B at 16 bits)"
        if bytes_per_token == LLAMA_3_8B_BYTES_PER_TOKEN
        else ""
    )
    return {
        "block_hit_ratio": "blocks of the longest resident prefix / blocks looked up",
        "token_hit_ratio": "prompt tokens in hit blocks / prompt tokens",
        "over_lru": "block hit ratio - that of lru at the same capacity",
        "share_of_ideal": "blocks hit / blocks that a cache of any size could hit",
        "of_lru": "capacity / capacity that lru needs for the same target",
        "capacity_gib": f"blocks * {at.trace.block_tokens} tokens * "
        f"{bytes_per_token:,.0f} bytes{model} / 2**30",
        "ttft": "seconds to prefill what is not cached, without a queue; a percentile "
        f"is a request's, not interpolated; the budget is for p{percentile:g}",
        "recompute_s": f"the sum of it, {at.cost.name}: {at.cost.s_per_token:.4g} s a "
        f"token + {at.cost.s_per_token2:.4g} s a token squared",
        "saved_s_per_gib_hour": "recompute_s saved by more cache, per GiB and hour of "
        "the counted traffic, mean over the step to the next capacity",
        "hit_ratio_per_gib": "block hit ratio gained, in the same way",
        "knee": "the capacity of the grid farthest above the chord of block hit ratio "
        "over log capacity (Satopaa et al. 2011)",
        "break_even": "returns a write from which on keeping a block below the GPU "
        "pays: write_s / (recompute_s - reload_s); a second of the link counts as one "
        "of the accelerator; None: a reload takes as long as computing",
        "interval": COVERS if at.resamples else "none: no bootstrap samples",
        "bootstrap": f"{at.resamples} samples, seed {at.seed}",
        "residency": "the running request is stored whole, unless the policy bypasses; "
        "one larger than the cache keeps its first blocks",
        "counted": f"requests {at.skip + 1} to {n} (warm-up share {warmup}), the cache "
        "is empty at request 1",
    }
