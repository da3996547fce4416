"""The cache of a `Rescored` rule: all that is resident is scored anew for victims.

Slots hold what a score reads of each block's last access. A request that needs room
has them all scored in one vectorised pass; then every victim is the lowest entry of a
grid, of which only the victim's column is searched again. So the cost of such a request
grows with the capacity, and that of one more victim with its square root.

Loops over blocks keep the in-place contract of `perc/replay.py`: XLA must not copy the
arrays [M]. Positions number the accesses in the order in which equal scores leave:
least recent first, deepest first.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.online_scored import Traffic, ordered
from perc.shapes import bucket
from perc.types import Features, Now, OnlinePolicy, Rescored

EMPTY = np.iinfo(np.int32).max  # key and position of what is no candidate


class _Cache(NamedTuple):
    where: jax.Array  # i32[M], slot of the block + 1, 0 = out
    slots: "_Slots"
    free: jax.Array  # i32[S + 1], a stack of empty slots
    n_free: jax.Array  # i32[]
    size: jax.Array  # i32[], resident blocks
    bad: jax.Array  # i32[], scores that were not a number


class _Slots(NamedTuple):
    position: jax.Array  # i32[S], of the block's last access, EMPTY = no block
    features: Features  # [S] each, of that access
    # For a closed cache only; the entry S stands for the parent that a root has not.
    kids: jax.Array  # i32[S + 1], resident children of the block
    up: jax.Array  # i32[S + 1], slot of the block's parent


class _Grid(NamedTuple):
    """Who may leave; row r and column c stand for the slot r * columns + c."""

    key: jax.Array  # i32[rows, columns], EMPTY = no candidate
    low: jax.Array  # i32[columns], the lowest key
    first: jax.Array  # i32[columns], the lowest position of those with that key
    slot: jax.Array  # i32[columns], who has it


def slots_for(capacity: int, n_blocks: int, longest: int) -> int:
    """Slots that hold a full cache and one more request; a power of two.

    A program serves all capacities that need the same number.
    """
    return bucket(min(capacity + longest, n_blocks))


@functools.partial(jax.jit, static_argnames="n_slots")
def replay_rescored(
    policy: OnlinePolicy, traffic: Traffic, capacity: jax.Array, n_slots: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R], evictions, NaN scores."""
    rule = policy.rule
    assert isinstance(rule, Rescored)

    def serve(r, carry):
        cache, hits, evictions = carry
        first, last, before = traffic.start[r], traffic.stop[r], cache.size
        kept = last - first
        if not policy.bypass:
            kept = jnp.minimum(kept, capacity)
        cache, found, hit = _access(rule, traffic, cache, first, last, kept)
        cache = _evict(policy, traffic, cache, r, capacity)
        gone = before + last - first - found - cache.size
        return cache, hits.at[r].set(hit), evictions + gone

    n_requests = traffic.start.shape[0]
    carry = (
        _empty(rule, traffic, n_slots),
        jnp.zeros(n_requests, jnp.int32),
        jnp.int32(0),
    )
    cache, hits, evictions = lax.fori_loop(0, n_requests, serve, carry)
    return hits, evictions, cache.bad


def _empty(rule: Rescored, traffic: Traffic, n_slots: int) -> _Cache:
    closed = n_slots + 1 if rule.closed else 0

    def blank(column):
        return jnp.zeros((n_slots, *column.shape[1:]), column.dtype)

    slots = _Slots(
        position=jnp.full(n_slots, EMPTY),
        features=jax.tree.map(blank, traffic.features),
        kids=jnp.zeros(closed, jnp.int32),
        up=jnp.full(closed, n_slots),
    )
    return _Cache(
        where=jnp.zeros(traffic.parent.shape[0], jnp.int32),
        slots=slots,
        free=jnp.arange(n_slots + 1, dtype=jnp.int32),
        n_free=jnp.int32(n_slots),
        size=jnp.int32(0),
        bad=jnp.int32(0),
    )


def _access(rule: Rescored, traffic: Traffic, cache: _Cache, first, last, kept):
    """Stores the request's first `kept` blocks, whatever room there is.

    Returns the cache, how many blocks were in, and how many of them lead.
    """

    def access(i, carry):
        cache, parent, found, hit = carry
        block, stays = traffic.block[i], i - first < kept
        slot = peek(cache.where, block) - 1
        resident = slot >= 0
        # The top of the stack; above it a block that leaves puts its slot.
        top = jnp.where(resident, cache.n_free, cache.n_free - 1)
        slot = jnp.where(resident, slot, peek(cache.free, top))
        change = stays.astype(jnp.int32) - resident
        position = jnp.where(stays, first + last - 1 - i, EMPTY)
        cache = cache._replace(
            where=cache.where.at[block].set(jnp.where(stays, slot + 1, 0)),
            slots=_fill(rule, traffic, cache.slots, i, slot, position, parent, change),
            free=cache.free.at[top].set(slot),
            n_free=cache.n_free - change,
            size=cache.size + change,
        )
        leads = resident & (hit == i - first)
        return cache, slot, found + resident, hit + leads

    root = jnp.int32(cache.slots.position.shape[0])
    none = jnp.int32(0)
    cache, _, found, hit = lax.fori_loop(first, last, access, (cache, root, none, none))
    return cache, found, hit


def _fill(
    rule: Rescored, traffic: Traffic, slots: _Slots, i, slot, position, parent, change
) -> _Slots:
    """Writes access i into a slot; its block comes (change 1), stays or leaves."""
    kids, up = slots.kids, slots.up
    if rule.closed:
        up = up.at[slot].set(parent)
        own = peek(kids, slot)
        kids = kids.at[slot].set(jnp.where(change == 1, 0, own))
        kids = kids.at[parent].set(peek(kids, parent) + change)
    return _Slots(
        position=slots.position.at[slot].set(position),
        features=jax.tree.map(
            lambda held, column: held.at[slot].set(column[i]),
            slots.features,
            traffic.features,
        ),
        kids=kids,
        up=up,
    )


def _evict(
    policy: OnlinePolicy, traffic: Traffic, cache: _Cache, r, capacity
) -> _Cache:
    """Drops the lowest scores until what is left fits."""
    closed = policy.rule.closed  # pyright: ignore[reportAttributeAccessIssue]

    def over(carry) -> jax.Array:
        return carry[0].size > capacity

    def make_room(carry):  # runs once, if at all: it ends when there is room
        (cache,) = carry
        keys, bad = _keys(policy, traffic, cache.slots, r)
        cache = cache._replace(bad=cache.bad + bad)
        evict = functools.partial(
            _evict_one, closed, traffic, keys, cache.slots.position
        )
        leaf = cache.slots.kids[:-1] == 0 if closed else True
        grid = _grid(jnp.where(leaf, keys, EMPTY), cache.slots.position)
        return (lax.while_loop(over, evict, (cache, grid))[0],)

    return lax.while_loop(over, make_room, (cache,))[0]


def _keys(policy: OnlinePolicy, traffic: Traffic, slots: _Slots, r):
    """Keys i32[S] that compare as the scores do, EMPTY for who is no victim; NaNs."""
    assert traffic.time_s is not None
    now = Now(r, traffic.time_s[r], traffic.learned)

    def scored():
        score = policy.rule.score(policy.params, slots.features, now)  # pyright: ignore
        score = jnp.asarray(score, jnp.float32)
        return jnp.broadcast_to(score, slots.position.shape)

    # In a branch that is always taken: XLA cannot compute it again for each use.
    score = lax.cond(r >= 0, scored, lambda: jnp.zeros(slots.position.shape))
    # Accesses of the running request have the highest positions.
    candidate = slots.position < (EMPTY if policy.bypass else traffic.start[r])
    keys = jnp.where(candidate, ordered(score), EMPTY)
    return keys, (jnp.isnan(score) & candidate).sum()


def _grid(keys: jax.Array, position: jax.Array) -> _Grid:
    columns = 1 << (keys.shape[0].bit_length() // 2)
    slot = jnp.arange(keys.shape[0], dtype=jnp.int32).reshape(-1, columns)
    key, position = keys.reshape(-1, columns), position.reshape(-1, columns)
    return _Grid(key, *_lowest(key, position, slot))


def _lowest(key: jax.Array, position: jax.Array, slot: jax.Array):
    """By column: the lowest key, its first position, and whose it is."""
    low = key.min(axis=0)
    first = jnp.where(key == low, position, EMPTY).min(axis=0)
    return low, first, jnp.where(position == first, slot, 0).max(axis=0)


def _evict_one(closed: bool, traffic: Traffic, keys, positions, carry):
    """Drops the lowest candidate; without children its parent becomes one."""
    cache, grid = carry
    low = grid.low.min()
    first = jnp.where(grid.low == low, grid.first, EMPTY).min()
    slot = jnp.where(grid.first == first, grid.slot, 0).max()
    grid = _change(grid, positions, slot, EMPTY)
    slots = cache.slots._replace(position=cache.slots.position.at[slot].set(EMPTY))
    if closed:
        parent = peek(slots.up, slot)
        left = peek(slots.kids, parent) - 1
        slots = slots._replace(
            kids=slots.kids.at[parent].set(left), up=slots.up.at[slot].set(parent)
        )
        bare = (left == 0) & (parent < keys.shape[0])
        parent = jnp.where(bare, parent, slot)
        key = jnp.where(bare, keys[parent], EMPTY)
        grid = _change(grid, positions, parent, key)
    cache = cache._replace(
        where=cache.where.at[traffic.leaving[first]].set(0),
        slots=slots,
        free=cache.free.at[cache.n_free].set(slot),
        n_free=cache.n_free + 1,
        size=cache.size - 1,
    )
    return cache, grid


def _change(grid: _Grid, positions: jax.Array, slot, new) -> _Grid:
    """Gives a slot another key; its column is searched again."""
    rows, columns = grid.key.shape
    row, column = slot // columns, slot % columns
    key = lax.cond(
        column >= 0,
        lambda: lax.dynamic_slice(grid.key, (0, column), (rows, 1)),
        lambda: jnp.zeros((rows, 1), jnp.int32),
    )
    index = jnp.arange(rows, dtype=jnp.int32)[:, None]
    key = jnp.where(index == row, new, key)
    position = lax.dynamic_slice(
        positions.reshape(rows, columns), (0, column), (rows, 1)
    )
    found = _lowest(key, position, index * columns + column)
    return _Grid(
        lax.dynamic_update_slice(grid.key, key, (0, column)),
        *(
            lax.dynamic_update_slice(held, value, (column,))
            for held, value in zip(grid[1:], found, strict=True)
        ),
    )
