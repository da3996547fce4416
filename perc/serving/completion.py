"""After a step: tokens, finished prompts, ends."""

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek
from perc.serving import slots as slots_of
from perc.serving.moves import shrink, write_through
from perc.serving.pool import computed, hold_computed, let_go
from perc.serving.queueing import follow
from perc.serving.retained import turn_ended
from perc.serving.scheduling import Plan
from perc.serving.settings import Rules
from perc.serving.slots import Slots, more_private
from perc.serving.state import (
    COMPLETED,
    ENDED,
    FIRST,
    LAST,
    MADE,
    Columns,
    State,
    note_counts,
    note_gap,
    note_time,
    request_of,
)
from perc.serving.timing import Line, grown_block_s


def decode(state: State, line: Line, steps: jax.Array, block_tokens: int) -> State:
    """Gives every decoding request `steps` tokens, and their blocks.

    Blocks in use are counted at the start of each step, so each new one counts from
    the step after the one that took it.
    """
    slots = state.slots
    more = more_private(slots, steps, block_tokens)
    got = jnp.where(slots.decoding, steps, 0)
    grown = slots._replace(
        private=slots.private + more, done=slots.done + got, made=slots.made + got
    )
    many = jnp.sum(more, dtype=jnp.int32)
    pool = state.pool._replace(private=state.pool.private + many)
    grown_s = lax.cond(
        many > 0,
        lambda: grown_block_s(line, steps, slots, block_tokens),
        lambda: jnp.float64(0.0),
    )
    tokens = state.sums.tokens + jnp.sum(got, dtype=jnp.int32)
    sums = state.sums._replace(tokens=tokens, block_s=state.sums.block_s + grown_s)
    return state._replace(slots=grown, pool=pool, sums=sums)


def finish_chunks(
    state: State, plan: Plan, c: Columns, rules: Rules, block_tokens: int
) -> State:
    """Computed blocks become readable; a prompt that is done has made a token."""

    def finish_one(j, state):
        at = slots_of.get_one(plan.fresh, j)
        slot = slots_of.get(state.slots, at)
        request = request_of(c, slot.request)
        done = slot.done + slot.chunk
        whole = done == slot.target
        begin = request.start + _readable(slot.done, slot, request, block_tokens)
        end = request.start + _readable(done, slot, request, block_tokens)
        pool = computed(state.pool, c.accesses, begin, end)
        new = slot._replace(
            done=done,
            chunk=jnp.int32(0),
            made=slot.made + whole.astype(jnp.int32),
            decoding=whole,
        )
        sums = state.sums._replace(
            prompt_tokens=state.sums.prompt_tokens + slot.chunk,
            tokens=state.sums.tokens + whole.astype(jnp.int64),
        )
        state = state._replace(
            pool=pool, slots=slots_of.put(state.slots, at, new), sums=sums
        )
        state = write_through(state, c, rules, begin, end, block_tokens)
        state = note_time(
            state, slot.request, FIRST, state.now, whole & (slot.made == 0)
        )
        return _note_resumption(state, slot, whole)

    return lax.fori_loop(jnp.int32(0), plan.n_fresh, finish_one, state)


def _note_resumption(state: State, slot: Slots, whole) -> State:
    """A preempted answer goes on: its users waited since its last token."""
    waited_s = state.now - peek(state.times, slot.request)[LAST]
    resumed = whole & (slot.made > 0)
    return note_gap(state, jnp.where(resumed, waited_s, 1.0), resumed.astype(jnp.int64))


def _readable(done, slot: Slots, request, block_tokens: int) -> jax.Array:
    """Leading blocks of the prompt whose tokens are all there."""
    full = jnp.minimum(done // block_tokens, slot.blocks)
    return jnp.where(done >= request.input, slot.blocks, full)


def finish_requests(state: State, c: Columns, rules: Rules, block_tokens: int) -> State:
    """Requests that have all their tokens leave."""

    def over(slots):
        return (slots.request >= 0) & (slots.made >= slots.goal)

    def finish_one(state):
        at = slots_of.position(over(state.slots))
        slot = slots_of.get(state.slots, at)
        request = request_of(c, slot.request)
        pool = hold_computed(state.pool, c.accesses, request.stop, request.named)
        pool = let_go(pool, c.accesses, request.start, request.named)
        pool = pool._replace(private=pool.private - slot.private)
        state = state._replace(pool=pool)
        state = write_through(
            state, c, rules, request.stop, request.named, block_tokens
        )
        state = turn_ended(state, c, rules, slot.request, request)
        state = note_time(state, slot.request, ENDED, state.now)
        state = note_counts(state, slot.request, status=COMPLETED)
        state = shrink(state, c, rules, block_tokens)
        state = state._replace(
            slots=slots_of.put(state.slots, at, slots_of.nobody()),
            running=state.running - 1,
            left=state.left - 1,
        )
        state = _note_made(state, slot)
        return follow(state, c, slot.request, request.next, state.now, True)

    return lax.while_loop(lambda state: over(state.slots).any(), finish_one, state)


def _note_made(state: State, slot: Slots) -> State:
    before = peek(state.counts, slot.request)[MADE]
    return note_counts(state, slot.request, made=slot.made - before)
