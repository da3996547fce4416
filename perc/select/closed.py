"""Prefix trees: a node leaves with all its descendants, or not at all.

A cached block is of use only below its cached parent, so what leaves must be closed
under descendants. Such a set is a union of whole subtrees.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from perc.select.bounds import fractional
from perc.select.forest import Forest, check_fit
from perc.select.greedy import greedy
from perc.select.items import Choice, Items, chosen, whole_need
from perc.types import Array


def subtree_greedy(items: Items, forest: Forest, need: ArrayLike) -> Choice:
    """Evicts the whole subtree of least cost per byte until the need is covered.

    Optimal for what it really frees (`optimal_for`); otherwise it exceeds the optimum
    by less than the cost of the last subtree. At most n steps of O(n) work.

    Args:
        items: n nodes. One that is not evictable holds its ancestors in place too.
        forest: how the nodes hang together; its depths are used, not those of `items`.
        need: i32[], what to free; 0 or less takes nothing.

    Returns:
        A Choice, closed under descendants. `bound` holds for closed sets only.

    Example:
        A root of cost 5, and one of cost 3 below which hangs a node of cost 6:

        >>> from perc.select import forest, items
        >>> nodes, shape = items(size=[1, 1, 1], cost=[5, 3, 6]), forest([-1, -1, 1])
        >>> subtree_greedy(nodes, shape, 2).mask.tolist()
        [False, True, True]
        >>> leaf_greedy(nodes, shape, 2).mask.tolist()
        [True, False, True]

    References:
        Horn 1972, "Single-machine job sequencing with treelike precedence ordering and
        linear delay penalties", for the order; L8 of docs/theory.md.
    """
    return _checked(items, forest, need, "subtree_greedy", whole=True)


def leaf_greedy(items: Items, forest: Forest, need: ArrayLike) -> Choice:
    """Evicts the leaf of least cost per byte until the need is covered, as engines do.

    Optimal if all sizes are equal and no child costs more than its parent; then closure
    costs nothing. Otherwise there is no constant ratio: a cheap parent may hide behind
    a dear leaf.

    Args:
        items: n nodes. One that is not evictable holds its ancestors in place too.
        forest: how the nodes hang together; its depths are used, not those of `items`.
        need: i32[], what to free; 0 or less takes nothing.

    Returns:
        A Choice, closed under descendants. `bound` is that of the linear relaxation
        without closure.

    Example:
        See `subtree_greedy`.

    References:
        L8 of docs/theory.md.
    """
    return _checked(items, forest, need, "leaf_greedy", whole=False)


def _checked(
    items: Items, forest: Forest, need: ArrayLike, rule: str, *, whole: bool
) -> Choice:
    check_fit(forest, np.shape(items.size)[-1], rule)
    return _greedy(items, forest, whole_need(need, rule), whole=whole)


def by_place(items: Items, forest: Forest) -> tuple[Items, jax.Array]:
    """Nodes in pre-order, and which of them may leave: bool[n], with their subtrees."""
    row = Items(*(jnp.asarray(column)[forest.order] for column in items))
    row = row._replace(depth=jnp.asarray(forest.depth))
    held = subtree_sums(~jnp.asarray(row.evictable), forest.nodes)
    return row, held == 0


def by_node(mask: jax.Array, forest: Forest) -> jax.Array:
    """A mask by place as a mask by node."""
    return jnp.zeros_like(mask).at[forest.order].set(mask)


def subtree_sums(column: Array, nodes: ArrayLike) -> jax.Array:
    """Whole numbers i32[n] summed over each subtree."""
    total = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(jnp.int32(column))])
    place = jnp.arange(len(column))
    return total[place + nodes] - total[place]


def subtree_costs(cost: Array, depth: Array) -> jax.Array:
    """Costs f32[n] summed over each subtree, children first.

    Not by differences of running sums, which would round.
    """

    def add(waiting, node):  # by depth: what hangs below the next node above
        cost, depth = node
        total = cost + waiting[depth + 1]
        return waiting.at[depth + 1].set(0).at[depth].add(total), total

    waiting = jnp.zeros(len(cost) + 2, jnp.float32)
    return lax.scan(add, waiting, (cost, depth), reverse=True)[1]


@functools.partial(jax.jit, static_argnames="whole")
def _greedy(items: Items, forest: Forest, need: ArrayLike, whole: bool) -> Choice:
    if not len(forest.nodes):
        return greedy(items, need)
    row, usable = by_place(items, forest)
    place = jnp.arange(len(usable))
    nodes = jnp.asarray(forest.nodes)
    ties = jnp.lexsort((forest.order, -row.depth, row.last))
    tie = jnp.zeros_like(place).at[ties].set(place)

    def unfinished(carry):
        left, freed, _, _ = carry
        return (freed < need) & (usable & left).any()

    def evict(carry):
        left, freed, paid, _ = carry
        size = subtree_sums(jnp.where(left, row.size, 0), nodes)
        cost = subtree_costs(jnp.where(left, row.cost, 0), row.depth)
        candidate = usable & left
        if not whole:  # a leaf has nothing left below it
            candidate &= subtree_sums(left, nodes) == 1
        density = jnp.where(candidate, cost / jnp.maximum(size, 1), jnp.inf)
        # Some candidate in any case, for unchecked costs may be NaN: no endless loop.
        least = candidate & ~(density > density.min())
        victim = jnp.argmin(jnp.where(least, tie, len(tie)))
        bound = paid + density[victim] * jnp.minimum(need - freed, size[victim])
        left = left & ((place < victim) | (place >= victim + nodes[victim]))
        return left, freed + size[victim], paid + cost[victim], bound

    start = jnp.ones_like(usable), jnp.int32(0), jnp.float32(0), jnp.float32(0)
    left, _, _, bound = lax.while_loop(unfinished, evict, start)
    if not whole:
        open_to_all = row._replace(evictable=usable)
        bound = fractional(open_to_all, need).cost
    return chosen(
        items,
        by_node(~left, forest),
        need,
        bound=bound,
        optimal=whole,
        usable=by_node(usable, forest),
    )
