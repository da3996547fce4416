"""The cache of a `Scored` rule: a tournament over blocks, the lowest key on top.

Every block owns a leaf, which holds (key, position) while the block may be a victim.
An inner node holds the smaller pair below it, so the victim is read at the root and a
change climbs until a winner stays. Positions number the accesses in the order in which
equal keys leave: least recent first, deepest first. No two are equal.

The loops keep the in-place contract of `perc/replay.py`: XLA must not copy the state.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.types import Features, Memory, OnlinePolicy, Scored

EMPTY = np.iinfo(np.int32).max  # key and position of a leaf that is no candidate
# Levels of the tree in one turn of a loop; with more, or with more in the loop of a
# closed cache, JAX 0.10 no longer compiles the loop as one piece.
LEVELS, LEVELS_CLOSED = 2, 1


class Traffic(NamedTuple):
    """What the engines read of a trace; padded, and never written."""

    block: jax.Array  # i32[N]
    leaving: jax.Array  # i32[N], the block whose access has this position
    parent: jax.Array  # i32[M], the block before it in every prompt, M = none
    start: jax.Array  # i32[R]
    stop: jax.Array  # i32[R]
    features: Features  # [N] each


class _Cache(NamedTuple):
    tree: jax.Array  # i32[M, 4], row n holds the pairs of nodes 2n and 2n + 1
    stamp: jax.Array  # i32[M + 1], 0 = out, else 2 * last request that used it + was in
    own: jax.Array  # f32[M, W], the policy's notes
    # For a closed cache only; entry M stands for the parent that a root has not.
    held: jax.Array  # i32[M + 1, 2], pairs of the resident blocks
    kids: jax.Array  # i32[M + 1], their resident children
    size: jax.Array  # i32[], resident blocks
    clock: jax.Array  # f32[]
    bad: jax.Array  # i32[], scores that were not a number


@jax.jit
def replay_scored(
    policy: OnlinePolicy, traffic: Traffic, capacity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R], evictions, NaN scores."""
    rule = policy.rule
    assert isinstance(rule, Scored)

    def serve(r, carry):
        cache, hits, evictions = carry
        first, last, now = traffic.start[r], traffic.stop[r], r + 1
        cache, found, hit = _look_up(cache, traffic, first, last, now)
        before, clock = cache.size, cache.clock
        put = functools.partial(_put, policy, traffic, first, last, before, capacity)
        if policy.bypass:
            cache = put(last, clock, cache)
            cache = cache._replace(size=before + last - first - found)
            cache = _evict(rule, traffic, cache, 0, capacity)
        else:
            kept = jnp.minimum(last - first, capacity)
            cache = cache._replace(size=before - found)
            cache = _evict(rule, traffic, cache, now, capacity - kept)
            clock = cache.clock if rule.evict_first else clock
            cache = put(first + kept, clock, cache)
            cache = cache._replace(size=cache.size + kept)
        gone = before + last - first - found - cache.size
        return cache, hits.at[r].set(hit), evictions + gone

    n_requests = traffic.start.shape[0]
    carry = (
        _empty(rule, traffic.parent.shape[0]),
        jnp.zeros(n_requests, jnp.int32),
        jnp.int32(0),
    )
    cache, hits, evictions = lax.fori_loop(0, n_requests, serve, carry)
    return hits, evictions, cache.bad


def _empty(rule: Scored, n_blocks: int) -> _Cache:
    closed = n_blocks + 1 if rule.closed else 0
    return _Cache(
        tree=jnp.full((n_blocks, 4), EMPTY, jnp.int32),
        stamp=jnp.zeros(n_blocks + 1, jnp.int32),
        own=jnp.zeros((n_blocks, rule.width), jnp.float32),
        held=jnp.zeros((closed, 2), jnp.int32),
        kids=jnp.zeros(closed, jnp.int32),
        size=jnp.int32(0),
        clock=jnp.float32(0),
        bad=jnp.int32(0),
    )


def _look_up(cache: _Cache, traffic: Traffic, first, last, now):
    """Stamps the request's blocks. Returns how many were in, and how many lead."""

    def look(i, carry):
        stamp, found, hit = carry
        block = traffic.block[i]
        resident = peek(stamp, block) > 0
        stamp = stamp.at[block].set(2 * now + resident)
        hit = jnp.where(resident & (hit == i - first), hit + 1, hit)
        return stamp, found + resident, hit

    stamp, found, hit = lax.fori_loop(
        first, last, look, (cache.stamp, jnp.int32(0), jnp.int32(0))
    )
    return cache._replace(stamp=stamp), found, hit


def _evict(rule: Scored, traffic: Traffic, cache: _Cache, now, most) -> _Cache:
    """Drops the lowest keys until at most `most` blocks are left.

    A block of request `now` that comes up leaves the tree only: `_put` brings it back.
    """
    nobody = traffic.parent.shape[0]

    def turn(carry):
        cache, parent = carry
        _, _, key, position = peek(cache.tree, jnp.where(cache.size >= 0, 0, -1))
        joins = parent < nobody
        block = jnp.where(joins, parent, traffic.leaving[position])
        stamp = peek(cache.stamp, block)
        free = stamp >> 1 != now
        if rule.closed:
            cache, parent, gone, leaf = _lose(traffic, cache, block, stamp, free, joins)
        else:
            gone, leaf = free, (EMPTY, EMPTY)
        cache = cache._replace(
            tree=_climb(rule, cache.tree, nobody + block, *leaf),
            stamp=cache.stamp.at[block].set(jnp.where(gone, 0, stamp)),
            size=cache.size - gone,
            clock=jnp.where(gone, jnp.maximum(cache.clock, _float(key)), cache.clock),
        )
        return cache, parent

    return lax.while_loop(
        lambda carry: (carry[0].size > most) | (carry[1] < nobody),
        turn,
        (cache, jnp.int32(nobody)),
    )[0]


def _lose(traffic: Traffic, cache: _Cache, block, stamp, free, joins):
    """In a closed cache: may the block leave, who joins next, what enters the tree.

    A block that got a child stays in the tree until it comes up. A victim may leave its
    parent without children: that joins in the next turn, since one climb a turn keeps
    the loop small.
    """
    kids, held = peek(cache.kids, block), peek(cache.held, block)
    gone = free & ~joins & (stamp > 0) & (kids == 0)
    parent = jnp.where(gone, traffic.parent[block], traffic.parent.shape[0])
    counts = cache.kids.at[block].set(kids)
    left = peek(counts, parent) - 1
    cache = cache._replace(
        held=cache.held.at[block].set(held), kids=counts.at[parent].set(left)
    )
    leaf = jnp.where(joins & free, held, EMPTY)
    parent = jnp.where(left == 0, parent, traffic.parent.shape[0])
    return cache, parent, gone, (leaf[0], leaf[1])


def _put(
    policy: OnlinePolicy,
    traffic: Traffic,
    first: jax.Array,
    last: jax.Array,
    size: jax.Array,
    capacity: jax.Array,
    end: jax.Array,
    clock: jax.Array,
    cache: _Cache,
) -> _Cache:
    """Scores the request; its blocks before access `end` stay, the tail does not."""
    rule, n_blocks = policy.rule, traffic.parent.shape[0]
    assert isinstance(rule, Scored)

    def put(position, cache: _Cache) -> _Cache:
        i = first + last - 1 - position  # deepest first: few changes climb far
        block, stays = traffic.block[i], i < end
        stamp = peek(cache.stamp, block)
        resident = stamp & 1 == 1
        features = jax.tree.map(lambda column: column[i], traffic.features)
        old = peek(cache.own, block)
        notes = jnp.where(resident, old, 0) if rule.forget else old
        memory = Memory(notes, clock, resident, size, capacity)
        key, own = rule.score(policy.params, features, memory)
        key = jnp.asarray(key, jnp.float32)
        own = jnp.where(stamp > 0, own, old)  # always; the write waits for the read
        cache = cache._replace(
            stamp=cache.stamp.at[block].set(jnp.where(stays, stamp, 0)),
            own=cache.own.at[block].set(own),
            bad=cache.bad + jnp.isnan(key),
        )
        pair = _ordered(key), position
        if rule.closed:
            change = jnp.where(stays, ~resident, -1 * resident)
            return _hold(cache, block, traffic.parent[block], pair, change)
        leaf = (jnp.where(stays, value, EMPTY) for value in pair)
        return cache._replace(tree=_climb(rule, cache.tree, n_blocks + block, *leaf))

    cache = lax.fori_loop(first, last, put, cache)
    if rule.closed:  # of the request, the last block alone may have no child
        tail = traffic.block[end - 1]
        key, position = peek(cache.held, tail)
        kids = peek(cache.kids, tail)
        leaf = jnp.where((end > first) & (kids == 0), n_blocks + tail, 0)
        cache = cache._replace(
            tree=_climb(rule, cache.tree, leaf, key, position),
            held=cache.held.at[tail].set(jnp.stack([key, position])),
            kids=cache.kids.at[tail].set(kids),
        )
    return cache


def _hold(cache: _Cache, block, parent, pair, change) -> _Cache:
    """Remembers a block's pair, and tells its parent of a child more or less."""
    return cache._replace(
        held=cache.held.at[block].set(jnp.stack(pair)),
        kids=cache.kids.at[parent].set(peek(cache.kids, parent) + change),
    )


def _climb(rule: Scored, tree: jax.Array, node, key, position) -> jax.Array:
    """Writes a pair to a node, and to those above what follows; nothing to node 0.

    Takes several nodes a turn: their places do not depend on what is found there.
    Beyond the root it writes to node 0, which nobody reads.
    """
    levels = LEVELS_CLOSED if rule.closed else LEVELS

    def climb(carry):
        tree, node, key, position = carry
        rows = lax.cond(
            node >= 0,
            lambda: tuple(tree[jnp.maximum(node, 0) >> up + 1] for up in range(levels)),
            lambda: (jnp.zeros(4, jnp.int32),) * levels,
        )
        changed = jnp.bool_(False)
        for up, row in enumerate(rows):
            right = (node >> up) & 1 == 1
            was, was_at = _choose(right, row[2:], row[:2])
            beside, beside_at = _choose(right, row[:2], row[2:])
            changed = (key != was) | (position != was_at)
            # The choice is void; it makes the write wait for the read.
            pair = jnp.where(changed, key, was), jnp.where(changed, position, was_at)
            place = node >> up + 1, 2 * (node >> up & 1)
            tree = lax.dynamic_update_slice(tree, jnp.stack(pair)[None], place)
            wins = (key < beside) | ((key == beside) & (position < beside_at))
            key = jnp.where(wins, key, beside)
            position = jnp.where(wins, position, beside_at)
        return tree, jnp.where(changed, node >> levels, 0), key, position

    carry = (tree, node, jnp.int32(key), jnp.int32(position))
    return lax.while_loop(lambda carry: carry[1] > 0, climb, carry)[0]


def _choose(first: jax.Array, one: jax.Array, other: jax.Array):
    return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])


def _ordered(score: jax.Array) -> jax.Array:
    """i32 that compare as the floats do; the two zeros become one."""
    score = jnp.where(score == 0, jnp.float32(0), score)
    bits = lax.bitcast_convert_type(score, jnp.int32)
    return bits ^ ((bits >> 31) & EMPTY)


def _float(ordered: jax.Array) -> jax.Array:
    """Inverse of `_ordered`."""
    bits = ordered ^ ((ordered >> 31) & EMPTY)
    return lax.bitcast_convert_type(bits, jnp.float32)
