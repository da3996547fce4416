"""The queue: who arrives, who is refused, who moves up, who goes back."""

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.serving import slots as slots_of
from perc.serving.heap import first, put
from perc.serving.moves import fetch_ahead
from perc.serving.orders import BAND
from perc.serving.pool import let_go
from perc.serving.retained import band_now, came_back, expire
from perc.serving.settings import Rules
from perc.serving.state import (
    ARRIVED,
    ENDED,
    LAST,
    MADE,
    REJECTED,
    Columns,
    State,
    note_counts,
    note_time,
    request_of,
)


def arrive(state: State, c: Columns, rules: Rules) -> State:
    """Takes up all that arrived until now, then what must be promoted."""
    state = lax.while_loop(
        lambda state: state.future.least <= state.now,
        lambda state: _arrive_one(state, c, rules),
        state,
    )
    state = lax.while_loop(
        lambda state: state.promotions.least <= state.now, _promote_one, state
    )
    return expire(state, c)


def _arrive_one(state: State, c: Columns, rules: Rules) -> State:
    """The earliest arrival joins the queue, unless that is full or it can never fit."""
    time_s, r = state.future.least, first(state.future)
    state = state._replace(future=put(state.future, r, jnp.inf))
    request = request_of(c, r)
    welcome = (state.queued < rules.max_queue) & (request.needs <= rules.capacity)
    place = peek(c.place, r)
    place = jnp.where(place >= 0, place, state.arrivals.astype(jnp.float64))
    state, band = band_now(state, rules, request, peek(c.band, r))
    key = band * BAND + place
    urgent_s = time_s + peek(c.deadline_s, r) - rules.promote_within_s
    state = note_time(state, r, ARRIVED, time_s)
    state = note_time(state, r, ENDED, time_s, ~welcome)
    state = note_counts(state, r, ~welcome, status=REJECTED)
    state = state._replace(
        waiting=put(state.waiting, r, key, welcome),
        promotions=put(state.promotions, r, urgent_s, welcome & (urgent_s < jnp.inf)),
        keys=write(state.keys, r, key),
        arrivals=state.arrivals + 1,
        queued=state.queued + welcome.astype(jnp.int32),
        left=state.left - (~welcome).astype(jnp.int32),
    )
    state = fetch_ahead(state, c, rules, request, welcome)
    state = came_back(state, c, request, welcome)
    return follow(state, c, r, request.next, time_s, ~welcome)


def follow(state: State, c: Columns, r, following, end_s, ended) -> State:
    """The end of a request sets off the next turn of its session."""
    due_s = end_s + peek(c.gap_s, r)
    future = put(state.future, following, due_s, ended & (following >= 0))
    return state._replace(future=future)


def _promote_one(state: State) -> State:
    """A request close to its deadline moves before all bands, waiting or running."""
    r = first(state.promotions)
    state = state._replace(promotions=put(state.promotions, r, jnp.inf))
    old = peek(state.keys, r)
    key = old - jnp.floor(old / BAND) * BAND - BAND
    # A leaf of the queue's tree says whether it waits.
    leaf = state.waiting.nodes.shape[0] // 2 + r
    waits = peek(state.waiting.nodes, leaf) < jnp.inf
    slots = state.slots
    return state._replace(
        waiting=put(state.waiting, r, key, waits),
        slots=slots._replace(key=jnp.where(slots.request == r, key, slots.key)),
        keys=write(state.keys, r, key),
    )


def preempt(state: State, c: Columns, at: jax.Array) -> State:
    """The request of a slot gives its blocks back and waits again, tokens kept."""
    slot = slots_of.get(state.slots, at)
    request = request_of(c, slot.request)
    pool = let_go(state.pool, c.accesses, request.start, request.stop)
    pool = pool._replace(private=pool.private - slot.private)
    more = slot.made - peek(state.counts, slot.request)[MADE]
    state = note_counts(state, slot.request, preempted=1, lost=slot.done, made=more)
    state = note_time(state, slot.request, LAST, state.now, slot.decoding)
    return state._replace(
        pool=pool,
        waiting=put(state.waiting, slot.request, slot.key),
        slots=slots_of.put(state.slots, at, slots_of.nobody()),
        partial=jnp.where(state.partial == at, -1, state.partial),
        queued=state.queued + 1,
        running=state.running - 1,
    )
