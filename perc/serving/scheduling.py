"""What the next step computes: decoders first, then chunks of prompts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek
from perc.serving import slots as slots_of
from perc.serving.heap import first, put
from perc.serving.landing import landed
from perc.serving.moves import bring_up, find_below, shrink
from perc.serving.pool import at_time, hold, look_up, room
from perc.serving.queueing import preempt
from perc.serving.retained import admitted
from perc.serving.settings import ADAPTIVE, LOW_LATENCY, STATIC, Rules
from perc.serving.slots import Slots, growth
from perc.serving.state import (
    ADMITTED,
    LOST,
    MADE,
    PREEMPTED,
    Columns,
    State,
    note_counts,
    note_time,
    request_of,
)
from perc.serving.timing import Load, decode_load, prompt_load, together
from perc.serving.victims import judged


class Plan(NamedTuple):
    """A step in the making."""

    load: Load
    budget: jax.Array  # i32[], tokens left
    fresh: jax.Array  # i32[S], slots with a chunk, the first `n_fresh` of them
    n_fresh: jax.Array  # i32[]
    admitted: jax.Array  # i32[], requests
    most: jax.Array  # i32[], requests that may be
    grown: jax.Array  # i32[], blocks that the decoders take in this step
    stuck: jax.Array  # bool[], the next in the queue does not fit
    preempted: jax.Array  # bool[], somebody was, so nobody is admitted before the next


def plan_step(state: State, c: Columns, rules: Rules, block_tokens: int):
    """Makes room for the decoders, then fills the step.

    Returns:
        State and Plan.
    """
    state, preempted = _make_room(state, c, rules, block_tokens)
    load = decode_load(state.slots, rules.cost)
    state = state._replace(batch=_batch(state, rules, preempted))
    most = jnp.where(_one_by_one(state, rules), 1, rules.max_running)
    most = jnp.where(rules.batching == STATIC, state.batch, most)
    plan = Plan(
        load=load,
        budget=rules.token_budget - load.tokens,
        fresh=jnp.zeros(state.slots.request.shape[0], jnp.int32),
        n_fresh=jnp.int32(0),
        admitted=jnp.int32(0),
        most=jnp.where(preempted, 0, most),
        grown=growth(state.slots, jnp.int32(1), block_tokens),
        stuck=jnp.bool_(False),
        preempted=preempted,
    )
    state, plan = _continue_partial(state, plan, rules)
    state, plan = _continue_landed(state, plan, rules)
    return lax.while_loop(
        lambda carry: _may_admit(*carry, rules),
        lambda carry: _admit_one(*carry, c, rules, block_tokens),
        (state, plan),
    )


def _make_room(state: State, c: Columns, rules: Rules, block_tokens: int):
    """Preempts the last in line until each decoder has room for one token."""

    def lacking(carry):
        state, _ = carry
        wanted = growth(state.slots, jnp.int32(1), block_tokens)
        return wanted > room(state.pool, rules.capacity)

    def preempt_last(carry):
        state, _ = carry
        return preempt(state, c, slots_of.last_in_line(state.slots)), jnp.bool_(True)

    return lax.while_loop(lacking, preempt_last, (state, jnp.bool_(False)))


def _batch(state: State, rules: Rules, preempted) -> jax.Array:
    """Requests i32[] that static batching still takes; none once memory was short."""
    waiting = jnp.minimum(state.queued, rules.max_running)
    ended = (state.running == 0) & (state.batch == 0)
    left = jnp.where(ended, waiting, state.batch)
    return jnp.where(preempted, 0, left)


def _one_by_one(state: State, rules: Rules) -> jax.Array:
    """Whether a step takes one request only from the queue, bool[]."""
    short = state.queued <= rules.adaptive_queue
    slow = state.last_s >= rules.adaptive_latency_s
    adaptive = (rules.batching == ADAPTIVE) & short & slow
    return (rules.batching == LOW_LATENCY) | adaptive


def _continue_partial(state: State, plan: Plan, rules: Rules):
    """The one prompt that was cut goes on."""
    at = jnp.maximum(state.partial, 0)
    there = state.partial >= 0
    slot = slots_of.get(state.slots, at)
    need = slot.target - slot.done
    chunk = jnp.minimum(need, plan.budget)
    there &= chunk > 0
    return _compute(state, plan, at, slot, chunk, need, rules, there)


def _continue_landed(state: State, plan: Plan, rules: Rules):
    """Prompts whose blocks are loaded go on, in the queue's order."""
    if state.below is None:
        return state, plan

    def may_go_on(carry):
        state, plan = carry
        free = (plan.budget > 0) & (state.partial < 0) & ~plan.stuck
        return free & landed(state).any()

    def go_on(carry):
        state, plan = carry
        key = jnp.where(landed(state), state.slots.key, jnp.inf)
        at = lax.argmin(key, 0, jnp.int32)
        slot = slots_of.get(state.slots, at)
        need = slot.target - slot.done
        chunk = jnp.where(rules.chunked, jnp.minimum(need, plan.budget), need)
        fits = rules.chunked | (need <= plan.budget) | (plan.n_fresh == 0)
        plan = plan._replace(stuck=~fits)
        return _compute(state, plan, at, slot, chunk, need, rules, fits)

    return lax.while_loop(may_go_on, go_on, (state, plan))


def _may_admit(state: State, plan: Plan, rules: Rules) -> jax.Array:
    return (
        (state.queued > 0)
        & (plan.budget > 0)
        & (state.running < rules.max_running)
        & (state.partial < 0)
        & (plan.admitted < plan.most)
        & ~plan.stuck
    )


def _admit_one(state: State, plan: Plan, c: Columns, rules: Rules, block_tokens: int):
    """The next of the queue takes all blocks of its prompt, or waits for them.

    Its hit counts the first time only; what it finds again after a preemption is
    counted apart.
    """
    r = first(state.waiting)
    request = request_of(c, r)
    counts = peek(state.counts, r)
    hit, known, unpinned = look_up(state.pool, c.accesses, request.start, request.stop)
    target = request.input + counts[MADE]
    blocks = request.stop - request.start
    private = jnp.maximum(-(-target // block_tokens) - blocks, 0)
    free = room(state.pool, rules.capacity) - plan.grown
    # One token at least must be computed: it is what predicts the next.
    most = jnp.minimum(request.input, target - 1)
    cached = jnp.minimum(hit * block_tokens, most)
    need = target - cached
    roomy = unpinned + private <= free
    loads = jnp.bool_(False)
    found = None
    if state.below is not None:
        found = find_below(state, c, rules, request, target, hit, block_tokens)
        loads = found.load
        cached = jnp.where(loads, found.cached, cached)
        need = target - cached
    fits = roomy & (loads | rules.chunked | (need <= plan.budget) | (plan.n_fresh == 0))
    chunk = jnp.where(rules.chunked, jnp.minimum(need, plan.budget), need)
    again = counts[PREEMPTED] > 0
    done_again = jnp.where(again, jnp.maximum(counts[LOST] - cached, 0), 0)
    at = slots_of.position(state.slots.request < 0)
    state = _take_blocks(state, c, r, request, private, fits)
    state = admitted(state, c, r, request, fits & ~again)
    if found is not None:
        state = bring_up(state, c, rules, r, at, request, hit, found, fits, again)
    state = shrink(state, c, rules, block_tokens)
    pool = judged(state.pool, rules.watch, r, hit, fits & ~again)
    state = state._replace(pool=pool)
    state = note_time(state, r, ADMITTED, state.now, fits & ~again)
    state = note_counts(
        state,
        r,
        fits,
        hit=jnp.where(again, 0, hit),
        cached=jnp.where(again, 0, cached),
        known=jnp.where(again, 0, jnp.minimum(known * block_tokens, most)),
        reread=jnp.where(again, hit, 0),
        again=done_again,
        lost=-counts[LOST],
    )
    twice = rules.cost.prefill_flops(cached + done_again, cached)
    sums = state.sums._replace(
        again_s=state.sums.again_s
        + jnp.where(fits, twice / rules.cost.flops_per_s, 0.0)
    )
    slot = Slots(
        request=r,
        key=peek(state.keys, r),
        blocks=blocks,
        private=private,
        target=target,
        done=cached,
        chunk=jnp.int32(0),
        made=counts[MADE],
        goal=request.output,
        decoding=jnp.bool_(False),
    )
    taken = fits.astype(jnp.int32)
    state = state._replace(
        waiting=put(state.waiting, r, jnp.inf, fits),
        slots=slots_of.put(state.slots, at, slot, fits),
        queued=state.queued - taken,
        running=state.running + taken,
        batch=jnp.where(roomy, state.batch - taken, 0),
        sums=sums,
    )
    plan = plan._replace(admitted=plan.admitted + taken, stuck=~fits)
    return _compute(state, plan, at, slot, chunk, need, rules, fits & ~loads)


def _take_blocks(state: State, c: Columns, r, request, private, wanted) -> State:
    stop = jnp.where(wanted, request.stop, request.start)
    pool = at_time(state.pool, state.now, jnp.where(wanted, r, 0))
    pool = hold(pool, c.accesses, request.start, stop)
    more = jnp.where(wanted, private, 0)
    return state._replace(pool=pool._replace(private=pool.private + more))


def _compute(state: State, plan: Plan, at, slot, chunk, need, rules, wanted):
    """Adds a chunk of a slot's prompt to the step, if wanted."""
    part = prompt_load(rules.cost, slot.done, chunk)
    grown = slots_of.put(state.slots, at, slot._replace(chunk=chunk), wanted)
    cut = jnp.where(chunk < need, at, -1)
    n_slots = plan.fresh.shape[0]
    here = (jnp.arange(n_slots, dtype=jnp.int32) == plan.n_fresh) & wanted
    plan = plan._replace(
        load=together(plan.load, part, wanted),
        budget=plan.budget - jnp.where(wanted, chunk, 0),
        fresh=jnp.where(here, at, plan.fresh),
        n_fresh=plan.n_fresh + wanted.astype(jnp.int32),
    )
    partial = jnp.where(wanted, cut, state.partial)
    return state._replace(slots=grown, partial=partial), plan
