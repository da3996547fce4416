"""From a policy to the order of a trace, for thousands of policies on one trace.

The same numbers as `perc.ranks`, with everything that depends on the trace alone
computed once: features, the order inside requests, and where requests begin.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.cost import PrefillCost
from perc.features import features
from perc.ranks import lru_ranks, scores_from
from perc.sweep_replay import Requests, pad, requests_of
from perc.types import Features, Policy, Trace

LOWEST = -(2**31)


class Scored(NamedTuple):
    """What the orders of one trace have in common."""

    trace: Trace
    cost: PrefillCost
    mirror: np.ndarray  # i32[N], order of ties, of `lru_ranks`: its own inverse
    block: jax.Array  # i32[N], padded
    requests: Requests
    values: dict[str, jax.Array]  # features of the policy before, by name


def scored(trace: Trace, cost: PrefillCost) -> Scored:
    """Prepares a trace."""
    block = jnp.asarray(pad(trace.block))
    return Scored(trace, cost, lru_ranks(trace), block, requests_of(trace), {})


def order(made: Scored, policy: Policy) -> tuple[np.ndarray, np.ndarray]:
    """Ranks i32[N] as of `perc.ranks`, and those of each block's access before.

    Where a block has none before, the second holds anything.
    """
    raw = scores_from(replace(policy, chain=False), made.trace, _values(made, policy))
    if policy.chain:
        padded = jnp.asarray(pad(raw.view(np.int32)).view(np.float32))
        bits = _chain(padded, made.block, made.requests)
    else:
        bits = _bits(jnp.asarray(raw))
    key = np.asarray(bits)[: len(raw)].astype(np.int64) << 32
    key |= made.mirror
    key.sort()
    place = np.empty(len(raw), np.int32)
    place[key & 0x7FFFFFFF] = np.arange(len(raw), dtype=np.int32)
    rank = place[made.mirror]
    return rank, rank[made.trace.prev]


def _values(made: Scored, policy: Policy) -> Features:
    """Computes what the policy before did not use, and forgets what this one does not.

    Only the features of one policy are alive, however many a sweep has.
    """
    for name in set(made.values) - set(policy.uses):
        del made.values[name]
    for name in policy.uses:
        if name not in made.values:
            column = getattr(features(made.trace, [name], cost=made.cost), name)
            made.values[name] = jnp.asarray(column)
    return Features(**made.values)


@jax.jit
def _bits(score: jax.Array) -> jax.Array:
    """i32 that compare as the floats do; the two zeros become one."""
    bits = lax.bitcast_convert_type(score, jnp.int32)
    bits = jnp.where(bits == LOWEST, 0, bits)
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@jax.jit
def _chain(score: jax.Array, block: jax.Array, requests: Requests) -> jax.Array:
    """`perc.ranks.chain_worth` as bits: a running maximum a request and a block."""
    bits = _bits(score)

    def serve(r, carry):
        def climb(j, carry):
            worth, out, most = carry
            i = requests.stop[r] - 1 - j
            most = jnp.maximum(most, bits[i])
            now = jnp.maximum(peek(worth, block[i]), most)
            return worth.at[block[i]].set(now), out.at[i].set(now), most

        n = requests.stop[r] - requests.start[r]
        return lax.fori_loop(0, n, climb, (*carry, jnp.int32(LOWEST)))[:2]

    carry = (jnp.full_like(block, LOWEST), jnp.zeros_like(block))
    return lax.fori_loop(0, requests.start.shape[0], serve, carry)[1]
