"""Where the blocks are at the end of a run, found by looking at every one of them.

The loop keeps totals as it goes; `laws` holds them against these.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import bit_of, reachable
from perc.serving.below import WHERE, Below
from perc.serving.free import Lines
from perc.serving.pool import PINS, RANK, Pool


class Counted(NamedTuple):
    """Blocks, ranks and numbers i32[], each counted by itself."""

    cached: jax.Array  # blocks whose rank is in a set of the pool, shielded or not
    ranks: jax.Array  # in those sets
    pinned: jax.Array  # blocks
    may_leave: jax.Array  # blocks, by the rules of the order
    in_order: jax.Array  # of them, those that the next victims are taken from
    below: jax.Array | None  # i32[T], blocks of each tier
    below_in_order: jax.Array | None  # i32[T], that its next victims are taken from


def counted(pool: Pool, lines: Lines | None, below: Below | None) -> Counted:
    """Counts."""
    idle = pool.rows[:, PINS] == 0
    plain = idle & _among(pool.cached.words, pool.rows[:, RANK])
    cached, ranks = plain, _bits(pool.cached.words)
    if pool.shielded is not None:
        shielded = _among(pool.shielded.words, pool.rows[:, RANK])
        cached = plain | (idle & shielded)
        ranks += _bits(pool.shielded.words)
    may_leave, in_order = plain, reachable(pool.cached)
    if pool.free is not None and lines is not None:
        here = (cached | ~idle).astype(jnp.int32)
        kids = jnp.zeros(len(here) + 1, jnp.int32).at[lines.parent].add(here)
        may_leave = plain & (kids[:-1] == 0)
        in_order = _bits(pool.free.free)
    there, there_in_order = None, None
    if below is not None:
        there = below.rows[:, WHERE] == jnp.arange(len(below.sets))[:, None]
        there = jnp.sum(there, axis=1, dtype=jnp.int32)
        there_in_order = jnp.stack([reachable(tier) for tier in below.sets])
    return Counted(
        cached=_many(cached),
        ranks=ranks,
        pinned=_many(~idle),
        may_leave=_many(may_leave),
        in_order=in_order,
        below=there,
        below_in_order=there_in_order,
    )


def _among(words: jax.Array, ranks: jax.Array) -> jax.Array:
    """Which ranks i32[M] are in a set, bool[M]; -1 never is."""
    at = jnp.maximum(ranks, 0)
    return (ranks >= 0) & ((words[at >> 5] & bit_of(at)) != 0)


def _bits(words: jax.Array) -> jax.Array:
    return jnp.sum(lax.population_count(words), dtype=jnp.int32)


def _many(flags: jax.Array) -> jax.Array:
    return jnp.sum(flags, dtype=jnp.int32)
