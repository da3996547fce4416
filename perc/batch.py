"""Many configurations of one policy side by side: the path for a GPU.

`perc.replay` is a loop of tiny steps, which suits a CPU. A GPU wants the same step for
hundreds of caches at once: `jax.vmap` over `perc.step`, parameters and capacities
mapped together. Caches of different capacity share one shape by filling the slots that
a smaller one lacks with blocks that are pinned for ever.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.shapes import bucket, pad
from perc.step import empty_cache, requests_of, step
from perc.types import CacheState, Hits, Policy, Request, Trace


def replay_batch(
    policy: Policy,
    params: Any,
    trace: Trace,
    capacities: Sequence[int],
    *,
    cost: PrefillCost = DEFAULT_COST,
) -> Hits:
    """Replays a trace through P caches at once, by `perc.step` alone.

    Args:
        policy: the family; its own parameters are replaced.
        params: its parameters, each leaf stacked along a first axis [P].
        trace: R requests.
        capacities: P sizes in blocks, one a configuration.
        cost: prices the feature `recompute_s`.

    Returns:
        Hits: blocks i32[P, R] and evictions i32[P], equal to `perc.replay`.

    Raises:
        ValueError: if the parameters are not stacked to as many as the capacities.
    """
    sizes = np.asarray(capacities, np.int32)
    wrong = [x.shape for x in jax.tree.leaves(params) if x.shape[:1] != sizes.shape]
    if wrong:
        raise ValueError(
            f"parameters of shape {wrong[0]} for {len(sizes)} capacities; stack one "
            "row a configuration"
        )
    rows = jax.tree.map(np.asarray, requests_of(trace, policy.uses, cost=cost))
    requests = jax.tree.map(lambda column: pad(column, 1), rows)
    requests = requests._replace(block=pad(rows.block, -1))
    slots = bucket(int(sizes.max(initial=1)), 8)
    family = replace(policy, params=params)
    hits, evictions = _replay(
        family, requests, jnp.asarray(sizes), slots, bucket(trace.n_blocks)
    )
    return Hits(np.asarray(hits)[:, : trace.n_requests], np.asarray(evictions))


def part_of_a_cache(capacity: jax.Array, slots: int, n_blocks: int) -> CacheState:
    """An empty cache of `capacity` slots in the shape of one with `slots`.

    The other slots hold pinned blocks with ids from `n_blocks` on, which no request
    asks for.
    """
    state = empty_cache(slots, n_blocks + slots)
    index = jnp.arange(slots, dtype=jnp.int32)
    lacking = index >= capacity
    return state._replace(
        block=jnp.where(lacking, n_blocks + index, -1),
        pins=jnp.where(lacking, 1, 0),
        slot=state.slot.at[n_blocks + index].set(jnp.where(lacking, index, -1)),
    )


@functools.partial(jax.jit, static_argnames=("slots", "n_blocks"))
def _replay(policies, requests, capacities, slots, n_blocks):
    def one(policy: Policy, capacity: jax.Array):
        def serve(state: CacheState, request: Request):
            state, outcome = step(policy, state, request)
            return state, (outcome.hit_blocks, (outcome.victims >= 0).sum())

        state = part_of_a_cache(capacity, slots, n_blocks)
        _, (hits, evictions) = jax.lax.scan(serve, state, requests)
        return hits, evictions.sum()

    return jax.vmap(one)(policies, capacities)
