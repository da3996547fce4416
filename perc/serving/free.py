"""Which cached blocks may leave, where the order of victims changes while they idle.

A block may leave if it is cached, nobody pins it, and no block below it is here. Such
blocks stand in lines (`perc.lines`), one a class, numbered by (class, request of the
last use, deepest first). `victims` takes them from the ends of the lines, at the prices
of the moment. An order that does not change needs none of this, and compiles none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import WORD, peek, write
from perc.lines import join_line, leave_line
from perc.types import Features, OnlinePolicy

BLOCK, CLASS, TIE = range(3)  # columns of `Lines.by_number`


class Table(NamedTuple):
    """Prices of an `Aged` rule: by epoch, class and bin of age."""

    worth: jax.Array  # f32[E, K, A], by age it has one peak
    epoch: jax.Array  # i32[R]


class Scores(NamedTuple):
    """Prices of a `Rescored` rule: its score for one block of a class."""

    policy: OnlinePolicy
    features: Features  # [K] each, but time_s, which is None
    learned: jax.Array  # any pytree, `perc.types.Now.learned`


class Lines(NamedTuple):
    """What of a trace the lines read; padded, and never written."""

    by_number: jax.Array  # i32[N, 3], block, class and place in the order of ties
    parent: jax.Array  # i32[M], the block before each, M = none
    ends: jax.Array  # i32[2, K], -1: how the lines begin
    prices: Table | Scores


class Free(NamedTuple):
    """The lines at one moment."""

    free: jax.Array  # u32[N / 32], bit = the number may leave
    ends: jax.Array  # i32[2, K], first and last number of a class that may; -1 = none
    kids: jax.Array  # i32[M + 1], blocks below each that are cached or pinned
    now_s: jax.Array  # f32[], the clock by which blocks age
    latest: jax.Array  # i32[], the last request of the trace that was admitted so far
    behind: jax.Array  # i32[], hits behind LRU, of the guard
    lead: jax.Array  # i32[], hits that the policy alone has gained on LRU, of the guard
    bad: jax.Array  # i32[], prices that were no number


def nothing_free(lines: Lines) -> Free:
    """Of an empty cache."""
    zero = jnp.int32(0)
    return Free(
        free=jnp.zeros(lines.by_number.shape[0] // WORD, jnp.uint32),
        ends=lines.ends,
        kids=jnp.zeros(lines.parent.shape[0] + 1, jnp.int32),
        now_s=jnp.float32(0),
        latest=zero,
        behind=zero,
        lead=zero,
        bad=zero,
    )


def used_now(free: Free) -> jax.Array:
    """The time of a use, as a column of `pool.Pool.rows` keeps it: bits i32[]."""
    return lax.bitcast_convert_type(free.now_s, jnp.int32)


def pinned(free: Free, lines: Lines, block, number, cached, new) -> Free:
    """A block is pinned: `cached` under a number, or `new` here."""
    free = out_of_line(free, lines, number, cached)
    return free._replace(kids=_count(free.kids, lines.parent[block], new, 1))


def unpinned(free: Free, lines: Lines, block, number, keep, lost) -> Free:
    """Nobody pins a block any more: it is cached (`keep`), or `lost`.

    Blocks of a prompt come deepest first: then it is known what hangs on each.
    """
    kids = _count(free.kids, lines.parent[block], lost, -1)
    return into_line(free._replace(kids=kids), lines, block, number, keep)


def out_of_line(free: Free, lines: Lines, number, wanted) -> Free:
    """A block may leave no more: it is pinned, or shielded."""
    at = jnp.maximum(number, 0)
    return leave_line(free, lines.by_number[at, CLASS], at, wanted)


def into_line(free: Free, lines: Lines, block, number, wanted) -> Free:
    """A block that is cached and not shielded may leave, if nothing below it is here.

    Blocks below it that others shield count as here.
    """
    own = peek(free.kids, block)
    free = free._replace(kids=write(free.kids, block, own))
    at = jnp.maximum(number, 0)
    return join_line(free, lines.by_number[at, CLASS], at, wanted & (own == 0))


def _count(kids: jax.Array, parent, wanted, by: int) -> jax.Array:
    return write(kids, parent, peek(kids, parent) + jnp.where(wanted, by, 0))
