"""From scores to ranks: one total order over all accesses of a trace.

`rank[i]` is the place of access i when all accesses are sorted by the score that they
give their block, so that an engine compares integers and never a float. Ties are in
the order in which blocks should leave: least recent first, then deepest first.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.features import features
from perc.shapes import pad
from perc.types import Features, Policy, Trace

LOWEST = np.iinfo(np.int32).min


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
        raise InputError(
            f"policy {policy.name}: the score of access {bad[0]} is NaN "
            f"({len(bad)} in all); a score must be a number or an infinity. Are its "
            "parameters too large?"
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
    columns = (ordered_bits(score), trace.block, trace.start, trace.stop)
    found = chain_worth_bits(*(jnp.asarray(pad(column, 0)) for column in columns))
    return _from_ordered_bits(np.asarray(found)[: len(score)])


@jax.jit
def chain_worth_bits(bits, block, start, stop) -> jax.Array:
    """`chain_worth` on `ordered_bits` i32[N], in one pass in place.

    Up each prompt from its tail, keeping the most that a block ever was worth.
    """

    def serve(r, carry):
        def climb(j, carry):
            worth, out, most = carry
            i = stop[r] - 1 - j
            most = jnp.maximum(most, bits[i])
            now = jnp.maximum(peek(worth, block[i]), most)
            return worth.at[block[i]].set(now), out.at[i].set(now), most

        n = stop[r] - start[r]
        return lax.fori_loop(0, n, climb, (*carry, jnp.int32(LOWEST)))[:2]

    carry = (jnp.full_like(bits, LOWEST), jnp.zeros_like(bits))
    return lax.fori_loop(0, start.shape[0], serve, carry)[1]


def ranks(trace: Trace, scores: np.ndarray) -> np.ndarray:
    """Sorts accesses by (score, least recent, deepest first).

    Args:
        trace: N accesses.
        scores: f32[N] or f32[P, N].

    Returns:
        i32[N] or i32[P, N], a permutation of 0..N-1 in each row.

    Raises:
        ValueError: if the last axis is not N, or a score is NaN.
    """
    scores = np.asarray(scores, np.float32)
    if scores.shape[-1:] != (trace.n_accesses,):
        raise ValueError(
            f"scores of shape {scores.shape} for {trace.n_accesses} accesses; "
            "the last axis must hold one score an access"
        )
    if np.isnan(scores).any():
        raise ValueError("a score is NaN, which has no place in an order")
    if scores.ndim > 1:
        return np.stack([ranks(trace, row) for row in scores])
    mirror = lru_ranks(trace)
    return ranks_of_bits(ordered_bits(scores), mirror)


def ranks_of_bits(bits: np.ndarray, mirror: np.ndarray) -> np.ndarray:
    """Ranks i32[N] from `ordered_bits` i32[N] and `lru_ranks` i32[N]."""
    # Two stable passes over 16 bits each, which numpy sorts by radix: in the order of
    # ties to begin with, which is kept among equals. Half the time of any other sort.
    key = bits.view(np.uint32)[mirror] ^ np.uint32(1 << 31)
    low = np.argsort(key.astype(np.uint16), kind="stable")
    high = (key >> 16).astype(np.uint16)[low]
    place = np.empty(len(bits), np.int32)
    place[low[np.argsort(high, kind="stable")]] = np.arange(len(bits), dtype=np.int32)
    return place[mirror]


def lru_ranks(trace: Trace) -> np.ndarray:
    """The order of ties, which is LRU: by request, inside one the deepest first.

    Returns:
        i32[N]; the mapping is its own inverse.
    """
    index = np.arange(trace.n_accesses, dtype=np.int32)
    return (trace.start + trace.stop - 1)[trace.request] - index


def ordered_bits(score: np.ndarray) -> np.ndarray:
    """i32 that compare as the floats do; the two zeros become one.

    So do denormals, which compiled code takes for zero.
    """
    score = np.asarray(score, np.float32)
    tiny = np.abs(score) < np.finfo(np.float32).tiny
    bits = np.where(tiny, np.float32(0), score).view(np.int32)
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def _from_ordered_bits(bits: np.ndarray) -> np.ndarray:
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32).view(np.float32)
