"""Keys by position, of which the lowest is found in a few steps; updated in place.

Positions number accesses, so a new key always stands behind all others. Ties leave in
the order of positions. Above the keys stands a tree of lower bounds, 16 children to a
node, in which:

    * the lowest key's row of 16 is remembered, with a bound on what is in all others:
      while its own keys are as low, they leave several at a time and without a search;
    * so is a bound on all rows but those under the same node: while that holds, the
      next row is found among these 16;
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
    row: jax.Array  # i32[], of the keys: where to look
    low: jax.Array  # i32[], no key of that row before `fresh` is lower
    rest: jax.Array  # i32[], nor in a later row before `fresh`; in earlier ones all are
    # higher. So this row's keys up to `rest` leave before those of other rows.
    outer: jax.Array  # i32[], the same of the rows that are not under the same node
    fresh: jax.Array  # i32[], `lows` does not know of keys from this position on
    fresh_low: jax.Array  # i32[], none of those is lower


def empty_minima(n: int) -> Minima:
    """No keys; room for positions below `n`, a power of two of 64 or more."""
    nothing, zero = jnp.int32(EMPTY), jnp.int32(0)
    keys = jnp.full(n + ROW, EMPTY, jnp.int32)
    lows = jnp.full(max(2 * n // ROW, ROW), EMPTY, jnp.int32)
    none = nothing - 1  # below `nothing`, so that an empty row never is ready
    return Minima(keys, lows, zero, nothing, none, none, zero, nothing)


def announce(minima: Minima, low: jax.Array) -> Minima:
    """Tells of keys written to `keys` behind all others; `low` is the lowest."""
    return minima._replace(fresh_low=jnp.minimum(minima.fresh_low, low))


def insert(minima: Minima, position: jax.Array, key: jax.Array) -> Minima:
    """Writes a key anywhere; with EMPTY, to the scratch row, nothing."""
    keys, lows, row, low, rest, outer, fresh, fresh_low = minima
    known = position < fresh
    mine = jnp.where(known, position >> BITS, row)
    seen = jnp.where(known, key, EMPTY)
    lows = _lower(lows, _first_node(keys) + mine, seen)
    # What is below all others comes next. So is its row's lowest key, and the row that
    # was next is one of the others.
    moves = seen < jnp.minimum(low, rest)
    other = jnp.where(moves, low, jnp.where(mine == row, EMPTY, seen))
    before = jnp.where(moves, row < mine, mine < row)
    own = jnp.where(moves | (mine == row), seen, EMPTY)
    rest = jnp.minimum(rest - (moves & before), other - before)
    near = mine >> BITS == row >> BITS
    far = jnp.minimum(outer, jnp.where(near, EMPTY, seen) - (mine < row))
    return Minima(
        write(keys, unsigned(position), key),
        lows,
        jnp.where(moves, mine, row),
        jnp.minimum(low, own),
        rest,
        jnp.where(moves, rest, far),
        fresh,
        jnp.where(known, fresh_low, jnp.minimum(fresh_low, key)),
    )


def ready(minima: Minima) -> jax.Array:
    """Whether no key anywhere is below `low`; if it may be, `settle` first."""
    return minima.low <= jnp.minimum(minima.rest, minima.fresh_low)


def pop_lowest(minima: Minima, stop, most) -> tuple[Minima, jax.Array, jax.Array]:
    """Takes out the lowest key before `stop`, up to `most` times if it is there again.

    Call it when `ready`. Returns how many left, possibly none, and where the first was,
    or -1. A later call goes on in the order of positions, then with the next key.
    """
    begin, lane = minima.row << BITS, lax.iota(jnp.int32, ROW)
    row, known = _row(minima.keys, minima.row), jnp.minimum(stop - begin, ROW)
    bits = jnp.sum(jnp.where(row <= minima.low, 1 << lane, 0))
    bits &= (1 << known) - 1
    count = lax.population_count(bits)

    def take(_, carry):
        keys, bits = carry
        keys = write(keys, unsigned(begin + _lowest_bit(bits)), EMPTY)
        return keys, bits & (bits - 1)

    def left():
        higher = (row > minima.low) & (lane < known)
        return jnp.min(jnp.where(higher, row, EMPTY))

    taken = jnp.minimum(count, most)
    keys, _ = lax.fori_loop(0, taken, take, (minima.keys, bits))
    low = lax.cond(count > most, lambda: minima.low, left)
    first = jnp.where(count > 0, begin + _lowest_bit(bits), -1)
    return minima._replace(keys=keys, low=low), taken, first


def _lowest_bit(bits: jax.Array) -> jax.Array:
    """Index of the lowest set bit; ROW or more if there is none."""
    return lax.population_count((bits - 1) & ~bits)


def settle(minima: Minima, stop: jax.Array) -> Minima:
    """Goes on until it is `ready`.

    There must be a key before `stop`, which must not fall from call to call.
    """

    def step(minima: Minima) -> Minima:
        due = minima.fresh_low < jnp.minimum(minima.low, minima.rest)
        return _search(_enter(minima, stop, due))

    return lax.while_loop(lambda minima: ~ready(minima), step, minima)


def _enter(minima: Minima, stop, due) -> Minima:
    """Enters the fresh keys before `stop`, if it is due."""
    first = minima.fresh >> BITS
    last = jnp.where(due, (stop - 1 >> BITS) + 1, first)

    def enter(r, carry):
        keys, lows, own, others = carry
        keys, low = _low_of_row(keys, r, stop)
        lows = _lower(lows, _first_node(keys) + r, low)
        mine = r == minima.row
        own = jnp.minimum(own, jnp.where(mine, low, EMPTY))
        return keys, lows, own, jnp.minimum(others, jnp.where(mine, EMPTY, low))

    keys, lows, low, others = lax.fori_loop(
        first, last, enter, (minima.keys, minima.lows, minima.low, jnp.int32(EMPTY))
    )
    return minima._replace(
        keys=keys,
        lows=lows,
        low=low,
        rest=jnp.minimum(minima.rest, others),
        outer=jnp.minimum(minima.outer, others),
        fresh=jnp.where(due, stop, minima.fresh),
        fresh_low=jnp.where(due, EMPTY, minima.fresh_low),
    )


def _search(minima: Minima) -> Minima:
    """Corrects the row's bound and goes to the first row with the lowest one."""
    base, bound = _first_node(minima.keys), minima.outer

    def up(carry):
        lows, node, low = carry
        lows, row = _read_row(write(lows, unsigned(node), low), node >> BITS)
        return lows, node >> BITS, jnp.min(row)

    def down(carry):
        lows, node, _, rest = carry
        lows, row = _read_row(lows, node)
        child, others = _first_lane(row, low)
        return lows, (node << BITS) + child, rest, jnp.minimum(rest, others)

    # Often it is a row under the same node.
    node = base + minima.row >> BITS
    lows = write(minima.lows, unsigned(base + minima.row), minima.low)
    lows, row = _read_row(lows, node)
    low = jnp.min(row)
    child, others = _first_lane(row, low)
    near = low <= bound
    # Else up, until a node has what is the lowest that there can be.
    lows, above, low = lax.while_loop(
        lambda carry: (carry[1] > 0) & (carry[2] > bound), up, (lows, node, low)
    )
    outside = jnp.where(near | (above > 0), bound, EMPTY - 1)
    lows, node, outer, rest = lax.while_loop(
        lambda carry: (carry[1] < base) & (low < EMPTY),
        down,
        (
            lows,
            jnp.where(near, (node << BITS) + child, above),
            outside,
            jnp.where(near, jnp.minimum(bound, others), outside),
        ),
    )
    return minima._replace(
        lows=lows, row=jnp.maximum(node - base, 0), low=low, rest=rest, outer=outer
    )


def _first_lane(row: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where `low` is first, or the last lane; and what leaves before the others."""
    lane = lax.iota(jnp.int32, ROW)
    first = jnp.min(jnp.where(row == low, lane, ROW - 1))
    others = jnp.where(lane == first, EMPTY, row - (lane < first))
    return first, jnp.min(others)


def _lower(lows: jax.Array, node, key) -> jax.Array:
    """Makes the bounds of a node and of those above at most `key`."""

    def up(carry):
        lows, node, _ = carry
        was = peek(lows, node)
        lows = write(lows, unsigned(node), jnp.minimum(was, key))
        return lows, node >> BITS, key < was

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
    return write(array, unsigned(r << BITS), row[0]), row


def _row(array: jax.Array, r) -> jax.Array:
    """`peek` for a row."""
    return lax.cond(
        r >= 0,
        lambda: lax.dynamic_slice(array, (unsigned(r << BITS),), (ROW,)),
        lambda: jnp.zeros(ROW, array.dtype),
    )


def unsigned(i: jax.Array) -> jax.Array:
    """An index in range, of which XLA need not ask whether it is negative."""
    return i.astype(jnp.uint32)
