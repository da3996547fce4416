"""Tournaments side by side in one array: the lowest pair of each lies at its root.

A tournament over `size` leaves, a power of two, takes `size` rows. Its row n holds the
pairs (band, rank) of nodes 2n and 2n + 1; node 1 is the root, leaves begin at node
`size`, node 0 is nobody's. No two pairs that are not empty are equal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek

EMPTY = np.iinfo(np.int32).max  # the band of a leaf that is no candidate


class Lowest(NamedTuple):
    """The best candidate among several tournaments."""

    tree: jax.Array  # i32[], the tournament
    rank: jax.Array  # i32[]
    found: jax.Array  # bool[], False = all are empty


def set_leaf(forest: jax.Array, base, node, band, rank) -> jax.Array:
    """Writes a pair to a node of the tournament at row `base`; nothing to node 0.

    A change climbs towards the root until it changes nothing.
    """

    def climb(carry):
        forest, node, band, rank = carry
        row = peek(forest, base + (node >> 1))
        right = node & 1 == 1
        was, was_rank = _choose(right, row[2:], row[:2])
        beside, beside_rank = _choose(right, row[:2], row[2:])
        changed = (band != was) | (rank != was_rank)
        # The choice is void; it makes the write wait for the read.
        pair = jnp.where(changed, band, was), jnp.where(changed, rank, was_rank)
        place = base + (node >> 1), 2 * (node & 1)
        forest = lax.dynamic_update_slice(forest, jnp.stack(pair)[None], place)
        wins = (band < beside) | ((band == beside) & (rank < beside_rank))
        band = jnp.where(wins, band, beside)
        rank = jnp.where(wins, rank, beside_rank)
        return forest, jnp.where(changed, node >> 1, 0), band, rank

    carry = (forest, jnp.int32(node), jnp.int32(band), jnp.int32(rank))
    return lax.while_loop(lambda carry: carry[1] > 0, climb, carry)[0]


def lowest(forest: jax.Array, bases, first) -> Lowest:
    """The lowest pair of all roots; those of the trees that go `first` before others.

    Args:
        forest: the rows.
        bases: i32[G], the first row of each tournament.
        first: bool[G].
    """
    if bases.shape[0] == 1:
        root = peek(forest, bases[0])
        return Lowest(jnp.int32(0), root[3], root[2] < EMPTY)

    def consider(g, best):
        tree, turn, band, rank = best
        root = peek(forest, bases[g])
        own = jnp.where(root[2] == EMPTY, 2, jnp.where(first[g], 0, 1))
        same = own == turn
        lower = (root[2] < band) | ((root[2] == band) & (root[3] < rank))
        wins = (own < turn) | (same & lower)
        mine = (g, own, root[2], root[3])
        return tuple(jnp.where(wins, a, b) for a, b in zip(mine, best, strict=True))

    none = (jnp.int32(0), jnp.int32(2), jnp.int32(EMPTY), jnp.int32(EMPTY))
    tree, turn, _, rank = lax.fori_loop(0, bases.shape[0], consider, none)
    return Lowest(tree, rank, turn < 2)


def _choose(first: jax.Array, one: jax.Array, other: jax.Array):
    return jnp.where(first, one[0], other[0]), jnp.where(first, one[1], other[1])
