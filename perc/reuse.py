"""How soon blocks are used again: counts by class and age, known at each moment.

For every class of accesses and every age of a block, two numbers: how often a block of
that class was used again at that age, and how often one of that age was there to be
used. Their quotient is the hazard, and from hazards follow survival curves (Kaplan and
Meier 1958). A block that still waits counts up to its present age and not beyond, so
traffic that has just begun is not mistaken for traffic that never returns.

The counts are taken again as the trace grows, at `epochs`: what an epoch knows is what
happened before its first request.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.features import features
from perc.types import Trace

STEPS = 4  # bins of an octave of age; the first bin is everything below a second
AGES = 72  # bins; what is older than two and a half days joins the last
FIRST_EPOCH = 32  # requests until the first count, and at least between two
GROWTH = 8  # after that a count is taken when the trace has grown by 1 / GROWTH
_SHIFT = 23 - STEPS.bit_length() + 1  # of a float32: leaves exponent and two bits
_ONE_SECOND = int(np.float32(1).view(np.int32)) >> _SHIFT


class Reuse(NamedTuple):
    """What is known at each of E epochs, at levels of classes from coarse to fine.

    Level l has K_l classes, each a part of one class of the level before.
    """

    epoch: np.ndarray  # i32[R], which epoch a request lives in
    ages: np.ndarray  # f32[A], lower edges of the bins of age, in seconds
    events: tuple[np.ndarray, ...]  # f32[E, K_l, A], uses at that age
    at_risk: tuple[np.ndarray, ...]  # f32[E, K_l, A], blocks that reached that age
    parents: tuple[np.ndarray, ...]  # i32[K_l], class of the level before; 0 at first
    density: np.ndarray  # f32[E, K], mean recompute seconds a token, finest level
    named: np.ndarray  # i32[K], the number that the rule gave to each, finest level


def bin_of(bits: Any) -> Any:
    """The bin i32[...] of an age, from the bits of its float32; unbounded above.

    Exponent and two more bits: four bins to an octave, and one for all below a second.
    """
    beyond = (bits >> _SHIFT) - (_ONE_SECOND - 1)
    return beyond * (beyond > 0)


def age_bin(age_s: Any) -> np.ndarray:
    """The bin i32[...] of ages f32[...] in seconds."""
    return bin_of(np.asarray(age_s, np.float32).view(np.int32))


def age_edges() -> np.ndarray:
    """Lower edges f32[A] of the bins of age, in seconds."""
    steps = np.arange(AGES, dtype=np.int32) + _ONE_SECOND - 1
    edges = (steps << _SHIFT).view(np.float32)
    edges[0] = 0
    return edges


def epochs(n_requests: int) -> np.ndarray:
    """First request i64[E] of each epoch; the first epoch knows nothing."""
    found = [0]
    while (following := found[-1] + max(FIRST_EPOCH, found[-1] // GROWTH)) < n_requests:
        found.append(following)
    return np.array(found)


def dense_levels(
    levels: Sequence[np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Numbers the classes that occur, and finds the class that each is a part of.

    Args:
        levels: integers [N] each, from coarse to fine.

    Returns:
        Classes i32[N] of each level, numbered from 0, and their parents i32[K_l].
    """
    classes, parents = [], []
    above = np.zeros(len(levels[0]), np.int64)
    for level in levels:
        joint = above * (int(level.max(initial=0)) + 1) + level
        _, first, dense = np.unique(joint, return_index=True, return_inverse=True)
        parents.append(above[first].astype(np.int32))
        classes.append(dense.reshape(-1).astype(np.int32))
        above = dense.reshape(-1).astype(np.int64)
    return classes, parents


def count_reuse(
    trace: Trace,
    classes: Sequence[np.ndarray],
    parents: Sequence[np.ndarray],
    *,
    named: np.ndarray | None = None,
    cost: PrefillCost = DEFAULT_COST,
) -> Reuse:
    """Counts the uses of a trace by class and age, epoch by epoch.

    Args:
        trace: N accesses of R requests.
        classes: i32[N] of each level, from `dense_levels`.
        parents: i32[K_l] of each level.
        named: i32[K], what the rule calls the classes of the finest level; by default
            their numbers.
        cost: prices the recomputation of a block.

    Returns:
        Reuse; epoch e knows requests before its first one only.
    """
    time_s = trace.arrival_s.astype(np.float32)
    starts = epochs(trace.n_requests)
    ages = age_edges()
    finest = classes[-1]
    n_classes = len(parents[-1])
    events, at_risk = _count(trace, time_s, finest, n_classes, starts, len(ages))
    density = _density(trace, finest, n_classes, starts, cost)
    sizes = np.diff(np.append(starts, trace.n_requests))
    return Reuse(
        epoch=np.repeat(np.arange(len(starts), dtype=np.int32), sizes),
        ages=ages,
        events=pool(events, parents),
        at_risk=pool(at_risk, parents),
        parents=tuple(parents),
        density=density,
        named=np.arange(n_classes) if named is None else named,
    )


def pool(finest: np.ndarray, parents: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Counts f32[E, K_l, A] of all levels, from those of the finest."""
    levels = [finest]
    for parent, above in zip(parents[:0:-1], parents[-2::-1], strict=True):
        levels.append(_pool(levels[-1], parent, len(above)))
    return tuple(reversed(levels))


def _pool(counts: np.ndarray, parent: np.ndarray, n_above: int) -> np.ndarray:
    """Sums f32[E, K, A] over the classes of each parent."""
    pooled = np.zeros((len(counts), n_above, counts.shape[2]), np.float32)
    np.add.at(pooled.swapaxes(0, 1), parent, counts.swapaxes(0, 1))
    return pooled


def _count(trace, time_s, finest, n_classes, starts, n_ages):
    """Events and blocks at risk, f32[E, K, A] each."""
    cell = n_classes * n_ages
    pair, pair_class, pair_request = _pairs(trace, finest, n_classes)
    used = np.flatnonzero(trace.next >= 0)
    later = trace.request[trace.next[used]]
    order = np.argsort(later, kind="stable")
    used, later = used[order], later[order]
    bins = np.minimum(age_bin(time_s[later] - time_s[trace.request[used]]), n_ages - 1)
    cells = finest[used] * n_ages + bins
    waiting = np.zeros(len(pair_class))
    done = np.zeros(cell)
    events = np.zeros((len(starts), n_classes, n_ages), np.float32)
    at_risk = np.zeros_like(events)
    seen = known = 0
    for e, start in enumerate(starts[1:], 1):
        upto = int(np.searchsorted(later, start))  # uses before the epoch's start
        done += np.bincount(cells[seen:upto], minlength=cell)
        waiting -= np.bincount(pair[used[seen:upto]], minlength=len(waiting))
        arrived = int(trace.stop[start - 1])
        waiting += np.bincount(pair[known:arrived], minlength=len(waiting))
        seen, known = upto, arrived
        some = waiting > 0
        age = time_s[start - 1] - time_s[pair_request[some]]
        now = pair_class[some] * n_ages + np.minimum(age_bin(age), n_ages - 1)
        left = np.bincount(now, weights=waiting[some], minlength=cell)
        reached = (done + left).reshape(n_classes, n_ages)
        reached = reached[:, ::-1].cumsum(1)[:, ::-1]
        events[e] = done.reshape(n_classes, n_ages)
        # Who waits in a bin has passed half of it, on average.
        at_risk[e] = reached - left.reshape(n_classes, n_ages) / 2
    return events, at_risk


def _pairs(trace, finest, n_classes):
    """Numbers the pairs (request, class) by access: their blocks age together."""
    joint = trace.request.astype(np.int64) * n_classes + finest
    _, first, pair = np.unique(joint, return_index=True, return_inverse=True)
    return pair.reshape(-1), finest[first], trace.request[first]


def _density(trace, finest, n_classes, starts, cost: PrefillCost) -> np.ndarray:
    """Mean recompute seconds a token f32[E, K]; of all, where a class is new."""
    values = features(trace, ["recompute_s", "tokens"], cost=cost)
    each = (values.recompute_s / values.tokens).astype(np.float64)
    total, count = np.zeros(n_classes), np.zeros(n_classes)
    found = np.empty((len(starts), n_classes), np.float32)
    known = 0
    for e, start in enumerate(starts):
        upto = int(trace.start[start]) if start < trace.n_requests else len(each)
        total += np.bincount(finest[known:upto], each[known:upto], n_classes)
        count += np.bincount(finest[known:upto], minlength=n_classes)
        known = upto
        mean = total.sum() / max(count.sum(), 1) or 1.0
        found[e] = np.where(count > 0, total / np.maximum(count, 1), mean)
    return found
