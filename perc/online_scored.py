"""The cache of a `Scored` rule: keys by position, the lowest leaves first.

Positions number the accesses in the order in which equal keys leave: least recent
first, deepest first. A block has the key of its last access, at that access's position,
for as long as it is resident; where that was is a column of the trace. So there is
nothing to keep up for a block that idles, and nothing to write down for a victim but
that its key is gone. `perc/minima.py` finds the lowest key.

In a closed cache only the keys of blocks without a resident child stand there. The
others are held back, and joined by that of a parent which loses its last child.

The loops keep the in-place contract of `perc/replay.py`: XLA must not copy the state.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.minima import (
    EMPTY,
    Minima,
    announce,
    empty_minima,
    insert,
    pop_lowest,
    ready,
    settle,
    unsigned,
)
from perc.types import Features, Memory, OnlinePolicy, Scored

TAKEN = EMPTY - 1  # mark at a position: its block was resident, its key comes later
HIGHEST = EMPTY - 2  # of a key


class Traffic(NamedTuple):
    """What the engines read of a trace; padded, and never written."""

    block: jax.Array  # i32[N]
    leaving: jax.Array  # i32[N], the block whose access has this position
    parent: jax.Array  # i32[M], the block before it in every prompt, M = none
    start: jax.Array  # i32[R]
    stop: jax.Array  # i32[R]
    features: Features  # [N] each
    # For a `Scored` rule only.
    before: jax.Array | None = None  # i32[N], by position: that of the block's last
    # access, N = none
    # For a `Rescored` rule only.
    time_s: jax.Array | None = None  # f32[R]
    learned: Any = ()  # what the rule learned of the trace


class _Cache(NamedTuple):
    minima: Minima  # positions of blocks that may be victims
    own: jax.Array  # f32[N + 1, W], by position: the policy's notes; entry N are none
    # For a closed cache only; entry M stands for the parent that a root has not.
    held: jax.Array  # i32[N + 1], by position: keys of all resident blocks
    where: jax.Array  # i32[M + 1], position of a resident block's last access
    kids: jax.Array  # i32[M + 1], resident children
    size: jax.Array  # i32[], resident blocks
    clock: jax.Array  # f32[]
    bad: jax.Array  # i32[], scores that were not a number


class _Request(NamedTuple):
    first: jax.Array  # i32[], its positions, and its accesses, are first..last-1
    last: jax.Array  # i32[]
    mirror: jax.Array  # i32[], the access at position p is mirror - p
    stays: jax.Array  # i32[], its blocks from this position on stay
    memory: Memory  # what its scores see, but for `own` and `resident`


@jax.jit
def replay_scored(
    policy: OnlinePolicy, traffic: Traffic, capacity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One configuration: leading resident blocks i32[R], evictions, NaN scores."""
    rule, bypass = policy.rule, policy.bypass
    assert isinstance(rule, Scored)
    late = rule.evict_first and not bypass  # scores wait for the clock

    def serve(r, carry):
        cache, hits, evictions = carry
        first, last = _column(traffic.start, r), _column(traffic.stop, r)
        before = cache.size
        kept = last - first if bypass else jnp.minimum(last - first, capacity)
        memory = Memory(jnp.zeros(0), cache.clock, jnp.bool_(False), before, capacity)
        request = _Request(first, last, first + last - 1, last - kept, memory)
        cache, found, hit, low = _access(
            policy, traffic, request, cache, True, not late
        )
        cache = cache._replace(size=before - found + kept)
        if bypass:
            cache = _join(rule, traffic, request, cache, low)
            cache = _evict(rule, traffic, cache, capacity, last)
        else:
            cache = _evict(rule, traffic, cache, capacity, first)
            if late:
                memory = memory._replace(clock=cache.clock)
                request = request._replace(memory=memory)
                cache, *_, low = _access(policy, traffic, request, cache, False, True)
            cache = _join(rule, traffic, request, cache, low)
        gone = before + last - first - found - cache.size
        return cache, write(hits, unsigned(r), hit), evictions + gone

    n_requests = traffic.start.shape[0]
    used = traffic.stop > traffic.start  # the rest is padding
    n = jnp.max(jnp.where(used, jnp.arange(1, n_requests + 1), 0))
    hits = jnp.zeros(n_requests, jnp.int32)
    carry = (_empty(rule, traffic), hits, jnp.int32(0))
    cache, hits, evictions = lax.fori_loop(0, n, serve, carry)
    return hits, evictions, cache.bad


def _empty(rule: Scored, traffic: Traffic) -> _Cache:
    n, n_blocks = traffic.block.shape[0], traffic.parent.shape[0]
    closed = 1 if rule.closed else 0
    return _Cache(
        minima=empty_minima(n),
        own=jnp.zeros((n + 1, rule.width), jnp.float32),
        held=jnp.full(closed * (n + 1), EMPTY, jnp.int32),
        where=jnp.full(closed * (n_blocks + 1), n, jnp.int32),
        kids=jnp.zeros(closed * (n_blocks + 1), jnp.int32),
        size=jnp.int32(0),
        clock=jnp.float32(0),
        bad=jnp.int32(0),
    )


def _access(
    policy: OnlinePolicy,
    traffic: Traffic,
    request: _Request,
    cache: _Cache,
    look: bool,
    score: bool,
):
    """Looks the request up and takes it out of the way, and gives it keys, or both.

    Returns the cache, how many blocks were in, how many of them lead, and the lowest
    key. The blocks that stay are to `_join`.
    """
    rule = policy.rule
    assert isinstance(rule, Scored)

    def access(position, carry):
        cache, found, hit, low = carry
        step = _take_out if look else _recall
        cache, resident = step(rule, traffic, cache, position)
        if score:
            cache, key = _put_in(policy, traffic, request, cache, position, resident)
            low = jnp.minimum(low, key)
        else:
            mark = jnp.where(resident, TAKEN, EMPTY)
            cache = _set_key(cache, position, mark)
        return cache, found + resident, jnp.where(resident, hit + 1, 0), low

    zero = jnp.int32(0)
    carry = (cache, zero, zero, jnp.int32(EMPTY))
    return lax.fori_loop(request.first, request.last, access, carry)


def _take_out(rule: Scored, traffic: Traffic, cache: _Cache, position):
    """Was the block resident? Its key is gone now."""
    assert traffic.before is not None
    before = _column(traffic.before, position)
    held = cache.held if rule.closed else cache.minima.keys
    key = peek(held, before)
    resident = key != EMPTY
    held = write(held, unsigned(before), jnp.where(resident, EMPTY, key))
    if rule.closed:
        cache = cache._replace(held=held)
        return _set_key(cache, before, jnp.int32(EMPTY)), resident
    return cache._replace(minima=cache.minima._replace(keys=held)), resident


def _recall(rule: Scored, traffic: Traffic, cache: _Cache, position):
    """What `_take_out` found there; the mark is gone now."""
    mark = peek(cache.minima.keys, position)
    resident = mark == TAKEN
    return _set_key(cache, position, jnp.where(resident, EMPTY, mark)), resident


def _put_in(
    policy: OnlinePolicy,
    traffic: Traffic,
    request: _Request,
    cache: _Cache,
    position: jax.Array,
    resident: jax.Array,
) -> tuple[_Cache, jax.Array]:
    """Scores the block. Returns its key, if it stays and may be a victim."""
    rule = policy.rule
    assert isinstance(rule, Scored) and traffic.before is not None
    i = request.mirror - position
    features = jax.tree.map(lambda column: _column(column, i), traffic.features)
    old = peek(cache.own, _column(traffic.before, position))
    notes = jnp.where(resident, old, 0) if rule.forget else old
    memory = request.memory._replace(own=notes, resident=resident)
    score, own = rule.score(policy.params, features, memory)
    score = jnp.asarray(score, jnp.float32)
    stays = position >= request.stays
    key = jnp.where(stays, jnp.minimum(ordered(score), HIGHEST), EMPTY)
    cache = cache._replace(
        own=write(cache.own, unsigned(position), own), bad=cache.bad + jnp.isnan(score)
    )
    if not rule.closed:
        return _set_key(cache, position, key), key
    block = _column(traffic.block, i)
    parent = _column(traffic.parent, block)
    kids = peek(cache.kids, parent) + stays - resident
    cache = cache._replace(
        held=write(cache.held, unsigned(position), key),
        where=write(cache.where, unsigned(block), position),
        kids=write(cache.kids, unsigned(parent), kids),
    )
    return cache, jnp.int32(EMPTY)


def _join(rule: Scored, traffic: Traffic, request: _Request, cache: _Cache, low):
    """The blocks that stay may be victims from now on."""
    if rule.closed:  # of them only the last one may have no child
        n = traffic.block.shape[0]
        position = jnp.where(request.stays < request.last, request.stays, n)
        tail = traffic.leaving[position]
        kids, low = peek(cache.kids, tail), peek(cache.held, position)
        cache = cache._replace(
            kids=write(cache.kids, tail, kids), held=write(cache.held, position, low)
        )
        low = jnp.where(kids == 0, low, EMPTY)
        cache = _set_key(cache, position, low)
    return cache._replace(minima=announce(cache.minima, low))


def _evict(rule: Scored, traffic: Traffic, cache: _Cache, most, stop) -> _Cache:
    """Drops the lowest keys before position `stop`, until `most` blocks are left."""

    def full(cache: _Cache):
        return cache.size > most

    def drop(cache: _Cache) -> _Cache:
        key, many = cache.minima.low, 1 if rule.closed else cache.size - most
        minima, gone, first = pop_lowest(cache.minima, stop, many)
        clock = jnp.where(gone > 0, jnp.maximum(cache.clock, _float(key)), cache.clock)
        cache = cache._replace(minima=minima, size=cache.size - gone, clock=clock)
        if rule.closed:
            cache = _lose_child(traffic, cache, first, stop)
        return cache

    def run(cache: _Cache) -> _Cache:
        # Two small loops in turn, which JAX 0.10 still compiles as one piece each.
        cache = cache._replace(minima=settle(cache.minima, stop))
        return lax.while_loop(
            lambda cache: full(cache) & ready(cache.minima), drop, cache
        )

    return lax.while_loop(full, run, cache)


def _lose_child(traffic: Traffic, cache: _Cache, position, stop) -> _Cache:
    """The victim's parent, if that was its last child, may be a victim as well."""
    n, nobody = traffic.block.shape[0], traffic.parent.shape[0]
    gone = position >= 0
    victim = traffic.leaving[jnp.maximum(position, 0)]
    held = write(cache.held, jnp.where(gone, position, n), jnp.int32(EMPTY))
    parent = jnp.where(gone, traffic.parent[victim], nobody)
    left, at = peek(cache.kids, parent) - 1, peek(cache.where, parent)
    key = peek(held, at)
    joins = gone & (left == 0) & (at < stop)  # no earlier than the running request's
    return cache._replace(
        minima=insert(
            cache.minima, jnp.where(joins, at, n), jnp.where(joins, key, EMPTY)
        ),
        held=write(held, at, key),
        where=write(cache.where, parent, at),
        kids=write(cache.kids, parent, left),
    )


def _set_key(cache: _Cache, position, key) -> _Cache:
    keys = write(cache.minima.keys, unsigned(position), key)
    return cache._replace(minima=cache.minima._replace(keys=keys))


def _column(column: jax.Array, i: jax.Array) -> jax.Array:
    """`column[i]` for an index in range, in fewer instructions."""
    return lax.dynamic_index_in_dim(column, unsigned(i), keepdims=False)


def ordered(score: jax.Array) -> jax.Array:
    """i32 that compare as the floats do; the two zeros become one."""
    score = jnp.where(score == 0, jnp.float32(0), score)
    bits = lax.bitcast_convert_type(score, jnp.int32)
    return bits ^ ((bits >> 31) & EMPTY)


def _float(ordered: jax.Array) -> jax.Array:
    """Inverse of `ordered`."""
    bits = ordered ^ ((ordered >> 31) & EMPTY)
    return lax.bitcast_convert_type(bits, jnp.float32)
