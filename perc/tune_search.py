"""Successive halving: many configurations over little traffic, few over all of it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perc.bootstrap import Measure, share_of
from perc.compare import Progress, run
from perc.cost import PrefillCost
from perc.features import features
from perc.online import Layouts
from perc.ranks import ranks, scores_from
from perc.replay import replay
from perc.types import Features, Policy, Trace

RUNGS = 4  # at most; each is twice as long as the one before, the last is everything
# A rung tells policies apart only where its blocks overflow the cache well.
OVERFLOW = 2  # distinct blocks of a rung / largest capacity, at least
FINALISTS = 8  # configurations that see everything, at least


class Rung(NamedTuple):
    """One round of the search."""

    requests: int  # from the trace's start
    configurations: int


def first_requests(trace: Trace, n: int) -> Trace:
    """The trace as it was after n > 0 requests, knowing nothing of later ones."""
    stop = int(trace.stop[n - 1])
    accesses = ("block", "request", "depth", "tokens", "prev", "next")
    requests = ("start", "stop", "arrival_s", "input_tokens", "output_tokens")
    requests += ("session", "turn", "kind", "priority", "deadline_s")
    cut = {name: getattr(trace, name)[:stop] for name in accesses}
    cut |= {name: getattr(trace, name)[:n] for name in requests}
    return replace(
        trace, **cut | {"next": np.where(cut["next"] < stop, cut["next"], -1)}
    )


def halve(
    candidates: Sequence[Policy],
    training: Trace,
    sizes: Sequence[int],
    measure: Measure,
    *,
    cost: PrefillCost,
    keep: int,
    progress: Progress | None = None,
) -> tuple[int, list[Rung]]:
    """Finds the best candidate on the training traffic.

    Args:
        candidates: the first one stays in every round; it also wins ties.
        training: all that may be looked at.
        sizes: capacities in blocks.
        measure: what to maximise, as a mean over the capacities.
        cost: prices the features and the measure.
        keep: one in so many survives a round; 1 for a single round over everything.
        progress: called after each candidate, anew in every round.

    Returns:
        The index of the best, and the rounds.
    """
    best, alive, rungs = 0, list(range(len(candidates))), []
    lengths = rung_lengths(training, max(sizes)) if keep > 1 else [training.n_requests]
    for length in lengths:
        seen = first_requests(training, length)
        rungs.append(Rung(length, len(alive)))
        scores = _scores((candidates[i] for i in alive), seen, sizes, measure, cost)
        found = {}
        for i, score in zip(alive, scores, strict=True):
            found[i] = score
            if progress:
                progress(len(found), len(alive), f"{length:,} requests")
        # Stable: of equals the earlier one stays, above all the default.
        alive.sort(key=lambda i: -found[i])
        best = alive[0]
        kept = alive[: max(math.ceil(len(alive) / keep), FINALISTS)]
        alive = sorted({0, *kept})
    return best, rungs


def rung_lengths(training: Trace, largest: int) -> list[int]:
    """Requests of each round, ascending; the last round is everything."""
    n = training.n_requests
    lengths = {n >> k for k in range(1, RUNGS)} - {0}
    return [
        length
        for length in sorted(lengths)
        if first_requests(training, length).n_blocks >= OVERFLOW * largest
    ] + [n]


def _scores(
    policies: Iterable[Policy],
    trace: Trace,
    sizes: Sequence[int],
    measure: Measure,
    cost: PrefillCost,
) -> Iterator[float]:
    """What each policy serves, mean over the capacities, one after the other."""
    whole = measure.whole(trace, cost)
    shared: dict[tuple[str, ...], Features] = {}
    layouts: Layouts = {}
    for policy in policies:
        hits = _hits(policy, trace, sizes, cost, shared, layouts)
        yield float(share_of(measure.part(trace, hits, cost), whole).mean())


def _hits(
    policy: Policy,
    trace: Trace,
    sizes: Sequence[int],
    cost: PrefillCost,
    shared: dict[tuple[str, ...], Features],
    layouts: Layouts,
) -> np.ndarray:
    """Hits i32[K, R]; what was computed once is found in `shared` and `layouts`."""
    if not isinstance(policy, Policy):
        return run(policy, trace, sizes, cost=cost, shared=layouts)
    if policy.uses not in shared:
        shared[policy.uses] = features(trace, policy.uses, cost=cost)
    order = ranks(trace, scores_from(policy, trace, shared[policy.uses]))
    hits = replay(trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh)
    return np.asarray(hits.blocks)
