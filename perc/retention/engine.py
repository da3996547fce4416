"""The replay under rules: one compiled pass over requests and what falls due.

A victim is taken from the lowest pair (band, rank) of the blocks that may leave: those
of tenants over their quota before all others. A band is a place among
(time-to-live, priority), a rank the base policy's order. Pinned blocks and those of the
running request are no candidates, whatever their pair.

The loops keep the in-place contract of `perc/bitset.py`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek
from perc.retention.tree import EMPTY, lowest, set_leaf

STAYS = EMPTY  # in `Found.left`: the block outlived this setting
ABSENT = -1  # in `Found.left`: it was not stored at any time of it


class Columns(NamedTuple):
    """What the engine reads; padded, and never written.

    A *setting* gives a block a place in the order: one for each access, in the order
    of the trace, and after them one for each end of a directive.
    """

    block: jax.Array  # i32[S]
    band: jax.Array  # i32[S]
    rank: jax.Array  # i32[S], -1 = as before
    group: jax.Array  # i32[S], whose quota the block counts against, 0 = nobody's
    block_of_rank: jax.Array  # i32[S]
    start: jax.Array  # i32[R]
    stop: jax.Array  # i32[R]
    due: jax.Array  # i32[R + 1], ends due[r] <= s < due[r + 1] come before request r
    pins: jax.Array  # i32[R], leading blocks that are to be pinned
    common: jax.Array  # i32[R], leading blocks that count against no quota
    payer: jax.Array  # i32[R], group of the request, 0 = none
    parent: jax.Array  # i32[M], the block before it in every prompt, M = none
    node: jax.Array  # i32[M, 2], leaf among all blocks, and in its group
    base: jax.Array  # i32[G + 1], first row of each group's tournament
    rows: jax.Array  # i32[T, 0], its length is the number of those rows


class Found(NamedTuple):
    """What one configuration did."""

    hits: jax.Array  # i32[R], leading resident blocks
    evictions: jax.Array  # i32[], blocks that left or were not stored
    pinned: jax.Array  # i32[R, 2], blocks pinned by the request: from, to
    refused: jax.Array  # i32[R], blocks that were to be pinned and were not
    charged: jax.Array  # i32[R], blocks against the request's quota, afterwards
    left: jax.Array  # i32[S], request before which the block left; STAYS, ABSENT


class _Cache(NamedTuple):
    forest: jax.Array  # i32[T, 4], see `perc.retention.tree`
    # Per block: stamp, band, rank, setting. The stamp is 0 for a block that is out,
    # else 2 * (request that used it + 1) + was resident; band EMPTY = pinned.
    rows: jax.Array  # i32[M + 1, 4]
    kids: jax.Array  # i32[M + 1], resident children, where parents must wait for them
    held: jax.Array  # i32[G + 1], blocks that count against each quota
    left: jax.Array  # i32[S + 1]
    size: jax.Array  # i32[], resident blocks
    pinned: jax.Array  # i32[]


@functools.partial(jax.jit, static_argnames=("bypass", "refresh", "closed"))
def replay_columns(
    c: Columns,
    capacity: jax.Array,
    budget: jax.Array,
    quota: jax.Array,
    *,
    bypass: bool,
    refresh: bool,
    closed: bool,
) -> Found:
    """One configuration.

    Args:
        c: traffic and rules.
        capacity: i32[] blocks.
        budget: i32[], blocks that may be pinned, at most the capacity.
        quota: i32[G + 1], blocks of each group; group 0 is never over.
        bypass: the running request's blocks may be victims.
        refresh: a use sets the block's rank again.
        closed: a block whose child is resident is no victim.
    """
    n_requests = c.start.shape[0]
    evict = functools.partial(_evict, c, quota, bypass=bypass, closed=closed)
    put = functools.partial(_put, c, refresh=refresh, closed=closed)

    def serve(r, carry):
        cache, out = carry
        cache = _end_directives(c, cache, r)
        cache, hit, found, mine = _look_up(c, cache, r)
        length = c.stop[r] - c.start[r]
        room = capacity - (cache.pinned - mine)
        kept = length if bypass else jnp.minimum(length, room)
        asked = jnp.maximum(c.pins[r] - mine, 0)
        granted = jnp.minimum(asked, jnp.minimum(budget - cache.pinned, kept - mine))
        payer, owed = c.payer[r], jnp.maximum(kept - c.common[r], 0)
        held = cache.held.at[payer].set(peek(cache.held, payer) + owed)
        cache = cache._replace(held=held)
        if bypass:
            before = cache.size + length - found
            cache = put(cache, r, kept, mine + granted)
            cache, size = evict(cache, r, before, capacity)
            gone = before - size
        else:
            before = cache.size - found - (cache.pinned - mine)
            cache, others = evict(cache, r, before, room - kept)
            gone = before - others + length - kept
            size = others + (cache.pinned - mine) + kept
            cache = put(cache, r, kept, mine + granted)
        charged = peek(cache.held, payer)
        cache = cache._replace(
            held=cache.held.at[payer].set(charged),
            size=size,
            pinned=cache.pinned + granted,
        )
        out = Found(
            hits=out.hits.at[r].set(hit),
            evictions=out.evictions + gone,
            pinned=out.pinned.at[r].set(jnp.stack([mine, mine + granted])),
            refused=out.refused.at[r].set(asked - granted),
            charged=out.charged.at[r].set(jnp.where(payer > 0, charged, 0)),
            left=out.left,
        )
        return cache, out

    none = jnp.zeros(n_requests, jnp.int32)
    pairs = jnp.zeros((n_requests, 2), jnp.int32)
    out = Found(none, jnp.int32(0), pairs, none, none, jnp.zeros(0, jnp.int32))
    cache, out = lax.fori_loop(0, n_requests, serve, (_empty(c, closed), out))
    return out._replace(left=cache.left)


def _empty(c: Columns, closed: bool) -> _Cache:
    n_blocks = c.parent.shape[0]
    return _Cache(
        forest=jnp.full((c.rows.shape[0], 4), EMPTY, jnp.int32),
        rows=jnp.zeros((n_blocks + 1, 4), jnp.int32),
        kids=jnp.zeros(n_blocks + 1 if closed else 0, jnp.int32),
        held=jnp.zeros(c.base.shape[0], jnp.int32),
        left=jnp.full(c.block.shape[0] + 1, ABSENT, jnp.int32),
        size=jnp.int32(0),
        pinned=jnp.int32(0),
    )


def _leaf(c: Columns, group, block):
    return jnp.where(group > 0, c.node[block, 1], c.node[block, 0])


def _end_directives(c: Columns, cache: _Cache, r) -> _Cache:
    """Moves resident blocks whose directives ended before request r arrived."""

    def end(s, cache):
        block, band, rank = c.block[s], c.band[s], c.rank[s]
        row = peek(cache.rows, block)
        resident, pinned = row[0] > 0, row[1] == EMPTY
        moves = resident & ~pinned
        rank = jnp.where(rank >= 0, rank, row[2])
        moved = jnp.stack([row[0], jnp.where(pinned, EMPTY, band), rank, s])
        group = c.group[s]
        leaf = jnp.where(moves, _leaf(c, group, block), 0)
        left = jnp.where(resident, s, cache.left.shape[0] - 1)
        return cache._replace(
            forest=set_leaf(cache.forest, c.base[group], leaf, band, rank),
            rows=cache.rows.at[block].set(jnp.where(resident, moved, row)),
            left=cache.left.at[left].set(STAYS),
        )

    return lax.fori_loop(c.due[r], c.due[r + 1], end, cache)


def _look_up(c: Columns, cache: _Cache, r):
    """Stamps the request's blocks, which no longer count against a quota.

    Returns:
        The cache, and of the request's blocks how many lead, are resident, are pinned.
    """
    first = c.start[r]

    def look(i, carry):
        rows, held, hit, found, mine = carry
        row = peek(rows, c.block[i])
        resident = row[0] > 0
        stamped = row.at[0].set(2 * (r + 1) + resident)
        group = c.group[row[3]]
        held = held.at[group].set(peek(held, group) - resident)
        hit = jnp.where(resident & (hit == i - first), hit + 1, hit)
        pinned = resident & (row[1] == EMPTY)
        rows = rows.at[c.block[i]].set(stamped)
        return rows, held, hit, found + resident, mine + pinned

    zero = jnp.int32(0)
    rows, held, hit, found, mine = lax.fori_loop(
        first, c.stop[r], look, (cache.rows, cache.held, zero, zero, zero)
    )
    return cache._replace(rows=rows, held=held), hit, found, mine


def _evict(c: Columns, quota, cache: _Cache, r, count, most, *, bypass, closed):
    """Drops victims until `count` is at most `most`, or nothing may leave.

    A candidate that is none (running, pinned, moved to another group, or with a
    resident child) leaves its tournament only; what makes it one again puts it back.
    """
    nobody = c.parent.shape[0]

    def turn(carry):
        cache, count, _ = carry
        over = cache.held > quota
        at = lowest(cache.forest, c.base, over)
        block = c.block_of_rank[at.rank]
        row = peek(cache.rows, block)
        gone = at.found & (row[0] > 0) & (row[1] < EMPTY) & (c.group[row[3]] == at.tree)
        if not bypass:
            gone &= row[0] >> 1 != r + 1
        if closed:
            own = peek(cache.kids, block)
            gone &= own == 0
            kids = cache.kids.at[block].set(own)
        else:
            kids = cache.kids
        leaf = jnp.where(at.found, _leaf(c, at.tree, block), 0)
        left = jnp.where(gone, row[3], cache.left.shape[0] - 1)
        cache = cache._replace(
            forest=set_leaf(cache.forest, c.base[at.tree], leaf, EMPTY, EMPTY),
            rows=cache.rows.at[block].set(row.at[0].set(jnp.where(gone, 0, row[0]))),
            held=cache.held.at[at.tree].set(peek(cache.held, at.tree) - gone),
            left=cache.left.at[left].set(r),
            kids=kids,
        )
        if closed:
            parent = jnp.where(gone, c.parent[block], nobody)
            cache = _lose_child(c, cache, parent)
        return cache, count - gone, at.found

    cache, count, _ = lax.while_loop(
        lambda carry: (carry[1] > most) & carry[2],
        turn,
        (cache, count, jnp.bool_(True)),
    )
    return cache, count


def _lose_child(c: Columns, cache: _Cache, parent) -> _Cache:
    """Without resident children a block becomes a candidate."""
    kids, row = peek(cache.kids, parent) - 1, peek(cache.rows, parent)
    joins = (parent < c.parent.shape[0]) & (kids == 0)
    group = c.group[row[3]]
    leaf = jnp.where(joins, _leaf(c, group, parent), 0)
    return cache._replace(
        forest=set_leaf(cache.forest, c.base[group], leaf, row[1], row[2]),
        rows=cache.rows.at[parent].set(row),
        kids=cache.kids.at[parent].set(kids),
    )


def _put(c: Columns, cache: _Cache, r, kept, pinned, *, refresh, closed) -> _Cache:
    """Stores the first `kept` blocks of the request; the first `pinned` are pinned."""
    first, last = c.start[r], c.stop[r]

    def put(position, cache):
        i = first + last - 1 - position  # deepest first: few changes climb far
        block, group = c.block[i], c.group[i]
        stays = i < first + kept
        row = peek(cache.rows, block)
        resident = row[0] & 1
        keeps = (resident == 1) & (not refresh)
        band = jnp.where(i < first + pinned, EMPTY, c.band[i])
        rank = jnp.where(keeps, row[2], c.rank[i])
        stamp = jnp.where(stays, row[0], 0)
        leaf_band = jnp.where(stays, band, EMPTY)
        leaf_rank = jnp.where(leaf_band < EMPTY, rank, EMPTY)
        kids = cache.kids
        if closed:
            parent = c.parent[block]
            kids = kids.at[parent].set(peek(kids, parent) + stays - resident)
        return cache._replace(
            forest=set_leaf(
                cache.forest,
                c.base[group],
                _leaf(c, group, block),
                leaf_band,
                leaf_rank,
            ),
            rows=cache.rows.at[block].set(jnp.stack([stamp, band, rank, i])),
            left=cache.left.at[i].set(jnp.where(stays, STAYS, ABSENT)),
            kids=kids,
        )

    return lax.fori_loop(first, last, put, cache)
