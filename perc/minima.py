"""Keys by position, of which the lowest is found in a few steps; updated in place.

Positions number accesses, so a new key always stands behind all others. Ties leave in
the order of positions. Above the keys stands a tree of lower bounds, 16 children to a
node, in which:

    * the lowest key's row of 16 is remembered: while keys equal to the lowest are left
      in it, the next one costs no search;
    * new keys are not entered before one of them may be the lowest. What is known of
      them is where they begin and a bound;
    * a key that is taken out leaves its row's bound as it is. `settle` raises it when
      the row comes up.

Read `perc/bitset.py` for the rules that keep XLA from copying the arrays.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek, write

EMPTY = np.iinfo(np.int32).max  # no key
BITS = 4
ROW = 1 << BITS  # children of a node; 8 and 32 were measured to be slower


class Minima(NamedTuple):
    """Keys of positions 0..N-1, N a power of two; below `EMPTY` and not in order."""

    keys: jax.Array  # i32[N + ROW], the last row is scratch, for reads and for EMPTY
    lows: jax.Array  # i32[max(2N / ROW, ROW)], bound of node i; parent of i = i >> BITS
    row: jax.Array  # i32[], of the keys; the first one that may hold `low`
    low: jax.Array  # i32[], no key before `fresh` is lower
    fresh: jax.Array  # i32[], `lows` does not know of keys from this position on
    fresh_low: jax.Array  # i32[], none of those is lower


def empty_minima(n: int) -> Minima:
    """No keys; room for positions below `n`, a power of two of 64 or more."""
    nothing, zero = jnp.int32(EMPTY), jnp.int32(0)
    keys = jnp.full(n + ROW, EMPTY, jnp.int32)
    lows = jnp.full(max(2 * n // ROW, ROW), EMPTY, jnp.int32)
    return Minima(keys, lows, zero, nothing, zero, nothing)


def announce(minima: Minima, low: jax.Array) -> Minima:
    """Tells of keys written to `keys` behind all others; `low` is the lowest."""
    return minima._replace(fresh_low=jnp.minimum(minima.fresh_low, low))


def insert(minima: Minima, position: jax.Array, key: jax.Array) -> Minima:
    """Writes a key anywhere; with EMPTY, to the scratch row, nothing."""
    keys, lows, row, low, fresh, fresh_low = minima
    known = position < fresh
    mine = position >> BITS
    seen = jnp.where(known, key, EMPTY)
    lows = _lower(lows, _first_node(keys) + jnp.where(known, mine, 0), seen)
    first = (seen < low) | ((seen == low) & (mine < row) & (seen < EMPTY))
    return Minima(
        write(keys, position, key),
        lows,
        jnp.where(first, mine, row),
        jnp.minimum(low, seen),
        fresh,
        jnp.where(known, fresh_low, jnp.minimum(fresh_low, key)),
    )


def pop_lowest(minima: Minima, stop: jax.Array) -> tuple[Minima, jax.Array]:
    """Takes out the lowest key before `stop`: its position, or -1 to `settle` first."""
    begin = minima.row << BITS
    row = _row(minima.keys, minima.row)
    lane = lax.iota(jnp.int32, ROW)
    lowest = (row <= minima.low) & (lane < stop - begin)
    lowest &= (minima.low <= minima.fresh_low) & (minima.low < EMPTY)
    first = jnp.min(jnp.where(lowest, lane, ROW))
    found = first < ROW
    at = begin + jnp.where(found, first, 0)
    keys = write(minima.keys, at, jnp.where(found, EMPTY, row[0]))
    return minima._replace(keys=keys), jnp.where(found, at, -1)


def settle(minima: Minima, stop: jax.Array) -> Minima:
    """After `pop_lowest` found nothing: comes one step closer.

    There must be a key before `stop`, which must not fall from call to call.
    """
    due = minima.fresh_low < minima.low
    bound = jnp.minimum(minima.low, minima.fresh_low)
    return _search(_enter(minima, stop, due), stop, bound)


def _enter(minima: Minima, stop, due) -> Minima:
    """Enters the fresh keys before `stop`, if it is due."""
    first = minima.fresh >> BITS
    last = jnp.where(due, (stop - 1 >> BITS) + 1, first)

    def enter(r, carry):
        keys, lows = carry
        keys, low = _low_of_row(keys, r, stop)
        return keys, _lower(lows, _first_node(keys) + r, low)

    keys, lows = lax.fori_loop(first, last, enter, (minima.keys, minima.lows))
    return minima._replace(
        keys=keys,
        lows=lows,
        fresh=jnp.where(due, stop, minima.fresh),
        fresh_low=jnp.where(due, EMPTY, minima.fresh_low),
    )


def _search(minima: Minima, stop, bound) -> Minima:
    """Corrects the row's bound and finds the first row with the lowest one.

    `bound` is the lowest key that there can be: a node that has it needs no look at
    what is above.
    """
    base = _first_node(minima.keys)
    keys, low = _low_of_row(minima.keys, minima.row, stop)

    def up(carry):
        lows, node, low = carry
        lows, row = _read_row(write(lows, node, low), node >> BITS)
        return lows, node >> BITS, jnp.min(row)

    def down(carry):
        lows, node = carry
        lows, row = _read_row(lows, node)
        lane = jnp.where(row == low, lax.iota(jnp.int32, ROW), ROW - 1)
        return lows, (node << BITS) + jnp.min(lane)

    lows, node, low = lax.while_loop(
        lambda carry: (carry[1] > 0) & (carry[2] > bound),
        up,
        (minima.lows, base + minima.row, low),
    )
    lows, node = lax.while_loop(
        lambda carry: (carry[1] < base) & (low < EMPTY), down, (lows, node)
    )
    row = jnp.maximum(node - base, 0)
    return minima._replace(keys=keys, lows=lows, row=row, low=low)


def _lower(lows: jax.Array, node, key) -> jax.Array:
    """Makes the bounds of a node and of those above at most `key`."""

    def up(carry):
        lows, node, _ = carry
        was = peek(lows, node)
        return write(lows, node, jnp.minimum(was, key)), node >> BITS, key < was

    return lax.while_loop(
        lambda carry: carry[2] & (carry[1] > 0), up, (lows, node, key < EMPTY)
    )[0]


def _first_node(keys: jax.Array) -> int:
    """The node above the first row of keys."""
    return keys.shape[0] - ROW >> BITS


def _low_of_row(keys: jax.Array, r, stop) -> tuple[jax.Array, jax.Array]:
    """The lowest key of a row before `stop`, after the keys to carry on with."""
    keys, row = _read_row(keys, r)
    known = lax.iota(jnp.int32, ROW) < stop - (r << BITS)
    return keys, jnp.min(jnp.where(known, row, EMPTY))


def _read_row(array: jax.Array, r) -> tuple[jax.Array, jax.Array]:
    row = _row(array, r)
    return lax.dynamic_update_slice(array, row[:1], (r << BITS,)), row


def _row(array: jax.Array, r) -> jax.Array:
    """`peek` for a row."""
    return lax.cond(
        r >= 0,
        lambda: lax.dynamic_slice(array, (jnp.maximum(r, 0) << BITS,), (ROW,)),
        lambda: jnp.zeros(ROW, array.dtype),
    )
