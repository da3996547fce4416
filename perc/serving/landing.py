"""Requests that wait for their blocks, and what happens when those are there.

Such a request has a slot and its room, and takes no part in any step until then.
"""

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.serving import slots as slots_of
from perc.serving.pool import computed
from perc.serving.state import Columns, State


def idle_slots(state: State) -> jax.Array:
    """Slots bool[S] that have blocks, and no part in any step so far."""
    slots = state.slots
    here = jnp.arange(slots.request.shape[0])
    return (
        (slots.request >= 0)
        & ~slots.decoding
        & (slots.chunk == 0)
        & (here != state.partial)
    )


def next_landing_s(state: State) -> jax.Array:
    """When the next load ends, f64[]; inf = none is under way."""
    if state.below is None:
        return jnp.float64(jnp.inf)
    coming = idle_slots(state) & (state.below.ready_s > state.now)
    return jnp.where(coming, state.below.ready_s, jnp.inf).min()


def landed(state: State) -> jax.Array:
    """Slots bool[S] whose blocks are loaded, that nothing was computed for yet."""
    assert state.below is not None
    return idle_slots(state) & (state.below.ready_s <= state.now)


def land(state: State, c: Columns) -> State:
    """Loaded blocks become readable."""
    if state.below is None:
        return state

    def due(state):
        span = state.below.loading
        return landed(state) & (span[:, 1] > span[:, 0])

    def land_one(state):
        at = slots_of.position(due(state))
        span = peek(state.below.loading, at)
        pool = computed(state.pool, c.accesses, span[0], span[1])
        loading = write(state.below.loading, at, jnp.stack([span[1], span[1]]))
        return state._replace(pool=pool, below=state.below._replace(loading=loading))

    return lax.while_loop(lambda state: due(state).any(), land_one, state)
