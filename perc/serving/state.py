"""What the loop reads and what it carries from step to step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.bitset import empty, peek, write
from perc.floats import Array
from perc.ranks import lru_ranks
from perc.roofline import Roofline
from perc.serving import slots as slots_of
from perc.serving.below import Below, nothing_below
from perc.serving.free import Lines, nothing_free
from perc.serving.heap import Heap, build
from perc.serving.offload import n_tiers
from perc.serving.orders import places
from perc.serving.pool import RANK, Accesses, Pool
from perc.serving.programs import (
    Programs,
    Retained,
    before_of,
    nothing_retained,
    programs,
)
from perc.serving.settings import Server
from perc.serving.slots import Slots
from perc.shapes import bucket, pad
from perc.types import Trace

# Columns of `State.times`, seconds; inf = it has not happened.
ARRIVED, ADMITTED, FIRST, LAST, ENDED = range(5)
# Columns of `State.counts`.
STATUS, HIT, CACHED, MADE, PREEMPTED, LOST, AGAIN, REREAD, KNOWN = range(9)
WAITING, COMPLETED, REJECTED = range(3)  # a status; running requests count as waiting
# Columns of `State.series`.
SERIES = ("time_s", "running", "queued", "in_use", "cached", "evictions", "tokens")
ITL_BINS, BINS_PER_OCTAVE, SHORTEST_ITL_S = 2048, 64, 1e-6


class Columns(NamedTuple):
    """The traffic; padded, and never written."""

    accesses: Accesses
    requests: jax.Array  # i32[R, 8], see below
    band: jax.Array  # f64[R], see `orders`
    place: jax.Array  # f64[R]
    gap_s: jax.Array  # f64[R], from the end to the next turn
    deadline_s: jax.Array  # f64[R], after arrival
    by_rank: jax.Array | None  # i32[N, 2], block and depth of a rank; None: no tiers
    programs: Programs | None  # None: no retention


class Request(NamedTuple):
    """A row of `Columns.requests`."""

    start: jax.Array  # first access
    stop: jax.Array  # end of the prompt's accesses
    named: jax.Array  # end of the accesses that name the answer's blocks
    input: jax.Array  # tokens of the prompt, 1 or more
    output: jax.Array  # tokens of the answer, 1 or more
    needs: jax.Array  # blocks at its end
    next: jax.Array  # the turn that its end sets off, -1 = none
    before: jax.Array  # the turn whose end set it off, -1 = none


class Sums(NamedTuple):
    """Totals over the run."""

    steps: jax.Array  # i64[], of the engine
    events: jax.Array  # i64[], passes of the loop: equal decode steps are taken at once
    busy_s: jax.Array  # f64[]
    compute_s: jax.Array  # f64[], that the arithmetic alone takes
    block_s: jax.Array  # f64[], blocks in use times seconds
    running_s: jax.Array  # f64[], running requests times seconds
    tokens: jax.Array  # i64[], of answers
    prompt_tokens: jax.Array  # i64[], that were computed, again ones included
    again_s: jax.Array  # f64[], compute that preempted requests did twice
    itl_s: jax.Array  # f64[], sum of the gaps between tokens
    itls: jax.Array  # i64[], their number


def even_points(points: int) -> int:
    """How many points of a time series are equally far from each other."""
    return 3 * points // 4


class State(NamedTuple):
    """A server at one moment."""

    now: jax.Array  # f64[]
    pool: Pool
    future: Heap  # arrivals to come, keys in seconds
    waiting: Heap  # the queue, keys of `orders`
    promotions: Heap  # of waiting requests, keys in seconds
    slots: Slots
    partial: jax.Array  # i32[], slot whose prompt is cut, -1 = none
    arrivals: jax.Array  # i32[], so far
    queued: jax.Array  # i32[]
    running: jax.Array  # i32[]
    batch: jax.Array  # i32[], requests that static batching still takes
    left: jax.Array  # i32[], requests neither completed nor rejected
    last_s: jax.Array  # f64[], the last step
    times: jax.Array  # f64[R, 5]
    counts: jax.Array  # i32[R, 9]
    keys: jax.Array  # f64[R], of the queue, once they arrived
    itl_bins: jax.Array  # i64[ITL_BINS]
    series: jax.Array  # f64[T, 7]
    sums: Sums
    below: Below | None  # None: no tiers
    retained: Retained | None  # None: no retention


def columns(
    trace: Trace,
    ranks: np.ndarray,
    prompt_stop: np.ndarray,
    server: Server,
    following: np.ndarray,
    gap_s: np.ndarray,
    cost: Roofline,
    *,
    refresh: bool,
    lines: Lines | None = None,
) -> Columns:
    """Lays the traffic out.

    Args:
        trace: accesses of prompts and of answers that have names.
        ranks: i32[N].
        prompt_stop: i32[R], where each request's answer begins among its accesses.
        server: gives order and loop.
        following: i32[R], next turns that wait for an end, -1 = none.
        gap_s: f64[R], from the end to that turn.
        cost: prices what retention would save.
        refresh: a hit sets the rank again.
        lines: where the order changes while blocks idle.
    """
    prompt = np.maximum(trace.input_tokens, 1)
    answer = np.maximum(trace.output_tokens, 1)
    blocks = prompt_stop - trace.start
    # The last token is never attended to: its keys and values are not computed.
    needs = np.maximum(-(-(prompt + answer - 1) // trace.block_tokens), blocks)
    rows = [trace.start, prompt_stop, trace.stop, prompt, answer, needs, following]
    rows.append(before_of(following))
    band, place = places(trace, server.order)
    ranks_below = ranks if lines is None else lru_ranks(trace)  # see `moves`
    return Columns(
        Accesses(
            _lay_out(trace.block),
            _lay_out(ranks),
            jnp.asarray(refresh, jnp.bool_),
            lines,
        ),
        jnp.asarray(pad(np.stack(rows, axis=1).astype(np.int32), 0)),
        *(jnp.asarray(pad(x, 0.0)) for x in (band, place, gap_s, trace.deadline_s)),
        by_rank=_by_rank(trace, ranks_below) if n_tiers(server.offload) else None,
        programs=None
        if server.retention is None
        else programs(trace, prompt_stop, following, gap_s, cost),
    )


def _by_rank(trace: Trace, ranks: np.ndarray) -> jax.Array:
    order = np.argsort(ranks)
    depth = np.arange(trace.n_accesses) - trace.start[trace.request]
    rows = np.stack([trace.block[order], depth[order]], axis=1)
    return jnp.asarray(pad(rows.astype(np.int32), 0))


def start(
    trace: Trace,
    following: np.ndarray,
    *,
    n_slots: int,
    samples: int,
    tiers: int = 0,
    retention: bool = False,
    lines: Lines | None = None,
) -> State:
    """An idle server before the first arrival; of shapes that fit `columns`."""
    n_requests = bucket(trace.n_requests)
    n_accesses = bucket(trace.n_accesses)
    later = np.zeros(trace.n_requests, bool)
    later[following[following >= 0]] = True
    arrival_s = np.full(n_requests, np.inf)
    arrival_s[: trace.n_requests] = np.where(later, np.inf, trace.arrival_s)
    nothing = build(np.full(n_requests, np.inf))
    zero = jnp.int32(0)
    cached = empty(n_accesses)
    n_blocks = bucket(trace.n_blocks)
    width = 4 if lines is None else 5
    rows = jnp.zeros((n_blocks, width), jnp.int32).at[:, RANK].set(-1)
    below = None
    if tiers:
        below = nothing_below(tiers, n_accesses, n_blocks, n_slots, n_requests)
    pool, retained = Pool(cached, rows, zero, zero, zero, zero), None
    if retention:
        pool = pool._replace(shielded=empty(n_accesses), kept=zero)
        retained = nothing_retained(n_requests)
    if lines is not None:
        pool = pool._replace(free=nothing_free(lines))
    return State(
        now=jnp.float64(0.0),
        pool=pool,
        future=build(arrival_s),
        waiting=nothing,
        promotions=nothing,
        slots=slots_of.empty(n_slots),
        partial=jnp.int32(-1),
        arrivals=zero,
        queued=zero,
        running=zero,
        batch=zero,
        left=jnp.int32(trace.n_requests),
        last_s=jnp.float64(0.0),
        times=jnp.full((n_requests, 5), jnp.inf, jnp.float64),
        counts=jnp.zeros((n_requests, len(COUNTS)), jnp.int32),
        keys=jnp.zeros(n_requests, jnp.float64),
        itl_bins=jnp.zeros(ITL_BINS, jnp.int64),
        series=jnp.full((samples, len(SERIES)), jnp.nan, jnp.float64),
        sums=Sums(*(jnp.zeros((), kind) for kind in SUM_TYPES)),
        below=below,
        retained=retained,
    )


WHOLE_SUMS = ("steps", "events", "tokens", "prompt_tokens", "itls")
SUM_TYPES = [jnp.int64 if k in WHOLE_SUMS else jnp.float64 for k in Sums._fields]


def request_of(c: Columns, r: jax.Array) -> Request:
    """The row of a request, as scalars i32[]."""
    row = peek(c.requests, r)
    return Request._make(row[i] for i in range(len(Request._fields)))


def note_time(
    state: State, r: jax.Array, column: int, value, wanted: Array = True
) -> State:
    """Writes one time of a request, if wanted."""
    row = peek(state.times, r)
    new = row.at[column].set(jnp.where(wanted, value, row[column]))
    return state._replace(times=write(state.times, r, new))


def note_counts(state: State, r: jax.Array, wanted: Array = True, **values) -> State:
    """Adds to counts of a request, named in lower case, if wanted."""
    row = peek(state.counts, r)
    new = row
    for name, value in values.items():
        new = new.at[COUNTS[name]].add(jnp.where(wanted, value, 0).astype(jnp.int32))
    return state._replace(counts=write(state.counts, r, new))


COUNTS = {
    "status": STATUS,
    "hit": HIT,
    "cached": CACHED,
    "made": MADE,
    "preempted": PREEMPTED,
    "lost": LOST,
    "again": AGAIN,
    "reread": REREAD,
    "known": KNOWN,
}


def note_gap(state: State, gap_s: jax.Array, many: jax.Array) -> State:
    """Counts `many` gaps between two tokens, together in one bin of 1 %."""
    octaves = jnp.log2(jnp.maximum(gap_s, SHORTEST_ITL_S) / SHORTEST_ITL_S)
    at = jnp.minimum(octaves * BINS_PER_OCTAVE, ITL_BINS - 1).astype(jnp.int32)
    total = peek(state.itl_bins, at) + many
    sums = state.sums._replace(
        itl_s=state.sums.itl_s + gap_s * many, itls=state.sums.itls + many
    )
    return state._replace(itl_bins=write(state.itl_bins, at, total), sums=sums)


def _lay_out(column: np.ndarray) -> jax.Array:
    return jnp.asarray(pad(column.astype(np.int32), 0))
