"""From a policy to the order of a trace, for thousands of policies on one trace.

The same numbers as `perc.ranks`, with everything that depends on the trace alone
computed once: features, the order inside requests, and where requests begin.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import PrefillCost
from perc.features import features
from perc.levels import Requests, pad, requests_of
from perc.ranks import (
    chain_worth_bits,
    lru_ranks,
    ordered_bits,
    ranks_of_bits,
    scores_from,
)
from perc.types import Features, Policy, Trace


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
    bits = ordered_bits(raw)
    if policy.chain:
        start, stop, _ = made.requests
        found = chain_worth_bits(jnp.asarray(pad(bits)), made.block, start, stop)
        bits = np.asarray(found)[: len(raw)]
    rank = ranks_of_bits(bits, made.mirror)
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
