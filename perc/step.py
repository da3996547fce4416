"""What a cache does with one request. This file is the definition; engines follow it.

    1. Look up:  the hit is the longest run of resident blocks from the root.
    2. Score:    every block of the request gets the score of this use.
    3. Evict:    the lowest scores leave until the new blocks fit. Pinned blocks never
                 leave, and the request's own blocks only after all others.
    4. Insert:   the new blocks take the free slots.

Ties leave least recent first, then deepest first. A request larger than the cache
keeps its first blocks. A policy with `bypass` lets the request's own blocks compete
with the others instead, so that a new block may not be stored at all.
"""

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.features import features
from perc.shapes import bucket, pad
from perc.types import CacheState, Hits, Outcome, Policy, Request, Trace


def empty_cache(capacity: int, n_blocks: int) -> CacheState:
    """A cache of C = `capacity` empty slots for M = `n_blocks` distinct blocks."""
    return CacheState(
        block=jnp.full(capacity, -1, jnp.int32),
        key=jnp.full(capacity, -jnp.inf, jnp.float32),
        last=jnp.full(capacity, -1, jnp.int32),
        depth=jnp.zeros(capacity, jnp.int32),
        pins=jnp.zeros(capacity, jnp.int32),
        slot=jnp.full(n_blocks, -1, jnp.int32),
        worth=jnp.full(n_blocks, -jnp.inf, jnp.float32),
        clock=jnp.int32(0),
    )


@jax.jit
def step(
    policy: Policy, state: CacheState, request: Request
) -> tuple[CacheState, Outcome]:
    """Serves one request: the cache before in, the cache after out.

    Args:
        policy: scores the blocks; the lowest leaves first.
        state: C slots, M distinct blocks.
        request: L blocks, root first, padded with -1.

    Returns:
        The new state, and the Outcome that says what happened and why.
    """
    n_blocks, n_slots, length = len(state.slot), len(state.block), len(request.block)
    real = (request.block >= 0) & (request.block < n_blocks)
    depth = jnp.arange(length)

    # 1. Look up.
    at = jnp.where(real, state.slot[request.block], -1)
    resident = at >= 0
    hit_blocks = jnp.cumprod(resident.astype(jnp.int32)).sum()

    # 2. Score. `touched` is the slot of each hit, or beyond the end to write nowhere.
    key, worth = _score(policy, state.worth, request)
    touched = jnp.where(resident & policy.refresh, at, n_slots)
    slots = state._replace(
        key=state.key.at[touched].set(key, mode="drop"),
        last=state.last.at[touched].set(state.clock, mode="drop"),
    )

    # 3. Evict, from the slots and the newcomers together.
    new = real & ~resident
    own_slot = (
        jnp.zeros(n_slots, bool)
        .at[jnp.where(resident, at, n_slots)]
        .set(True, mode="drop")
    )
    pool_block = jnp.concatenate([slots.block, jnp.where(new, request.block, -1)])
    pool_key = jnp.concatenate([slots.key, key])
    pool_last = jnp.concatenate([slots.last, jnp.full(length, state.clock)])
    pool_depth = jnp.concatenate([slots.depth, depth])
    fixed = jnp.concatenate([slots.pins > 0, jnp.zeros(length, bool)])
    own = jnp.concatenate([own_slot, new]) & (not policy.bypass)
    # `lexsort` sorts by its last key first: what may not leave at all comes last, then
    # the request's own blocks (tail first), then by score and ties. No more than the
    # L newcomers can be too many, so L places are enough.
    order = jnp.lexsort(
        (
            -pool_depth,
            jnp.where(own, state.clock, pool_last),
            jnp.where(own, jnp.inf, pool_key),
            fixed | (pool_block < 0),
        )
    )[:length]
    excess = (pool_block >= 0).sum() - n_slots
    chosen = jnp.arange(length) < excess
    leaves = jnp.zeros(n_slots + length, bool).at[order].set(chosen)
    victims = jnp.where(chosen, pool_block[order], -1)

    # 4. Insert. `free` lists empty slots; beyond them, one that writes nowhere.
    admitted = new & ~leaves[n_slots:]
    kept = jnp.where(leaves[:n_slots], -1, slots.block)
    free = jnp.nonzero(kept < 0, size=min(length, n_slots), fill_value=n_slots)[0]
    free = jnp.concatenate([free, jnp.full(length, n_slots)])
    into = jnp.where(admitted, free[jnp.cumsum(admitted) - 1], n_slots)
    where = state.slot.at[_or_drop(victims, n_blocks)].set(-1, mode="drop")
    where = where.at[_or_drop(jnp.where(admitted, request.block, -1), n_blocks)].set(
        into, mode="drop"
    )
    after = CacheState(
        block=kept.at[into].set(request.block, mode="drop"),
        key=slots.key.at[into].set(key, mode="drop"),
        last=slots.last.at[into].set(state.clock, mode="drop"),
        depth=slots.depth.at[into].set(depth, mode="drop"),
        pins=jnp.where(leaves[:n_slots], 0, slots.pins),
        slot=where,
        worth=worth,
        clock=state.clock + 1,
    )
    outcome = Outcome(
        hit_blocks=hit_blocks,
        resident=resident,
        admitted=real & (where[request.block] >= 0),
        victims=victims,
        victim_scores=jnp.where(chosen, pool_key[order], jnp.inf),
    )
    return after, outcome


def _score(
    policy: Policy, worth: jax.Array, request: Request
) -> tuple[jax.Array, jax.Array]:
    """Keys of the request's blocks f32[L], and the worth of all blocks f32[M]."""
    real = (request.block >= 0) & (request.block < len(worth))
    key = policy.score(policy.params, request.features)
    key = jnp.broadcast_to(jnp.asarray(key, jnp.float32), real.shape)
    if not policy.chain:
        return key, worth
    # Above its descendants, and never below what an earlier use made of it.
    key = jax.lax.cummax(jnp.where(real, key, -jnp.inf), reverse=True)
    key = jnp.maximum(key, jnp.where(real, worth[request.block], -jnp.inf))
    return key, worth.at[_or_drop(request.block, len(worth))].set(key, mode="drop")


def _or_drop(index: jax.Array, size: int) -> jax.Array:
    """Index for a scatter in mode "drop": negative means write nowhere."""
    return jnp.where(index >= 0, index, size)


def pin(state: CacheState, blocks: jax.Array, by: int = 1) -> CacheState:
    """Holds resident blocks in place, or releases them with `by=-1`.

    Args:
        state: the cache.
        blocks: i32[B]; those not resident, or of no known number, are passed over.
        by: added to each pin count, which does not fall below 0.
    """
    blocks = jnp.asarray(blocks)
    known = (blocks >= 0) & (blocks < len(state.slot))
    at = _or_drop(jnp.where(known, state.slot[blocks], -1), len(state.block))
    pins = state.pins.at[at].add(by, mode="drop")
    return state._replace(pins=jnp.maximum(pins, 0))


def requests_of(
    trace: Trace, names: tuple[str, ...], *, cost: PrefillCost = DEFAULT_COST
) -> Request:
    """All requests of a trace as `step` wants them, padded to the longest: [R, L]."""
    index = trace.start[:, None] + np.arange(bucket(trace.longest_request, 8))
    real = index < trace.stop[:, None]
    index = np.minimum(index, trace.n_accesses)

    def lay_out(column: np.ndarray) -> np.ndarray:
        one = np.ones((1, *column.shape[1:]), column.dtype)
        return np.concatenate([column, one])[index]

    values = features(trace, names, cost=cost)
    block = np.where(real, lay_out(trace.block), -1)
    laid_out = Request(block, jax.tree.map(lay_out, values))  # pyright: ignore
    return jax.tree.map(jnp.asarray, laid_out)


def replay_steps(
    policy: Policy, trace: Trace, capacity: int, *, cost: PrefillCost = DEFAULT_COST
) -> Hits:
    """Replays a trace by `step` alone: slow, general, and what `replay` must equal.

    Returns:
        Hits of one configuration: blocks i32[R], evictions i32[].
    """
    rows = jax.tree.map(np.asarray, requests_of(trace, policy.uses, cost=cost))
    requests = jax.tree.map(lambda column: pad(column, 1), rows)
    requests = requests._replace(block=pad(rows.block, -1))
    state = empty_cache(capacity, bucket(trace.n_blocks))
    hits, evictions = _scan(policy, state, requests)
    return Hits(np.asarray(hits)[: trace.n_requests], np.asarray(evictions))


@jax.jit
def _scan(policy: Policy, state: CacheState, requests: Request) -> Hits:
    def serve(state, request):
        state, outcome = step(policy, state, request)
        return state, (outcome.hit_blocks, (outcome.victims >= 0).sum())

    _, (hits, evictions) = jax.lax.scan(serve, state, requests)
    return Hits(hits, evictions.sum())
