"""From scores to ranks: one total order over all accesses of a trace.

`rank[i]` is the place of access i when all accesses are sorted by the score that they
give their block, so that an engine compares integers and never a float. Ties are in
the order in which blocks should leave: least recent first, then deepest first.
"""

import functools

import jax
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.features import features
from perc.types import Features, Policy, Trace


@functools.partial(jax.jit, static_argnums=0)
def _score(function, params, values: Features) -> jax.Array:
    return function(params, values)


def scores(
    policy: Policy, trace: Trace, *, cost: PrefillCost = DEFAULT_COST
) -> np.ndarray:
    """Scores every access of a trace in one vectorised pass.

    Args:
        policy: any policy whose score does not depend on what the cache holds.
        trace: N accesses.
        cost: prices the feature `recompute_s`.

    Returns:
        f32[N]; the lowest leaves first.

    Raises:
        ValueError: if the score reads a feature that `uses` does not name, or is NaN,
            which has no place in an order.
    """
    return scores_from(policy, trace, features(trace, policy.uses, cost=cost))


def scores_from(policy: Policy, trace: Trace, values: Features) -> np.ndarray:
    """Like `scores`, from features that were computed before."""
    if not trace.n_accesses:
        return np.zeros(0, np.float32)
    try:
        raw = np.asarray(_score(policy.score, policy.params, values), np.float32)
    except (TypeError, AttributeError) as error:
        raise ValueError(
            f"policy {policy.name}: its score cannot be computed ({error}). A feature "
            f"that `uses` does not name is None; it names {', '.join(policy.uses)}."
        ) from error
    raw = np.broadcast_to(raw, (trace.n_accesses,))
    bad = np.flatnonzero(np.isnan(raw))
    if len(bad):
        raise ValueError(
            f"policy {policy.name}: the score of access {bad[0]} is NaN "
            f"({len(bad)} in all); a score must be a number or an infinity"
        )
    return chain_worth(trace, raw) if policy.chain else raw


def chain_worth(trace: Trace, score: np.ndarray) -> np.ndarray:
    """Makes an order safe for prefixes: no block leaves before its descendants.

        worth(b) = max over all uses so far of b or of a block below b

    Two running maxima give it: from the leaf to the root inside a request, since a
    block is needed by those below it, and over the uses of a block, resident or not.
    It does not depend on the capacity, so a larger cache never misses more.

    Args:
        trace: N accesses.
        score: f32[N].

    Returns:
        f32[N], exact maxima of the given scores.
    """
    bits = _ordered_bits(score).astype(np.int64)
    leaf_first = bits[::-1] + (_descending(trace.request) << 33)
    up = np.maximum.accumulate(leaf_first)[::-1]
    up = up - (_descending(trace.request) << 33)[::-1]
    order = np.argsort(trace.block, kind="stable")
    lift = trace.block[order].astype(np.int64) << 33
    worth = np.empty_like(up)
    worth[order] = np.maximum.accumulate(up[order] + lift) - lift
    return _from_ordered_bits(worth.astype(np.uint32))


def ranks(trace: Trace, scores: np.ndarray) -> np.ndarray:
    """Sorts accesses by (score, least recent, deepest first).

    Args:
        trace: N accesses.
        scores: f32[N] or f32[P, N].

    Returns:
        i32[N] or i32[P, N], a permutation of 0..N-1 in each row.

    Raises:
        ValueError: if the last axis is not N.
    """
    scores = np.asarray(scores, np.float32)
    if scores.shape[-1:] != (trace.n_accesses,):
        raise ValueError(
            f"scores of shape {scores.shape} for {trace.n_accesses} accesses; "
            "the last axis must hold one score an access"
        )
    if scores.ndim > 1:
        return np.stack([ranks(trace, row) for row in scores])
    mirror = lru_ranks(trace)
    key = (_ordered_bits(scores).astype(np.uint64) << np.uint64(32)) | mirror.astype(
        np.uint64
    )
    key.sort()
    leaving = mirror[(key & np.uint64(0xFFFFFFFF)).astype(np.int64)]
    rank = np.empty(len(scores), np.int32)
    rank[leaving] = np.arange(len(scores), dtype=np.int32)
    return rank


def lru_ranks(trace: Trace) -> np.ndarray:
    """The order of ties, which is LRU: by request, inside one the deepest first.

    Returns:
        i32[N]; the mapping is its own inverse.
    """
    index = np.arange(trace.n_accesses, dtype=np.int32)
    return (trace.start + trace.stop - 1)[trace.request] - index


def _descending(request: np.ndarray) -> np.ndarray:
    """Numbers of the reversed accesses' requests that never fall, i64[N]."""
    return (int(request[-1]) - request[::-1]).astype(np.int64)


def _ordered_bits(score: np.ndarray) -> np.ndarray:
    """u32 that compare as the floats do; the two zeros become one."""
    bits = (np.asarray(score, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def _from_ordered_bits(bits: np.ndarray) -> np.ndarray:
    return np.where(bits >> 31, bits & np.uint32(0x7FFFFFFF), ~bits).view(np.float32)
