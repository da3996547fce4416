"""What moves between the GPU and the tiers below, and when.

    arrival     blocks of slower tiers move to the first one, if asked for
    admission   what is below is loaded, or computed again if that is quicker
    eviction    a block of the GPU is written, if it is not below
    computing   or it was written then

`landing` has what follows a load. Without tiers none of this is compiled.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.floats import Array
from perc.serving.below import (
    RANK,
    READ,
    WHERE,
    Below,
    carry,
    count_uses,
    put_in,
    rank_anew,
    store,
    take_out,
)
from perc.serving.free import TIE
from perc.serving.offload import CHEAPEST, RELOAD, TierRules
from perc.serving.pool import RANK as IN_POOL
from perc.serving.pool import READY, evict, is_there
from perc.serving.retained import shrink_shielded
from perc.serving.settings import Rules
from perc.serving.state import Columns, Request, State
from perc.serving.victims import evict_least


class Finding(NamedTuple):
    """What of a prompt is below, and whether to load it."""

    blocks: jax.Array  # i32[], leading ones that are in the GPU or below
    many: jax.Array  # i32[T], of them that are below only
    ready_s: jax.Array  # f64[], when they would be loaded
    cached: jax.Array  # i32[], tokens that need not be computed then
    load: jax.Array  # bool[]


def find_below(
    state: State, c: Columns, rules: Rules, request: Request, target, hit, block_tokens
) -> Finding:
    """Looks for the blocks after the leading `hit` ones, and prices them."""
    below, how = _of(state, rules)
    tiers = jnp.arange(how.capacity.shape[0])

    def look(i, carried):
        blocks, many, landed_s = carried
        block = peek(c.accesses.block, i)
        here = is_there(state.pool, peek(state.pool.rows, block))
        where = peek(below.rows, block)[WHERE]
        leads = (blocks == i - request.start) & (here | (where >= 0))
        at = leads & ~here & (tiers == where)
        there_s = peek(below.landed_s, block)
        return (
            blocks + leads.astype(jnp.int32),
            many + at.astype(jnp.int32),
            jnp.where(at, jnp.maximum(landed_s, there_s), landed_s),
        )

    nothing = jnp.zeros(tiers.shape, jnp.int32)
    since = jnp.full(tiers.shape, state.now)
    blocks, many, landed_s = lax.fori_loop(
        request.start + hit, request.stop, look, (hit, nothing, since)
    )
    begin_s = jnp.maximum(below.free_s[:, READ], landed_s)
    end_s = begin_s + many * how.block_s + how.latency_s
    ready_s = jnp.where(many > 0, end_s, state.now).max()
    most = jnp.minimum(request.input, target - 1)
    here = jnp.minimum(hit * block_tokens, most)
    cached = jnp.minimum(blocks * block_tokens, most)
    recompute_s = rules.cost.prefill_flops(cached, here) / rules.cost.flops_per_s
    quicker = ready_s - state.now < recompute_s
    load = (how.load == RELOAD) | ((how.load == CHEAPEST) & quicker)
    return Finding(blocks, many, ready_s, cached, load & (cached > here))


def bring_up(
    state: State,
    c: Columns,
    rules: Rules,
    r: jax.Array,
    at: jax.Array,
    request: Request,
    hit: jax.Array,
    found: Finding,
    fits: jax.Array,
    again: jax.Array,
) -> State:
    """Books the loads of an admitted request, into slot `at`.

    Its blocks are pinned by now, so that those without content are to be loaded.
    """
    below, how = _of(state, rules)
    load, first = found.load & fits, fits & ~again
    below = count_uses(
        below,
        c.accesses.block,
        request.start,
        jnp.where(first, request.stop, request.start),
    )
    many = jnp.where(load, found.many, 0)
    below = _book(below, how, c, state, request.start + hit, request.start, found, load)
    span = jnp.stack([request.start + hit, request.start + found.blocks])
    before = peek(below.loading, at)
    waits = jnp.where(load, found.ready_s - state.now, 0.0)
    old = peek(below.ready_s, at)
    counted = jnp.where(first, many.sum(), 0)
    declined = (found.many.sum() > 0) & fits & ~load
    below = below._replace(
        read=below.read + many,
        hits=below.hits + jnp.where(first, many, 0),
        declined=below.declined + jnp.where(declined, found.many.sum(), 0),
        ready_s=write(below.ready_s, at, jnp.where(fits, state.now + waits, old)),
        loading=write(
            below.loading,
            at,
            jnp.where(load, span, jnp.where(fits, jnp.zeros_like(span), before)),
        ),
        wait_s=write(below.wait_s, r, peek(below.wait_s, r) + waits),
        loaded=write(below.loaded, r, peek(below.loaded, r) + counted),
    )
    return state._replace(below=below)


def _book(below, how, c, state, begin, start, found: Finding, load) -> Below:
    """Takes blocks begin..start+found.blocks-1 over the links, all of a tier as one."""
    refresh = c.accesses.refresh

    def take(i, carried):
        below, landed_s = carried
        block = peek(c.accesses.block, i)
        here = peek(state.pool.rows, block)[READY] > 0
        where = peek(below.rows, block)[WHERE]
        from_below = ~here & (where >= 0)
        at = from_below & (jnp.arange(how.capacity.shape[0]) == where)
        landed_s = jnp.where(
            at, jnp.maximum(landed_s, peek(below.landed_s, block)), landed_s
        )
        below = take_out(below, block, from_below & how.exclusive)
        anew = from_below & ~how.exclusive & refresh
        rank = _rank_below(c, peek(c.accesses.rank, i))
        return rank_anew(below, block, rank, anew), landed_s

    since = jnp.full(how.capacity.shape, state.now)
    stop = jnp.where(load, start + found.blocks, begin)
    below, landed_s = lax.fori_loop(begin, stop, take, (below, since))
    many = jnp.where(load, found.many, 0)
    begin_s = jnp.maximum(below.free_s[:, READ], landed_s)
    free_s = jnp.where(many > 0, begin_s + many * how.block_s, below.free_s[:, READ])
    return below._replace(
        free_s=below.free_s.at[:, READ].set(free_s),
        busy_s=below.busy_s.at[:, READ].add(many * how.block_s),
    )


def shrink(state: State, c: Columns, rules: Rules, block_tokens: int) -> State:
    """Drops victims until all blocks fit; what is not below may be written."""

    def drop(state: State) -> State:
        return _drop(state, c, rules, block_tokens)

    if state.retained is not None:
        return shrink_shielded(state, c, rules, drop)
    return drop(state)


def _drop(state: State, c: Columns, rules: Rules, block_tokens: int) -> State:
    def leave(below, rank):
        if below is None or rules.tiers is None:
            return below
        back = ~rules.tiers.through
        return _write(below, c, rules, block_tokens, rank, state.now, back)

    if state.pool.free is None:
        pool, below = evict(state.pool, rules.capacity, state.below, leave)
    else:
        pool, below = evict_least(
            state.pool, c.accesses, rules.capacity, rules.watch, state.below, leave
        )
    return state._replace(pool=pool, below=below)


def write_through(
    state: State, c: Columns, rules: Rules, start, stop, block_tokens: int
) -> State:
    """Computed blocks of accesses start..stop-1 are written, if that is the rule."""
    if state.below is None:
        return state
    below, how = _of(state, rules)

    def put(i, below):
        row = peek(state.pool.rows, peek(c.accesses.block, i))
        rank, wanted = row[IN_POOL], how.through
        return _write(below, c, rules, block_tokens, rank, state.now, wanted)

    stop = jnp.where(how.through, stop, start)
    return state._replace(below=lax.fori_loop(start, stop, put, below))


def fetch_ahead(
    state: State, c: Columns, rules: Rules, request: Request, wanted: Array
) -> State:
    """What a new request will need moves from slower tiers to the first one."""
    if state.below is None or len(state.below.sets) < 2:
        return state
    below, how = _of(state, rules)
    wanted = wanted & how.prefetch

    def fetch(i, carried):
        below, leads = carried
        block = peek(c.accesses.block, i)
        here = is_there(state.pool, peek(state.pool.rows, block))
        row = peek(below.rows, block)
        leads &= here | (row[WHERE] >= 0)
        far = leads & ~here & (row[WHERE] > 0)
        anew = _rank_below(c, peek(c.accesses.rank, i))
        rank = jnp.where(c.accesses.refresh, anew, row[RANK])
        after_s = jnp.maximum(state.now, peek(below.landed_s, block))
        below = take_out(below, block, far)
        there_s = state.now
        for t in range(1, len(below.sets)):
            here_now = far & (row[WHERE] == t)
            below, end_s = carry(below, how, t, READ, after_s, here_now)
            there_s = jnp.where(here_now, end_s, there_s)
            below = below._replace(
                read=below.read.at[t].add(here_now.astype(jnp.int64))
            )
        below = put_in(below, how, _by_rank(c), 0, block, rank, state.now, there_s, far)
        return below, leads

    stop = jnp.where(wanted, request.stop, request.start)
    below, _ = lax.fori_loop(request.start, stop, fetch, (below, jnp.bool_(True)))
    return state._replace(below=below)


def _write(below, c, rules: Rules, block_tokens: int, rank, now_s, wanted) -> Below:
    how, rank = rules.tiers, _rank_below(c, rank)
    assert how is not None
    return store(below, how, _by_rank(c), rules.cost, block_tokens, rank, now_s, wanted)


def _rank_below(c: Columns, rank: jax.Array) -> jax.Array:
    """The rank that a block of the pool has below, i32[].

    Where the order changes while blocks idle, ranks only number their uses, and the
    tiers below follow LRU, as the offloading of vLLM, SGLang and LMCache does.
    """
    if c.accesses.lines is None:
        return rank
    tie = c.accesses.lines.by_number[jnp.maximum(rank, 0), TIE]
    return jnp.where(rank >= 0, tie, rank)


def _of(state: State, rules: Rules) -> tuple[Below, TierRules]:
    assert state.below is not None and rules.tiers is not None
    return state.below, rules.tiers


def _by_rank(c: Columns) -> jax.Array:
    assert c.by_rank is not None
    return c.by_rank
