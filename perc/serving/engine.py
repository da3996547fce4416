"""The compiled loop: a server from the first arrival until all is done.

One pass of the loop is one step of the engine, or as many equal decode steps as fit
before anything else can happen: an end, an arrival that could be admitted, a promotion,
no more room, a window that fills up. The results are those of single steps.

Clocks are float64, so everything here runs under `jax.enable_x64`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import write
from perc.serving.below import Below
from perc.serving.completion import decode, finish_chunks, finish_requests
from perc.serving.counted import Counted, counted
from perc.serving.landing import land, next_landing_s
from perc.serving.moves import shrink
from perc.serving.pool import at_time, room
from perc.serving.queueing import arrive
from perc.serving.scheduling import Plan, plan_step
from perc.serving.settings import STATIC, Rules
from perc.serving.slots import count, growth
from perc.serving.state import Columns, State, Sums, even_points, note_gap
from perc.serving.timing import Ahead, decode_ahead, span_s, step_s, steps_until


@functools.partial(jax.jit, static_argnames="block_tokens")
def serve(c: Columns, rules: Rules, state: State, block_tokens: int) -> State:
    """Runs a server until every request is completed or rejected, or `until_s`."""

    def go_on(state: State):
        idle = (state.running == 0) & (state.queued == 0)
        ahead = jnp.where(idle, state.future.least, state.now)
        return (state.left > 0) & (jnp.maximum(state.now, ahead) < rules.until_s)

    state = lax.while_loop(
        go_on, lambda state: _pass(state, c, rules, block_tokens), state
    )
    return arrive(state, c, rules)  # during the last pass, if that was cut short


class Kept(NamedTuple):
    """Of a run, what does not grow with the blocks."""

    now: jax.Array
    times: jax.Array
    counts: jax.Array
    itl_bins: jax.Array
    series: jax.Array
    running: jax.Array
    queued: jax.Array
    requests: jax.Array  # of the slots, at the end
    made: jax.Array  # by them
    pool: jax.Array  # i32[4]: cached, pinned, private, evictions
    counted: Counted
    sums: Sums
    below: "BelowKept | None"
    retained: "RetainedKept | None"
    bad: jax.Array | None  # i32[], prices that were no number; None: a fixed order


class BelowKept(NamedTuple):
    """Of the tiers, the same."""

    size: jax.Array
    busy_s: jax.Array
    stored: jax.Array
    gone: jax.Array
    taken: jax.Array
    read: jax.Array
    hits: jax.Array
    declined: jax.Array
    wait_s: jax.Array
    loaded: jax.Array
    stall_s: jax.Array


class RetainedKept(NamedTuple):
    """Of retention, the same."""

    counts: jax.Array
    ttl_s: jax.Array
    shielded: jax.Array  # blocks, at the end


@functools.partial(jax.jit, static_argnames="block_tokens")
def serve_each(c: Columns, servers: Rules, state: State, block_tokens: int) -> Kept:
    """One server after the other in one compiled call; `servers` has an axis more.

    Mapped, not vectorised: batched loops would copy the state at every step.
    """
    return lax.map(lambda rules: kept(serve(c, rules, state, block_tokens), c), servers)


def kept(state: State, c: Columns) -> Kept:
    """What is left of a run when its blocks are forgotten."""
    pool = state.pool
    return Kept(
        now=state.now,
        times=state.times,
        counts=state.counts,
        itl_bins=state.itl_bins,
        series=state.series,
        running=state.running,
        queued=state.queued,
        requests=state.slots.request,
        made=state.slots.made,
        pool=jnp.stack([pool.size, pool.pinned, pool.private, pool.evictions]),
        counted=counted(pool, c.accesses.lines, state.below),
        sums=state.sums,
        below=_kept_below(state.below),
        retained=_kept_retained(state),
        bad=None if pool.free is None else pool.free.bad,
    )


def _kept_retained(state: State) -> RetainedKept | None:
    if state.retained is None or state.pool.kept is None:
        return None
    return RetainedKept(state.retained.counts, state.retained.ttl_s, state.pool.kept)


def _kept_below(below: Below | None) -> BelowKept | None:
    if below is None:
        return None
    return BelowKept(*(getattr(below, name) for name in BelowKept._fields))


def _pass(state: State, c: Columns, rules: Rules, block_tokens: int) -> State:
    idle = (state.running == 0) & (state.queued == 0)
    begins = jnp.where(idle, state.future.least, state.now)
    state = land(state._replace(now=jnp.maximum(state.now, begins)), c)
    state = arrive(state, c, rules)
    state, plan = plan_step(state, c, rules, block_tokens)
    ahead = decode_ahead(state.slots, rules.cost, plan.load)
    steps, took_s, last_s = _duration(state, plan, ahead, rules, block_tokens)
    state = _account(state, plan, ahead, steps, took_s)
    decoders = count(state.slots.decoding)
    state = state._replace(pool=at_time(state.pool, state.now + took_s, jnp.int32(0)))
    state = note_gap(
        state._replace(now=state.now + took_s, last_s=last_s),
        took_s / steps,
        (decoders * steps).astype(jnp.int64),
    )
    state = decode(state, ahead.line, steps, block_tokens)
    state = shrink(state, c, rules, block_tokens)
    state = finish_chunks(state, plan, c, rules, block_tokens)
    state = finish_requests(state, c, rules, block_tokens)
    state = _wait_for_loads(state, plan)
    return _sample(state, rules)


def _duration(state: State, plan: Plan, ahead: Ahead, rules: Rules, block_tokens: int):
    """Steps i32[] to take at once, their seconds, and those of the last of them.

    A pass without a step, where all that arrived was rejected, takes no time.
    """
    line = ahead.line
    alone = plan.n_fresh == 0
    goal = jnp.where(state.slots.decoding, state.slots.goal - state.slots.made, 2**30)
    most = jnp.minimum(ahead.steps, goal.min())
    most = jnp.minimum(most, _until_event(state, rules, line))
    several = alone & ~plan.preempted & (plan.load.tokens > 0)
    if state.below is not None:  # who was admitted may be loading
        several &= plan.admitted == 0
    most = jnp.maximum(jnp.where(several, most, 1), 1)
    steps = _with_room(state, room(state.pool, rules.capacity), most, block_tokens)
    if state.below is not None or state.pool.free is not None:
        # The first that makes a block leave is the last.
        unused = room(state.pool, rules.capacity) - state.pool.size
        quiet = _with_room(state, unused, steps, block_tokens)
        fits = growth(state.slots, quiet, block_tokens) <= unused
        steps = jnp.minimum(steps, jnp.where(fits, quiet + 1, 1))
    span = span_s(line, steps)
    last = line.start + line.rise * (steps - 1)
    mixed = step_s(rules.cost, plan.load)
    took_s, last_s = jnp.where(alone, span, mixed), jnp.where(alone, last, mixed)
    stepped = plan.load.tokens > 0
    return (
        steps,
        jnp.where(stepped, took_s, 0.0),
        jnp.where(stepped, last_s, state.last_s),
    )


def _until_event(state: State, rules: Rules, line) -> jax.Array:
    """Steps until something arrives or is promoted that could be admitted."""
    event_s = jnp.minimum(state.future.least, state.promotions.least)
    full = (state.running >= rules.max_running) | (rules.batching == STATIC)
    wait_s = jnp.minimum(event_s, rules.until_s) - state.now
    unseen = jnp.where(full, rules.until_s - state.now, wait_s)
    if state.below is not None:
        unseen = jnp.minimum(wait_s, next_landing_s(state) - state.now)
    if state.retained is not None:  # the order of victims changes then
        expires_s = state.retained.expiring.least - state.now
        unseen = jnp.minimum(jnp.minimum(wait_s, unseen), expires_s)
    return steps_until(line, unseen)


def _with_room(state: State, free, most, block_tokens: int) -> jax.Array:
    """The most steps up to `most` whose tokens fit into `free` blocks, by bisection."""

    def fits(steps):
        return growth(state.slots, steps, block_tokens) <= free

    def halve(carry):
        low, high = carry  # low fits, high does not
        middle = low + (high - low) // 2
        good = fits(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    low = jnp.where(fits(most), most, 1)
    high = jnp.where(fits(most), most + 1, most)
    return lax.while_loop(lambda carry: carry[1] - carry[0] > 1, halve, (low, high))[0]


def _wait_for_loads(state: State, plan: Plan) -> State:
    """Where nobody could do anything, time goes on to the next load or arrival."""
    if state.below is None:
        return state
    nothing = (plan.load.tokens == 0) & ~plan.preempted & (plan.admitted == 0)
    load_s = next_landing_s(state)
    until_s = jnp.minimum(load_s, state.future.least)
    waits = nothing & (load_s < jnp.inf)
    span_s = jnp.where(waits, until_s - state.now, 0.0)
    in_use, sums = state.pool.pinned + state.pool.private, state.sums
    return state._replace(
        now=jnp.where(waits, until_s, state.now),
        below=state.below._replace(stall_s=state.below.stall_s + span_s),
        sums=sums._replace(
            block_s=sums.block_s + in_use * span_s,
            running_s=sums.running_s + state.running * span_s,
        ),
    )


def _account(state: State, plan: Plan, ahead: Ahead, steps, took_s) -> State:
    """Adds a pass to the totals; `decode` adds what grows while it takes."""
    sums, pool = state.sums, state.pool
    stepped = jnp.where(plan.load.tokens > 0, steps, 0)
    compute_s = span_s(ahead.arithmetic, stepped)
    in_use = pool.pinned + pool.private
    return state._replace(
        sums=sums._replace(
            steps=sums.steps + stepped,
            events=sums.events + 1,
            busy_s=sums.busy_s + took_s,
            compute_s=sums.compute_s + compute_s,
            block_s=sums.block_s + in_use * took_s,
            running_s=sums.running_s + state.running * took_s,
        )
    )


def _sample(state: State, rules: Rules) -> State:
    """The time series keeps the last state of each interval, if a pass ended in it.

    The intervals of the first points are equal; those of the others grow, so that a
    server which falls behind is followed to its end.
    """
    points = state.series.shape[0]
    even = even_points(points)
    at = state.now / rules.sample_s
    late = even + (points - even) * (1.0 - even / jnp.maximum(at, even))
    at = jnp.minimum(jnp.where(at < even, at, late), points - 1).astype(jnp.int32)
    values = (
        state.now,
        state.running,
        state.queued,
        state.pool.pinned + state.pool.private,
        state.pool.size,
        state.pool.evictions,
        state.sums.tokens,
    )
    row = jnp.stack([jnp.asarray(value, jnp.float64) for value in values])
    return state._replace(series=write(state.series, at, row))
