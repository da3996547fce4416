"""The optimum for prefix trees: a dynamic programme along the pre-order.

    f_p(j) = min(f_{p+1}(j), cost of subtree p + f_{p+nodes_p}(max(j - its size, 0)))

`f_p(j)` is the least cost at which places p and later free j or more: either p stays,
and its children decide for themselves, or its whole subtree leaves.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from perc.select.closed import by_node, by_place, subtree_costs, subtree_sums
from perc.select.exact import table_width
from perc.select.forest import Forest, check_fit
from perc.select.greedy import greedy
from perc.select.items import Choice, Items, chosen, whole_need


def closed_exact(
    items: Items, forest: Forest, need: ArrayLike, *, most: int | None = None
) -> Choice:
    """The cheapest set that covers the need and is closed under descendants.

    Takes O(n * need) time and 4 bytes a cell, which suits small trees and needs.

    Args:
        items: n nodes. One that is not evictable holds its ancestors in place too.
        forest: how the nodes hang together.
        need: i32[], what to free; 0 or less takes nothing.
        most: no need is larger; to be given under `jit` and `vmap`, see `exact`.

    Raises:
        InputError: as `exact`, and if there is not one item a node.

    Example:
        >>> from perc.select import forest, items
        >>> nodes, shape = items(size=[1, 1, 1], cost=[5, 3, 6]), forest([-1, -1, 1])
        >>> choice = closed_exact(nodes, shape, 2)
        >>> choice.mask.tolist(), float(choice.cost)
        ([False, True, True], 9.0)

    References:
        Johnson and Niemi 1983, "On knapsacks, partitions, and a new dynamic programming
        technique for trees", whose left-right order this is.
    """
    check_fit(forest, np.shape(items.size)[-1], "closed_exact")
    need = whole_need(need, "closed_exact")
    width = table_width(need, most, np.shape(items.size)[-1])
    return _solve(items, forest, need, most=width)


@functools.partial(jax.jit, static_argnames="most")
def _solve(items: Items, forest: Forest, need: jax.Array, most: int) -> Choice:
    if not len(forest.nodes):
        return greedy(items, need)
    need = jnp.asarray(need)
    row, usable = by_place(items, forest)
    nodes = jnp.asarray(forest.nodes)
    n, column = len(usable), jnp.arange(most + 1)
    place = jnp.arange(n)
    size = subtree_sums(row.size, nodes)
    cost = jnp.where(usable, subtree_costs(row.cost, row.depth), jnp.inf)

    def fill(back, table):
        p = n - 1 - back
        without = cost[p] + table[p + nodes[p]][jnp.maximum(column - size[p], 0)]
        return table.at[p].set(jnp.minimum(table[p + 1], without))

    table = jnp.full((n + 1, most + 1), jnp.inf).at[:, 0].set(0.0)
    table = lax.fori_loop(0, n, fill, table)

    def unfinished(carry):
        p, left, _ = carry
        return (p < n) & (left > 0)

    def trace_back(carry):
        p, left, mask = carry
        stays = table[p][left] == table[p + 1][left]
        inside = (place >= p) & (place < p + nodes[p])
        gone = (
            p + nodes[p],
            jnp.maximum(left - size[p], 0),
            mask | inside,
        )
        return jax.tree.map(
            lambda a, b: jnp.where(stays, a, b), (p + 1, left, mask), gone
        )

    left = jnp.clip(need, 0, most)
    start = jnp.int32(0), left, jnp.zeros(n, bool)
    _, _, mask = lax.while_loop(unfinished, trace_back, start)
    return chosen(
        items,
        by_node(mask, forest),
        need,
        bound=table[0][left],
        optimal=True,
        usable=by_node(usable, forest) & (need <= most),
    )
