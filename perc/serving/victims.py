"""Victims in an order that changes while blocks idle: the least worth of all lines.

    worth(block) = price(class of its last use, now - when that was admitted)

When blocks must leave, the two ends of every line are priced at the simulated clock:
the oldest and the newest where requests are admitted in the trace's order.
The least worth leaves, of equals the least recent, then the deepest; what may leave
then is priced anew, and so on until there is room. Nothing is ranked ahead of time, so
no price is ever stale.

A policy with a guard (`perc.guard`) is followed while the server's hits keep up with
those of two caches beside it, one under LRU and one under the policy alone, which serve
the same requests one at a time.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import bit_of, peek, remove, write
from perc.lines import join_line, leave_line
from perc.lists import read, when
from perc.online_aged import LAST, Watch
from perc.reuse import bin_of
from perc.serving.free import BLOCK, CLASS, TIE, Free, Lines, Scores, Table
from perc.serving.pool import PINS, RANK, USED, Accesses, Pool, goal
from perc.types import Now


class _Offers(NamedTuple):
    """The ends of every line."""

    worth: jax.Array  # f32[2, K], +inf = there is none
    tie: jax.Array  # i32[2, K]
    number: jax.Array  # i32[2, K]


def evict_least(
    pool: Pool,
    c: Accesses,
    capacity: jax.Array,
    watch: Watch | None,
    below: Any,
    leave: Callable[[Any, Any], Any],
) -> tuple[Pool, Any]:
    """Drops what is worth least now, until all blocks fit; as `pool.evict` otherwise.

    `leave` is told of every number that leaves.
    """
    lines, most = c.lines, goal(pool, capacity)
    assert lines is not None and pool.free is not None
    trusts = trusted(pool.free, watch)

    def price(cls, carry):
        rows, free, offers = carry
        return _price(rows, free, offers, lines, cls, trusts)

    def turn(carry):
        words, size, rows, free, offers, below = carry
        number = _least(offers)
        row = lines.by_number[number]
        words, _ = remove(words, number)
        free = leave_line(free, row[CLASS], number, True)
        words, rows, free, above = _orphan(words, rows, free, lines, row[BLOCK])
        both = jnp.stack([row[CLASS], above])
        priced = lax.fori_loop(
            0, 2, lambda i, carry: price(both[i], carry), (rows, free, offers)
        )
        return words, size - 1, *priced, leave(below, number)

    def make_room(carry):
        words, size, rows, free, below = carry
        shape = free.ends.shape
        offers = _Offers(
            jnp.full(shape, jnp.inf, jnp.float32), jnp.zeros_like(free.ends), free.ends
        )
        priced = lax.fori_loop(0, shape[1], price, (rows, free, offers))
        carry = (words, size, *priced, below)
        found = lax.while_loop(lambda carry: carry[1] > most, turn, carry)
        words, size, rows, free, _, below = found
        return words, size, rows, free, below

    carry = (pool.cached.words, pool.size, pool.rows, pool.free, below)
    words, size, rows, free, below = when(pool.size > most, make_room, carry)
    pool = pool._replace(
        cached=pool.cached._replace(words=words),
        rows=rows,
        free=free,
        size=size,
        evictions=pool.evictions + pool.size - size,
    )
    return pool, below


def trusted(free: Free, watch: Watch | None) -> jax.Array:
    """Whether the policy chooses the next victims, bool[]; if not, LRU does."""
    if watch is None:
        return jnp.bool_(True)
    return (free.behind <= watch.slack) & (free.lead + watch.credit > 0)


def judged(pool: Pool, watch: Watch | None, r: jax.Array, hit, wanted) -> Pool:
    """A request found `hit` blocks: the guard compares, if wanted."""
    if watch is None or pool.free is None:
        return pool
    free, reach = pool.free, watch.reach[r]
    behind = jnp.maximum(free.behind + watch.owed[r] - hit, -reach)
    lead = jnp.clip(free.lead + watch.credit + watch.gain[r], -reach, reach)
    free = free._replace(
        behind=jnp.where(wanted, behind, free.behind),
        lead=jnp.where(wanted, lead - watch.credit, free.lead),
    )
    return pool._replace(free=free)


def _orphan(words, rows, free: Free, lines: Lines, block):
    """A block has left: the one above it may leave now, if it was the last.

    Returns:
        Words of the cached ranks, rows, Free, and the class whose line may have grown.
    """
    parent = lines.parent[block]
    left = peek(free.kids, parent) - 1
    free = free._replace(kids=write(free.kids, parent, left))
    there = parent < rows.shape[0]
    rows, row = read(rows, jnp.where(there, parent, 0))
    number = jnp.maximum(row[RANK], 0)
    words, word = read(words, number >> 5)
    cached = there & (row[PINS] == 0) & ((word & bit_of(number)) != 0)
    cls = lines.by_number[number, CLASS]
    free = join_line(free, cls, number, cached & (left == 0))
    return words, rows, free, cls


def _least(offers: _Offers) -> jax.Array:
    """The number of least worth; of equals the first in the order of ties."""
    equal = offers.worth == offers.worth.min()
    first = jnp.where(equal, offers.tie, LAST).min()
    return jnp.where(equal & (offers.tie == first), offers.number, -1).max()


def _price(rows, free: Free, offers: _Offers, lines: Lines, cls, trusts):
    """Writes what the two ends of a line are worth now: rows, Free and Offers."""
    number = free.ends[:, cls]
    there = number >= 0
    oldest, newest = (lines.by_number[jnp.maximum(number[end], 0)] for end in range(2))
    rows, first = read(rows, oldest[BLOCK])
    rows, last = read(rows, newest[BLOCK])
    used_s = lax.bitcast_convert_type(jnp.stack([first[USED], last[USED]]), jnp.float32)
    worth = _worth(lines.prices, cls, used_s, free)
    bad = jnp.isnan(worth) & there
    worth = jnp.where(trusts & ~bad, worth, 0.0)
    row = (
        jnp.where(there, worth, jnp.inf),
        jnp.where(there, jnp.stack([oldest[TIE], newest[TIE]]), LAST),
        number,
    )
    offers = _Offers(
        *(old.at[:, cls].set(new) for old, new in zip(offers, row, strict=True))
    )
    free = free._replace(bad=free.bad + bad.sum(dtype=jnp.int32))
    return rows, free, offers


def _worth(prices: Table | Scores, cls, used_s: jax.Array, free: Free) -> jax.Array:
    """What blocks of a class are worth, f32[2], by when they were used."""
    if isinstance(prices, Table):
        age = lax.bitcast_convert_type(free.now_s - used_s, jnp.int32)
        column = jnp.minimum(bin_of(age), prices.worth.shape[2] - 1)
        row = prices.worth[prices.epoch[free.latest], cls]
        return jnp.stack([row[column[0]], row[column[1]]])
    f = jax.tree.map(
        lambda column: jnp.broadcast_to(column[cls], (2, *column.shape[1:])),
        prices.features,
    )
    f = replace(f, time_s=used_s)
    now = Now(free.latest, free.now_s, prices.learned)
    score = prices.policy.rule.score(prices.policy.params, f, now)  # pyright: ignore
    return jnp.broadcast_to(jnp.asarray(score, jnp.float32), (2,))
