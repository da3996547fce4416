"""Explains a learned policy on a trace: what it goes by, where it wins and loses.

>>> import perc
>>> from perc.train.explain import explain
>>> from perc.train.fit import fit
>>> trace = perc.make("chat", requests=300, seed=1)
>>> policy = fit(trace, "imitation", steps=20, members=1, classes=4)
>>> found = explain(policy, trace, 200, repeats=1)
>>> len(found.inputs), found.lru <= found.bound
(28, True)
"""

import numpy as np

from perc.aged import replay_rows
from perc.capacities import Capacity, in_blocks
from perc.compare import Progress, check_blocks, describe
from perc.compare import run as replay_policy
from perc.errors import InputError, check_whole
from perc.explanation import Explanation, Guarded
from perc.guard import DEFAULT, lru_hits
from perc.history import NAMES, runs
from perc.metrics import warmup_requests
from perc.policies.belady import belady
from perc.policies.learned import Network, learned, network_of
from perc.train.decisions import decisions
from perc.train.dependence import SAMPLE, dependences
from perc.train.importance import Stage, hits_of, importances, stage_of, traffic_of
from perc.types import Aged, AnyPolicy, Guard, OnlinePolicy, Trace

REPEATS = 5
TOP = 6
EXAMPLES = 5  # of each kind


def explain(
    policy: AnyPolicy,
    trace: Trace,
    capacity: Capacity = 0.05,
    *,
    warmup: float = 0.0,
    seed: int = 0,
    top: int = TOP,
    repeats: int = REPEATS,
    progress: Progress | None = None,
) -> Explanation:
    """Says what a learned policy goes by on a trace, at one capacity.

    Args:
        policy: a learned one. What it goes by is found without its guard.
        trace: the traffic; `check_blocks` must let it pass.
        capacity: blocks (int) or a share of the distinct blocks (float).
        warmup: first share of the requests, which fill the cache and do not count.
        seed: of the shuffles and draws.
        top: how many inputs get a partial dependence at most, the most important ones.
        repeats: shuffles of each input.
        progress: called after each input.

    Raises:
        InputError: for a policy that is not learned, a trace without blocks or with
            none to count, or a setting out of range.
    """
    network, guard = network_of(policy), guard_of(policy)
    if network is None:
        raise InputError(
            f"policy {policy.name} is not a learned one: only those have a network to "
            "explain. Train one with perc train."
        )
    check_whole("explain", "top", top, 0, len(NAMES))
    check_whole("explain", "repeats", repeats, 1, 1000)
    check_whole("explain", "seed", seed, 0, 2**31 - 1)
    check_blocks(trace, required=True)
    skip, size = warmup_requests(trace, warmup), _one_size(trace, capacity)
    if trace.start[skip] == trace.n_accesses:
        raise InputError(
            f"{trace.source}: no block is looked up after a warm-up share of "
            f"{warmup:g}. Give a smaller one."
        )
    stage = stage_of(trace, network, size, skip)
    classes = network.classes(stage.rows)
    own, (lru,) = hits_of(stage, classes), lru_hits(trace, [size])
    (bound,) = replay_policy(belady(), trace, [size])
    inputs = importances(stage, repeats=repeats, seed=seed, progress=progress)
    shown = [i.input for i in inputs if not i.constant][:top]
    last, _ = runs(trace)
    counted = stage.rows[trace.request[last] >= skip]
    won, lost = decisions(stage, classes, own, lru, EXAMPLES)
    return Explanation(
        trace=describe(trace, skip),
        definitions=_definitions(stage, repeats),
        capacity_blocks=size,
        block_hit_ratio=stage.counted(own),
        lru=stage.counted(lru),
        bound=stage.counted(bound),
        guard=_guarded(stage, network, guard, classes),
        inputs=inputs,
        dependence=dependences(network, counted, shown, seed=seed),
        won=won,
        lost=lost,
        notes=_notes(stage, own, lru, bound),
    )


def guard_of(policy: AnyPolicy) -> Guard | None:
    """The guard of a policy, None if it has none."""
    rule = policy.rule if isinstance(policy, OnlinePolicy) else None
    return rule.guard if isinstance(rule, Aged) else None


def _one_size(trace: Trace, capacity: Capacity) -> int:
    sizes = in_blocks(trace, capacity)
    if len(sizes) != 1:
        raise InputError(f"capacity {capacity}: give one; an explanation is of one.")
    if not sizes[0]:
        raise InputError(
            f"a capacity of {capacity} of {trace.n_blocks:,} blocks holds none; give "
            "more."
        )
    return sizes[0]


def _guarded(
    stage: Stage, network: Network, guard: Guard | None, classes: np.ndarray
) -> Guarded:
    policy = learned(network, guard=guard or DEFAULT)
    traffic = traffic_of(stage, classes)
    found = replay_rows(stage.trace, policy, [stage.capacity], traffic)
    return Guarded(
        stored=guard is not None,
        block_hit_ratio=stage.counted(found.blocks[0]),
        trusted=float(found.trusted[0, stage.skip :].mean()),
    )


def _notes(
    stage: Stage, own: np.ndarray, lru: np.ndarray, bound: np.ndarray
) -> list[str]:
    size, held = stage.capacity, stage.trace.n_blocks
    if size >= held:
        return [
            f"{size:,} blocks hold all {held:,} of the trace: nothing has to leave, so "
            "no decision is made. Give a smaller capacity."
        ]
    notes = []
    if stage.counted(bound) <= stage.counted(lru):
        notes.append(
            f"There is no gap between LRU and the bound at {size:,} blocks: no policy "
            "could gain anything."
        )
    if (own[stage.skip :] == lru[stage.skip :]).all():
        notes.append("It served every counted request as LRU did.")
    return notes


def _definitions(stage: Stage, repeats: int) -> dict[str, str]:
    trace, skip = stage.trace, stage.skip
    return {
        "importance": "points of block hit ratio lost when the input is shuffled "
        f"between runs of blocks, mean of {repeats} shuffles and their range; without "
        "guard; inputs that say the same stand in for each other",
        "worth": "expected hits per block and minute of an idle block: the one worth "
        "least leaves first",
        "dependence": f"geometric mean of the worth over {SAMPLE} runs of counted "
        "blocks (all, if fewer) with the input set to a value, all else as it was",
        "below": "share of all uses of blocks of which the policy thought less, at use",
        "examples": "largest differences of hit blocks to LRU, one request a session; "
        "idle time and worth of the middle one of the blocks that made the difference",
        "counted": f"requests {skip + 1} to {trace.n_requests}, the cache is empty at "
        "request 1",
    }
