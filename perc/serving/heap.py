"""Keys of R items in a tournament, updated in place inside compiled loops.

The least key stands at the root; among equals the lowest item wins. To push is to set a
key, to remove is to set infinity. Both touch log2 R nodes. `perc/bitset.py` has the
rules that keep copies away.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek, write
from perc.floats import Array
from perc.shapes import bucket


class Heap(NamedTuple):
    """A binary tree of minima. Item i is leaf Q + i, node 1 the root."""

    nodes: Array  # f64[2Q], inf = not there; node 0 is unused
    least: Array  # f64[], the root's key, inf = empty


def build(keys: np.ndarray) -> Heap:
    """The heap of keys f64[R].

    >>> float(build(np.array([3.0, 1.0])).least)
    1.0
    """
    size = bucket(len(keys), smallest=2)
    nodes = np.full(2 * size, np.inf)
    nodes[size : size + len(keys)] = keys
    level = size
    while level > 1:
        pairs = nodes[level : 2 * level].reshape(-1, 2)
        nodes[level // 2 : level] = pairs.min(axis=1)
        level //= 2
    return Heap(nodes, nodes[1])


def put(heap: Heap, item: jax.Array, key: Array, wanted: Array = True) -> Heap:
    """Sets the key of an item, or changes nothing where it is not wanted."""
    leaf = jnp.where(wanted, heap.nodes.shape[0] // 2 + item, 1).astype(jnp.int32)

    def climb(carry):
        nodes, at, value = carry
        nodes = write(nodes, at, value)
        return nodes, at >> 1, jnp.minimum(value, peek(nodes, at ^ 1))

    nodes, _, least = lax.while_loop(
        lambda carry: carry[1] > 1, climb, (heap.nodes, leaf, key)
    )
    return Heap(nodes, jnp.where(wanted, least, heap.least))


def first(heap: Heap) -> jax.Array:
    """The item i32[] with the least key; the heap must not be empty."""
    size = heap.nodes.shape[0] // 2

    def descend(at):
        left = 2 * at
        return jnp.where(peek(heap.nodes, left) == heap.least, left, left + 1)

    leaf = lax.while_loop(lambda at: at < size, descend, jnp.int32(1))
    return leaf - size
