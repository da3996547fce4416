"""The main job: which policy keeps what, at which size, and how far from the bound.

Every policy serves the same requests, all of them, so the work is equal. What is
counted is what was really there when a request came, never a policy's own estimate.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from perc.capacities import Capacity, in_blocks
from perc.cost import DEFAULT_COST, PrefillCost
from perc.curves import lru_curve
from perc.errors import InputError, TraceWarning
from perc.evaluate import evaluate
from perc.files import names_policy_file
from perc.metrics import Metrics, measure_rows, ratio, warmup_requests
from perc.online import Layouts, replay_online
from perc.ranks import ranks, scores
from perc.replay import replay
from perc.types import AnyPolicy, OnlinePolicy, Policy, Trace

DEFAULT_POLICIES = ("lru", "fifo", "lfu", "perc", "belady")
DEFAULT_CAPACITIES = (0.01, 0.02, 0.05, 0.1, 0.25)
Progress = Callable[[int, int, str], None]  # done, total, what is being done


@dataclass(frozen=True)
class Row:
    """One policy at one capacity, over the counted requests."""

    policy: str
    capacity_blocks: int
    block_hit_ratio: float
    token_hit_ratio: float
    recompute_tokens: int
    recompute_s: float
    gap_closed: float | None  # share of LRU-to-bound, None where there is no gap


@dataclass(frozen=True)
class Comparison:
    """The answer of `compare`: rows by capacity, then in the order of the policies."""

    trace: dict  # what was replayed, plain numbers
    definitions: dict  # what each number means, and every option that shaped it
    rows: list[Row]
    lru_hits: np.ndarray  # i64[M + 1], counted block hits of LRU at every capacity
    counted_blocks: int  # blocks looked up by the counted requests
    clairvoyant: tuple[str, ...]  # policies that are bounds, not choices
    # Leading resident blocks i32[K, R] of each policy, LRU among them, if kept.
    hits: dict[str, np.ndarray] | None = None

    def as_dict(self) -> dict:
        """What `--json` prints."""
        return {
            "trace": self.trace,
            "definitions": self.definitions,
            "rows": [asdict(row) for row in self.rows],
        }

    def lru_blocks_to_match(self, block_hit_ratio: float) -> int | None:
        """The smallest LRU cache that reaches a hit ratio; None if none does."""
        # Hits are whole numbers; a ratio of them may be off by rounding.
        needed = math.ceil(block_hit_ratio * self.counted_blocks - 1e-6)
        size = int(np.searchsorted(self.lru_hits, needed))
        return size if size < len(self.lru_hits) else None


def compare(
    trace: Trace,
    policies: str | Iterable[str | AnyPolicy] = DEFAULT_POLICIES,
    capacities: Capacity | Iterable[Capacity] = DEFAULT_CAPACITIES,
    *,
    warmup: float = 0.0,
    cost: PrefillCost = DEFAULT_COST,
    keep_hits: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Replays a trace through every policy at every capacity.

    LRU and the clairvoyant bound always run, as the two ends of the gap, but have a
    row only if asked for.

    Args:
        trace: the traffic.
        policies: names from the registry, policy files (x.npz), or policies with names
            of their own.
        capacities: blocks (int) or shares of the working set (float).
        warmup: the first share of the requests fills the cache and is not counted.
        cost: prices recomputed tokens.
        keep_hits: keep what each request hit, 4 bytes a request, policy and capacity.
        progress: called before each replay.

    Raises:
        InputError: for a trace without blocks, an unknown policy, two policies of one
            name, or a capacity or warm-up share out of range.
    """
    chosen = resolve(policies)
    sizes = in_blocks(trace, capacities)
    skip = warmup_requests(trace, warmup)
    check_blocks(trace)
    # A bound of the same residency: whether a cache must store what it runs.
    lru, *bounds = resolve(["lru", "belady", "belady_bypass"])
    running = [*chosen]
    base = _index_of(lru, running)
    bound_of = [_index_of(bounds[policy.bypass], running) for policy in chosen]
    found: list[list[Metrics]] = []
    hits: dict[str, np.ndarray] = {}
    for policy in running:
        if progress:
            progress(len(found), len(running), policy.name)
        if keep_hits:
            hits[policy.name] = kept = run(policy, trace, sizes, cost=cost)
            rows = measure_rows(trace, kept, warmup_requests=skip, cost=cost)
            found.append(rows)
        else:
            found.append(measured(policy, trace, sizes, skip, cost))
    if progress:
        progress(len(running), len(running), "done")

    def gap_closed(p: int, k: int) -> float | None:
        own, low, high = (found[i][k].block_hit_ratio for i in (p, base, bound_of[p]))
        return ratio(own - low, high - low) if high > low else None

    return Comparison(
        trace=describe(trace, skip),
        definitions=_definitions(trace, warmup, skip, cost),
        rows=[
            Row(policy.name, size, **asdict(found[p][k]), gap_closed=gap_closed(p, k))
            for k, size in enumerate(sizes)
            for p, policy in enumerate(chosen)
        ],
        lru_hits=lru_curve(trace, warmup_requests=skip),
        counted_blocks=int((trace.stop - trace.start)[skip:].sum()),
        clairvoyant=tuple(p.name for p in chosen if p.clairvoyant),
        hits={"lru": hits[running[base].name]} | {p.name: hits[p.name] for p in chosen}
        if keep_hits
        else None,
    )


def check_blocks(trace: Trace, *, required: bool = False) -> None:
    """Refuses a trace that tells no blocks; warns where no prompt fills one.

    Args:
        trace: the traffic.
        required: refuse whatever has nothing to replay, also what has no requests.

    Raises:
        InputError: if the trace tells arrivals and lengths only, or has nothing to
            replay where that is required.
    """
    if trace.n_accesses or not (trace.n_requests or required):
        return
    if not trace.n_requests:
        raise InputError(f"{trace.source} has no requests: there is nothing to replay.")
    longest = int(trace.input_tokens.max())
    if trace.tells_blocks and longest < trace.block_tokens:
        short = (
            f"{trace.source}: the longest prompt has {longest} tokens and fills no "
            f"block of {trace.block_tokens}; nothing can be cached."
        )
        if required:
            raise InputError(short)
        warnings.warn(short, TraceWarning, stacklevel=3)
        return
    raise InputError(
        f"{trace.source} has no block ids: it tells arrivals and lengths only, so "
        "no cache can be replayed. Give a trace with prefix hashes, or make one "
        "with `perc make`."
    )


def lru_everywhere(
    trace: Trace, *, warmup: float = 0.0, cost: PrefillCost = DEFAULT_COST
) -> list[Row]:
    """Rows of LRU at every capacity from 1 block to the working set."""
    (lru,) = resolve(["lru"])
    sizes = range(1, trace.n_blocks + 1)
    skip = warmup_requests(trace, warmup)
    found = evaluate(lru, trace, sizes, warmup_requests=skip, cost=cost)
    return [
        Row("lru", size, **asdict(metrics), gap_closed=None)
        for size, metrics in zip(sizes, found, strict=True)
    ]


def measured(
    policy: AnyPolicy,
    trace: Trace,
    sizes: Sequence[int],
    skip: int,
    cost: PrefillCost,
) -> list[Metrics]:
    """Metrics of one policy at K sizes, requests from `skip` on counted."""
    if isinstance(policy, Policy):
        return evaluate(policy, trace, sizes, warmup_requests=skip, cost=cost)
    hits = run(policy, trace, sizes, cost=cost)
    return measure_rows(trace, hits, warmup_requests=skip, cost=cost)


def run(
    policy: AnyPolicy,
    trace: Trace,
    sizes: Sequence[int],
    *,
    cost: PrefillCost = DEFAULT_COST,
    shared: Layouts | None = None,
) -> np.ndarray:
    """Leading resident blocks i32[K, R] of one policy at K sizes in blocks.

    `shared` keeps what online policies of one rule can share, as in `replay_online`.
    """
    if isinstance(policy, OnlinePolicy):
        hits = replay_online(trace, policy, sizes, cost=cost, shared=shared)
        return np.asarray(hits.blocks)
    order = ranks(trace, scores(policy, trace, cost=cost))
    return np.asarray(
        replay(trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh).blocks
    )


def resolve(policies: str | Iterable[str | AnyPolicy]) -> list[Any]:
    """Policies by name, from a file or as they are; a string is a comma list.

    Raises:
        InputError: if a name is unknown or stands twice, or a file is no policy's.
    """
    from perc.policies.registry import registry
    from perc.policies.store import with_files

    if isinstance(policies, str):
        policies = policies.split(",")
    chosen = with_files(
        registry[p]() if isinstance(p, str) and not names_policy_file(p) else p
        for p in policies
    )
    names = [p.name for p in chosen]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"policy {min(twice)!r} is given twice. Name each once; variants need "
            "names of their own."
        )
    return chosen


def _index_of(reference: Policy, running: list[Any]) -> int:
    """Where the reference runs; it joins the list if no policy is the same rule."""
    rule = (reference.score, reference.refresh, reference.chain, reference.bypass)
    for i, p in enumerate(running):
        if isinstance(p, Policy) and (p.score, p.refresh, p.chain, p.bypass) == rule:
            return i
    running.append(reference)
    return len(running) - 1


def describe(trace: Trace, skip: int = 0) -> dict:
    """Plain numbers of a trace; requests from `skip` on are counted."""
    seen = trace.prev >= 0
    counted = trace.request >= skip
    return {
        "source": trace.source,
        "requests": trace.n_requests,
        "sessions": int(trace.session.max(initial=-1)) + 1,
        "block_tokens": trace.block_tokens,
        "block_accesses": trace.n_accesses,
        "distinct_blocks": trace.n_blocks,
        "longest_request_blocks": trace.longest_request,
        "span_s": float(trace.arrival_s[-1]) if trace.n_requests else 0.0,
        "input_tokens": int(trace.input_tokens.sum(dtype=np.int64)),
        "ideal_block_hit_ratio": ratio(int(np.count_nonzero(seen)), trace.n_accesses),
        "ideal_counted_block_hit_ratio": ratio(
            int(np.count_nonzero(seen & counted)), int(np.count_nonzero(counted))
        ),
    }


def _definitions(trace: Trace, warmup: float, skip: int, cost: PrefillCost) -> dict:
    return {
        "block_hit_ratio": "blocks of the longest resident prefix / blocks looked up",
        "token_hit_ratio": "prompt tokens in hit blocks / prompt tokens",
        "recompute_tokens": "prompt tokens that were not in the cache",
        "recompute_s": f"seconds to prefill them, {cost.name}: {cost.s_per_token:.4g} "
        f"s a token + {cost.s_per_token2:.4g} s a token squared, one request at a time",
        "gap_closed": "(policy - lru) / (bound - lru) in block hit ratio; the bound is "
        "belady, or belady_bypass for a policy that may bypass; it knows the whole "
        "trace and is optimal over all of it, not over the counted part alone",
        "capacity": "blocks; a share means of all distinct blocks of the trace",
        "residency": "the running request is stored whole, unless the policy bypasses; "
        "one larger than the cache keeps its first blocks",
        "order": "requests one after the other, ties least recent then deepest first",
        "counted": f"requests {skip + 1} to {trace.n_requests} (warm-up share "
        f"{warmup}), the cache is empty at request 1",
    }
