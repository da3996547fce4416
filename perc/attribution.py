"""Why prompt tokens were not in the cache: every miss has exactly one cause.

What hits is a leading run of the prompt, and so is what would have hit with one
obstacle out of the way. So the causes are neighbouring segments of a prompt, each
ending where the next better cache would have ended, from the root to the tail:

    hit | hybrid | retention | policy | capacity | cold | rounding

hybrid     the attention blocks were there, another group's state was not
           (`perc.hybrid`; only where `attention_alone` is given)
retention  the same policy without the retention rules would have hit
           (only where `without_rules` is given)
policy     the clairvoyant bound of the same capacity and residency would have hit
capacity   the block was seen before, and even the bound misses it
cold       the block was never seen before, counted ones and warm-up alike
rounding   the tokens belong to no block of the trace, so they can never hit

A miss that several causes explain goes to the first of them. Where a policy hits what
the bound misses, that is a hit; only the rest of the prompt is asked for its cause.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import numpy as np

from perc.capacities import Capacity, in_blocks
from perc.compare import (
    DEFAULT_CAPACITIES,
    DEFAULT_POLICIES,
    Progress,
    check_blocks,
    resolve,
    run,
)
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.metrics import tokens_of_hits, warmup_requests
from perc.types import AnyPolicy, Trace

CAUSES = ("hybrid", "retention", "policy", "capacity", "cold", "rounding")
LAST_TURN = 6  # turns from here on are one group
Grouping = Literal["kind", "turn"]


class Misses(NamedTuple):
    """What every request missed; the first axis is that of `CAUSES`."""

    blocks: np.ndarray  # i64[6, R], none of them by rounding
    tokens: np.ndarray  # i64[6, R]
    recompute_s: np.ndarray  # f64[6, R], seconds to prefill them in their place


@dataclass(frozen=True)
class Missed:
    """What one cause explains."""

    blocks: int
    tokens: int
    recompute_s: float


@dataclass(frozen=True)
class Why:
    """One policy at one capacity over the counted requests of one group."""

    policy: str
    capacity_blocks: int
    group: str  # kind or turn of the requests, or "all"
    prompt_blocks: int
    prompt_tokens: int
    hit_blocks: int
    hit_tokens: int
    beyond_bound_blocks: int  # those of the hits that the bound misses
    misses: dict[str, Missed]  # by cause; with the hits they sum to the prompts


@dataclass(frozen=True)
class Attribution:
    """The answer of `attribute`: rows by capacity, policy and group."""

    rows: list[Why]
    definitions: dict[str, str]  # what each cause means

    def as_dict(self) -> dict:
        """Plain numbers, for JSON."""
        return asdict(self)


def attribute(
    trace: Trace,
    policies: str | Iterable[str | AnyPolicy] = DEFAULT_POLICIES,
    capacities: Capacity | Iterable[Capacity] = DEFAULT_CAPACITIES,
    *,
    warmup: float = 0.0,
    by: Grouping | None = None,
    ruled: Mapping[str, Mapping[int, np.ndarray]] | None = None,
    cost: PrefillCost = DEFAULT_COST,
    progress: Progress | None = None,
) -> Attribution:
    """Names the cause of every miss of every policy at every capacity.

    Args:
        trace: the traffic.
        policies: names from the registry, or policies with names of their own.
        capacities: blocks (int) or shares of the working set (float).
        warmup: the first share of the requests fills the cache and is not counted.
        by: a row for each kind of request, or for each turn, instead of one for all.
        ruled: by policy and capacity in blocks, what it hits under retention rules:
            leading blocks i32[R]. What it would have hit without them is replayed here,
            and the difference is the cause `retention`.
        cost: prices recomputed tokens.
        progress: called before each replay.

    Raises:
        InputError: for a trace without blocks, an unknown policy or grouping, two
            policies of one name, a capacity or warm-up share out of range, or hits
            under rules that are of another trace or not of every capacity.

    Example:
        >>> import perc
        >>> trace = perc.make("chat", requests=100)
        >>> (why,) = perc.attribute(trace, "lru", 300).rows
        >>> missed = sum(cause.tokens for cause in why.misses.values())
        >>> why.hit_tokens + missed == why.prompt_tokens
        True
    """
    chosen = resolve(policies)
    sizes = in_blocks(trace, capacities)
    skip = warmup_requests(trace, warmup)
    check_blocks(trace)
    groups = _groups(trace, by, skip)
    ruled = ruled or {}
    _check_ruled(ruled, [policy.name for policy in chosen], sizes)
    bounds = resolve(["belady", "belady_bypass"])
    residencies = sorted({bool(policy.bypass) for policy in chosen})
    replays = [*(bounds[bypass] for bypass in residencies), *chosen]
    found: list[np.ndarray] = []
    for policy in replays:
        if progress:
            progress(len(found), len(replays), policy.name)
        found.append(run(policy, trace, sizes, cost=cost))
    if progress:
        progress(len(replays), len(replays), "done")
    n_bounds = len(residencies)
    bound_of = dict(zip(residencies, found[:n_bounds], strict=True))
    rows = []
    for k, size in enumerate(sizes):
        for policy, plain in zip(chosen, found[n_bounds:], strict=True):
            hits = ruled[policy.name][size] if policy.name in ruled else plain[k]
            bound = bound_of[bool(policy.bypass)][k]
            misses = misses_by_cause(
                trace, hits, bound, without_rules=plain[k], cost=cost
            )
            rows += summarise(
                trace,
                hits,
                bound,
                misses,
                groups,
                policy=policy.name,
                capacity_blocks=size,
            )
    return Attribution(rows, dict(DEFINITIONS))


def misses_by_cause(
    trace: Trace,
    hits: np.ndarray,
    bound: np.ndarray,
    *,
    attention_alone: np.ndarray | None = None,
    without_rules: np.ndarray | None = None,
    cost: PrefillCost = DEFAULT_COST,
) -> Misses:
    """Cuts what each request missed into causes.

    Args:
        trace: R requests.
        hits: i32[R], leading blocks that each request found.
        bound: i32[R], those of the clairvoyant bound, same capacity and residency.
        attention_alone: i32[R], those that the attention group found, where other
            groups had to match as well.
        without_rules: i32[R], those of the same policy without retention rules.
        cost: prices the tokens in their place of the prompt.

    Raises:
        InputError: for an array that does not hold one number of blocks a request,
            from 0 to those of the request.
    """
    length = trace.stop - trace.start
    # The blocks seen before are a leading run: a block comes with its parents.
    unseen = np.append(0, np.cumsum(trace.prev < 0))
    seen = length - (unseen[trace.stop] - unseen[trace.start])
    better = {"hybrid": attention_alone, "retention": without_rules, "policy": bound}
    ends = [_checked("hits", hits, length)]
    for name, array in better.items():
        # A block never seen before is cold, whoever claims to have hit it.
        known = ends[-1] if array is None else _checked(name, array, length)
        ends.append(np.minimum(known, seen))
    ends = np.maximum.accumulate([*ends, seen, length])
    tokens = [*(tokens_of_hits(trace, end) for end in ends), trace.input_tokens]
    tokens = np.array(tokens, np.int64)
    no_block = np.zeros((1, trace.n_requests), np.int64)
    found = Misses(
        blocks=np.concatenate([np.diff(ends, axis=0), no_block]),
        tokens=np.diff(tokens, axis=0),
        recompute_s=np.diff(cost.prefill_s(tokens), axis=0),
    )
    assert (found.blocks.sum(axis=0) + hits == length).all(), "blocks without a cause"
    assert (found.tokens >= 0).all(), "a block with more tokens than its prompt"
    return found


def summarise(
    trace: Trace,
    hits: np.ndarray,
    bound: np.ndarray,
    misses: Misses,
    groups: dict[str, np.ndarray],
    *,
    policy: str,
    capacity_blocks: int,
) -> list[Why]:
    """Adds the misses of the requests of each group up.

    Args:
        trace: R requests.
        hits: i32[R], as given to `misses_by_cause`.
        bound: i32[R], likewise.
        misses: of these hits.
        groups: names, and bool[R] which requests each counts.
        policy: name for the rows.
        capacity_blocks: for the rows.
    """
    hits = np.asarray(hits, np.int64)
    cached = tokens_of_hits(trace, hits)
    rows = []
    for name, member in groups.items():
        sums = (column[:, member].sum(axis=1).tolist() for column in misses)
        rows.append(
            Why(
                policy=policy,
                capacity_blocks=capacity_blocks,
                group=name,
                prompt_blocks=int((trace.stop - trace.start)[member].sum()),
                prompt_tokens=int(trace.input_tokens[member].sum(dtype=np.int64)),
                hit_blocks=int(hits[member].sum()),
                hit_tokens=int(cached[member].sum()),
                beyond_bound_blocks=int(np.maximum(hits - bound, 0)[member].sum()),
                misses=dict(zip(CAUSES, map(Missed, *sums), strict=True)),
            )
        )
    return rows


def _checked(name: str, array: np.ndarray, length: np.ndarray) -> np.ndarray:
    array = np.asarray(array)
    if array.shape != length.shape or array.dtype.kind not in "iu":
        raise InputError(
            f"{name}: {array.dtype} of shape {array.shape} for {len(length)} requests; "
            "give one whole number of leading blocks a request."
        )
    wrong = np.flatnonzero((array < 0) | (array > length))
    if len(wrong):
        r = int(wrong[0])
        raise InputError(
            f"{name}: {array[r]} leading blocks of request {r}, which has {length[r]}; "
            "are they of another trace?"
        )
    return array.astype(np.int64)


def _check_ruled(
    ruled: Mapping[str, Mapping[int, np.ndarray]], names: list[str], sizes: list[int]
) -> None:
    for name, by_size in ruled.items():
        if name not in names or not set(sizes) <= set(by_size):
            raise InputError(
                f"hits under rules of {name!r} at {', '.join(map(str, by_size))} "
                f"blocks; the policies are {', '.join(names)}, the capacities "
                f"{', '.join(map(str, sizes))}. Give hits at each of them."
            )


def _groups(trace: Trace, by: Grouping | None, skip: int) -> dict[str, np.ndarray]:
    """The groups of the counted requests by name, empty ones left out."""
    counted = np.arange(trace.n_requests) >= skip
    if by is None:
        return {"all": counted}
    if by == "kind":
        labels = trace.kind
        names = list(trace.kinds)
    elif by == "turn":
        labels = np.minimum(trace.turn, LAST_TURN)
        names = ["", *map(str, range(1, LAST_TURN)), f"{LAST_TURN}+"]
    else:
        raise InputError(f"misses by {by!r}; there are: kind, turn.")
    members = ((name, counted & (labels == i)) for i, name in enumerate(names))
    return {name: member for name, member in members if member.any()}


DEFINITIONS = {
    "hybrid": "the attention blocks were there, the state of another group was not",
    "retention": "the same policy without the retention rules would have hit",
    "policy": "belady of the same capacity would have hit (belady_bypass for a policy "
    "that may bypass): a better policy may",
    "capacity": "seen before, and even the bound misses: more memory helps",
    "cold": "never seen before in the trace: no cache helps",
    "rounding": "prompt tokens that belong to no block, such as what fills no whole "
    "block at the end",
    "precedence": "a miss with several causes goes to the first in this order",
    "beyond_bound_blocks": "blocks that the policy hits and the bound does not",
}
