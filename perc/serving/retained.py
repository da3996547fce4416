"""Retention in the loop: prefixes between the turns of a program, shielded for a while.

    a turn ends     its blocks are shielded for `lifecycle`'s time to live
    the next comes  the shield cannot expire while that waits
    is admitted     it ends: the request pins what it needs
    the time is up  it ends
    no victim left  the earliest deadline is broken, and counted

Shields pass over victims and hold no room: whatever is admitted gets its blocks, so
nothing deadlocks. Without retention none of this is compiled.

References:
    Li et al. 2025, "Continuum" (arXiv 2511.02230), sections on TTL and on deadlocks.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.floats import Array
from perc.serving.heap import Heap, first, put
from perc.serving.lifecycle import WAITS
from perc.serving.offload import RECOMPUTE, RELOAD
from perc.serving.pool import room, shield, unshield
from perc.serving.programs import (
    EXPIRED,
    IN_TIME,
    LATE,
    PAIRS,
    REFUSED,
    RELEASED,
    SHIELDS,
    XX,
    XY,
    Programs,
    Retained,
    X,
)
from perc.serving.settings import RetentionRules, Rules

if TYPE_CHECKING:
    from perc.serving.state import Columns, Request, State


def turn_ended(
    state: "State", c: "Columns", rules: Rules, r: jax.Array, request: "Request"
) -> "State":
    """A request has ended: its prefix is shielded, or its program is complete."""
    if state.retained is None:
        return state
    retained, programs, how = _of(state, c, rules)
    more = request.next >= 0
    back_s = _back_s(programs, rules, r, request.named - request.start)
    ttl_s = jnp.where(more, _time_to_live(retained, programs, how, r, back_s), 0.0)
    wanted = ttl_s > 0
    due_s = state.now + ttl_s
    pool = shield(state.pool, c.accesses, request.start, request.named, wanted)
    turns = jnp.where(more, 0, peek(programs.turns, r))
    retained = retained._replace(
        deadline=put(retained.deadline, r, due_s, wanted),
        expiring=put(retained.expiring, r, due_s, wanted),
        pairs=retained.pairs + _pairs(turns.astype(jnp.int64)),
        counts=_count(retained, SHIELDS, wanted),
        ttl_s=write(retained.ttl_s, r, ttl_s),
    )
    return state._replace(pool=pool, retained=retained)


def came_back(state: "State", c: "Columns", request: "Request", welcome) -> "State":
    """A next turn arrived: its gap is known, and its shield waits for it or ends."""
    if state.retained is None or c.programs is None:
        return state
    before = request.before
    there = before >= 0
    place = peek(c.programs.place, jnp.maximum(before, 0))
    known = write(
        state.retained.known, place, peek(state.retained.known, place) | there
    )
    expiring = put(
        state.retained.expiring, jnp.maximum(before, 0), jnp.inf, there & welcome
    )
    retained = state.retained._replace(known=known, expiring=expiring)
    state = state._replace(retained=retained)
    return _end(state, c, before, there & ~welcome, REFUSED)


def admitted(
    state: "State", c: "Columns", r: jax.Array, request: "Request", wanted: Array
) -> "State":
    """A request was admitted for the first time: what it needs is pinned now."""
    if state.retained is None:
        return state
    retained, before = state.retained, request.before
    follows = (before >= 0) & wanted
    shielded = is_shielded(retained.deadline, before)
    late = follows & ~shielded
    # Written back, or XLA would copy the column at every pass.
    row = peek(state.times, r)
    state = state._replace(times=write(state.times, r, row))
    waited_s = state.now - row[0]
    at = (retained.waits % WAITS).astype(jnp.int32)
    old = peek(retained.waits_s, at)
    retained = retained._replace(
        waits_s=write(retained.waits_s, at, jnp.where(late, waited_s, old)),
        waits=retained.waits + late.astype(jnp.int64),
        counts=_count(retained, LATE, late),
    )
    state = state._replace(retained=retained)
    return _end(state, c, before, follows & shielded, IN_TIME)


def expire(state: "State", c: "Columns") -> "State":
    """Ends the shields whose deadline has come, unless a next turn waits."""
    if state.retained is None:
        return state

    def due(state):
        return state.retained.expiring.least <= state.now

    def end(state):
        at = first(state.retained.expiring)
        return _end(state, c, at, jnp.bool_(True), EXPIRED)

    return lax.while_loop(due, end, state)


def shrink_shielded(
    state: "State", c: "Columns", rules: Rules, drop: Callable[["State"], "State"]
) -> "State":
    """Drops victims by `drop`; then breaks shields, the earliest deadline first."""

    def lacking(state):
        return state.pool.size > room(state.pool, rules.capacity)

    def break_one(state):
        at = first(state.retained.deadline)
        state = _end(state, c, at, jnp.bool_(True), RELEASED)
        return drop(state)

    return lax.while_loop(lacking, break_one, drop(state))


def band_now(state: "State", rules: Rules, request: "Request", band):
    """The band of an arrival: a next turn goes first only if it finds its shield.

    Returns:
        State, whose heap is written back lest it be copied, and the band f64[].
    """
    if state.retained is None or rules.retention is None:
        return state, band
    deadline = state.retained.deadline
    leaf = deadline.nodes.shape[0] // 2 + jnp.maximum(request.before, 0)
    key = peek(deadline.nodes, leaf)
    deadline = deadline._replace(nodes=write(deadline.nodes, leaf, key))
    follows = (request.before >= 0) & rules.retention.protected_first
    band = jnp.where(follows & (key == jnp.inf), jnp.maximum(band, 1.0), band)
    retained = state.retained._replace(deadline=deadline)
    return state._replace(retained=retained), band


def is_shielded(deadline: Heap, r: jax.Array) -> jax.Array:
    """Whether a turn's prefix is, bool[]; -1 never is."""
    leaf = deadline.nodes.shape[0] // 2 + jnp.maximum(r, 0)
    return (r >= 0) & (peek(deadline.nodes, leaf) < jnp.inf)


def _end(state: "State", c: "Columns", r, wanted, why: int) -> "State":
    """Ends the shield of a turn, if it has one and that is wanted."""
    at = jnp.maximum(r, 0)
    retained = state.retained
    assert retained is not None
    wanted = wanted & is_shielded(retained.deadline, r)
    row = peek(c.requests, at)
    pool = unshield(state.pool, c.accesses, row[0], row[2], wanted)
    retained = retained._replace(
        deadline=put(retained.deadline, at, jnp.inf, wanted),
        expiring=put(retained.expiring, at, jnp.inf, wanted),
        counts=_count(retained, why, wanted),
    )
    return state._replace(pool=pool, retained=retained)


def _back_s(programs: Programs, rules: Rules, r: jax.Array, blocks) -> jax.Array:
    """Seconds f64[] to have a prefix of so many blocks back once it has left.

    With tiers below, what is written there is loaded, if that is the rule.
    """
    compute_s, tiers = peek(programs.reload_s, r), rules.tiers
    if tiers is None:
        return compute_s
    move_s = blocks * tiers.block_s[0] + tiers.latency_s[0]
    quicker_s = jnp.minimum(move_s, compute_s)
    loaded_s = jnp.where(tiers.load == RELOAD, move_s, quicker_s)
    return jnp.where(tiers.load == RECOMPUTE, compute_s, loaded_s)


def _time_to_live(
    retained: Retained,
    programs: Programs,
    how: RetentionRules,
    r: jax.Array,
    back_s: jax.Array,
) -> jax.Array:
    """Seconds f64[] that the prefix of a request is worth; `lifecycle.time_to_live`."""
    known = retained.known
    own = known & (programs.tools == peek(programs.tool, r))
    many_own = jnp.sum(own, dtype=jnp.int32)
    enough_own = many_own > how.threshold
    many = jnp.where(enough_own, many_own, jnp.sum(known, dtype=jnp.int32))
    seen = jnp.where(enough_own, own, known)
    whole = jnp.maximum(many, 1).astype(jnp.float64)
    share = jnp.cumsum(seen, dtype=jnp.int32).astype(jnp.float64) / whole
    benefit_s = _wait_s(retained) * _eta(retained.pairs) + back_s
    value = jnp.where(seen, share * benefit_s - programs.gaps_s, -jnp.inf)
    best = lax.argmax(value, 0, jnp.int32)
    at_once = jnp.sum(seen & (programs.gaps_s <= 0), dtype=jnp.int32)
    at_0 = at_once.astype(jnp.float64) / whole * benefit_s
    ttl_s = jnp.where(value[best] > at_0, programs.gaps_s[best], 0.0)
    ttl_s = jnp.where(many > how.threshold, ttl_s, how.default_ttl_s)
    return jnp.minimum(ttl_s, how.most_s)


def _wait_s(retained: Retained) -> jax.Array:
    held = jnp.minimum(retained.waits, WAITS)
    return jnp.sum(retained.waits_s) / jnp.maximum(held, 1).astype(jnp.float64)


def _eta(pairs: jax.Array) -> jax.Array:
    """-Pearson from whole sums; both of a pair vary alike within a program."""
    n, x, xy, xx = (pairs[i].astype(jnp.float64) for i in (PAIRS, X, XY, XX))
    spread = n * xx - x * x
    defined = (n >= 2) & (spread > 0)
    return jnp.where(defined, -(n * xy - x * x) / jnp.where(defined, spread, 1.0), 1.0)


def _pairs(n: jax.Array) -> jax.Array:
    """Sums i64[4] over the pairs (i, n - i), i = 1..n-1."""
    many = jnp.maximum(n - 1, 0)
    x = many * n // 2
    xy = many * n * (n + 1) // 6
    return jnp.stack([many, x, xy, many * n * (2 * n - 1) // 6])


def _count(retained: Retained, which: int, wanted: Array) -> jax.Array:
    return retained.counts.at[which].add(jnp.asarray(wanted).astype(jnp.int64))


def _of(state: "State", c: "Columns", rules: Rules):
    retained, programs, how = state.retained, c.programs, rules.retention
    assert retained is not None and programs is not None and how is not None
    return retained, programs, how
