"""Programs for retention in the loop: what the trace tells, and what was learned.

A program is a session. The gap after a turn is a sample of the turn's kind (its tool)
once the next turn has come. Samples are kept as flags over the sorted gaps of the whole
trace, so that a distribution is a running count. Nothing of a gap is read before its
flag is set.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.roofline import Roofline
from perc.serving.heap import Heap, build
from perc.serving.lifecycle import WAITS
from perc.shapes import pad
from perc.types import Trace

# Entries of `Retained.counts`.
SHIELDS, IN_TIME, LATE, EXPIRED, RELEASED, REFUSED = range(6)
# Entries of `Retained.pairs`: of (turn, turns left), see `lifecycle.eta_of`.
PAIRS, X, XY, XX = range(4)


class Programs(NamedTuple):
    """Of the traffic; padded, and never written."""

    gaps_s: jax.Array  # f64[R], ascending, inf = no next turn
    tools: jax.Array  # i32[R], kind of the turn before each of them
    place: jax.Array  # i32[R], of each request's gap among them
    tool: jax.Array  # i32[R], kind of each request
    reload_s: jax.Array  # f64[R], to compute again what the request leaves
    turns: jax.Array  # i32[R], of its program, where it is the last; else 0


class Retained(NamedTuple):
    """Shields, each named by the turn that ended, and what was learned so far."""

    deadline: Heap  # of shielded turns, keys in seconds
    expiring: Heap  # the same, without those whose next turn waits
    known: jax.Array  # bool[R], gaps that were seen
    waits_s: jax.Array  # f64[WAITS], of late turns, a ring
    waits: jax.Array  # i64[], so far
    pairs: jax.Array  # i64[4], over completed programs
    counts: jax.Array  # i64[6]
    ttl_s: jax.Array  # f64[R]


def nothing_retained(requests: int) -> Retained:
    """Before the first turn has ended."""
    nothing = build(np.full(requests, np.inf))
    return Retained(
        deadline=nothing,
        expiring=nothing,
        known=jnp.zeros(requests, jnp.bool_),
        waits_s=jnp.zeros(WAITS, jnp.float64),
        waits=jnp.int64(0),
        pairs=jnp.zeros(4, jnp.int64),
        counts=jnp.zeros(6, jnp.int64),
        ttl_s=jnp.zeros(requests, jnp.float64),
    )


def before_of(following: np.ndarray) -> np.ndarray:
    """The turn i64[R] whose end sets each one off, -1 = none.

    >>> before_of(np.array([2, -1, -1])).tolist()
    [-1, -1, 0]
    """
    before = np.full(len(following), -1)
    (at,) = np.nonzero(following >= 0)
    before[following[at]] = at
    return before


def programs(
    trace: Trace,
    prompt_stop: np.ndarray,
    following: np.ndarray,
    gap_s: np.ndarray,
    cost: Roofline,
) -> Programs:
    """Lays the programs out.

    Args:
        trace: accesses of prompts and of answers that have names.
        prompt_stop: i32[R], where each request's answer begins among its accesses.
        following: i32[R], next turns, -1 = none.
        gap_s: f64[R], from the end of each request to its next turn.
        cost: prices prefixes.
    """
    gaps = np.where(following >= 0, gap_s, np.inf)
    order = np.argsort(gaps, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    turn = turns_of(following)

    def lay_out(column: np.ndarray, fill: float = 0) -> jax.Array:
        return jnp.asarray(pad(column, fill))

    return Programs(
        gaps_s=lay_out(gaps[order], np.inf),
        tools=lay_out(trace.kind[order].astype(np.int32), -1),
        place=lay_out(place.astype(np.int32)),
        tool=lay_out(trace.kind.astype(np.int32)),
        reload_s=lay_out(cost.prefill_s(kept_tokens(trace, prompt_stop))),
        turns=lay_out(np.where(following < 0, turn, 0).astype(np.int32)),
    )


def turns_of(following: np.ndarray) -> np.ndarray:
    """The number i64[R] of each turn in its program, 1 = first."""
    turn = np.ones(len(following), np.int64)
    for r, after in enumerate(following):
        if after >= 0:
            turn[after] = turn[r] + 1
    return turn


def kept_tokens(trace: Trace, prompt_stop: np.ndarray) -> np.ndarray:
    """Tokens i64[R] of the prefix that a request leaves in the cache."""
    named = (trace.stop - trace.start).astype(np.int64) * trace.block_tokens
    prompt = np.maximum(trace.input_tokens, 1).astype(np.int64)
    return np.where(trace.stop > prompt_stop, named, prompt)
