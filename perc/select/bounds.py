"""What no choice can beat: the linear relaxation and its dual.

    LP = sum of cost_i over the items before k  +  cost_k / size_k * left

k is the last item by ascending cost per byte, taken with `left` still to free.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.select.items import Items


class Cut(NamedTuple):
    """An eviction that may take a part of its last victim, such as a prompt's tail."""

    taken: jax.Array  # i32[n], how much of each item leaves
    cost: jax.Array  # f32[], in proportion to what leaves; inf if nothing is enough
    enough: jax.Array  # bool[]


def ranking(items: Items) -> jax.Array:
    """Indices i32[n] by ascending cost per byte; what may not leave comes last.

    Ties leave least recent first, then deepest first, then in the order given.
    """
    keep = ~jnp.asarray(items.evictable)
    density = items.cost / jnp.maximum(items.size, 1)
    depth = jnp.asarray(items.depth)
    return jnp.lexsort((-depth, items.last, density, keep))


@jax.jit
def fractional(items: Items, need: ArrayLike) -> Cut:
    """The optimum if the last victim may be cut: nothing cheaper frees the need.

    Its cost is a lower bound for whole items, since a whole item is one way to cut.

    Args:
        items: n candidates.
        need: i32[], what to free.

    Example:
        >>> from perc.select import items
        >>> cut = fractional(items(size=[1, 2], cost=[1, 3]), 2)
        >>> cut.taken.tolist(), float(cut.cost)
        ([1, 1], 2.5)

    References:
        Dantzig 1957; L1 of docs/theory.md.
    """
    order = ranking(items)
    size = jnp.where(items.evictable, items.size, 0)
    by_rank = size[order]
    before = jnp.cumsum(by_rank) - by_rank
    taken = jnp.zeros_like(size).at[order].set(jnp.clip(need - before, 0, by_rank))
    share = taken / jnp.maximum(size, 1)  # 1 exactly for a whole item
    enough = size.sum() >= need
    cost = jnp.where(enough, (items.cost * share).sum(), jnp.inf)
    return Cut(jnp.where(enough, taken, 0), cost, enough)


@jax.jit
def dual_bound(items: Items, need: ArrayLike, price: ArrayLike) -> jax.Array:
    """A lower bound from any price of a byte, without sorting or search.

        price * need - sum of max(0, price * size_i - cost_i)

    A market argument: at this price the set sells what it frees, and no set earns more
    than the items that are worth selling.

    Args:
        items: n candidates.
        need: i32[].
        price: f32[], cost per byte, 0 or more. The best is that of the greedy's last
            victim; then the bound equals the linear relaxation.

    Returns:
        f32[]. Any set that frees the need costs at least this much.

    Example:
        >>> from perc.select import items
        >>> float(dual_bound(items(size=[1, 2], cost=[1, 3]), 2, price=1.5))
        2.5

    References:
        L5 of docs/theory.md.
    """
    price = jnp.asarray(price, jnp.float32)
    profit = jnp.where(items.evictable, price * items.size - items.cost, 0)
    return price * need - jnp.maximum(profit, 0).sum()
