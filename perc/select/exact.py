"""The optimum for whole items: a dynamic programme over the size still to free.

    f_i(j) = min(f_{i-1}(j), cost_i + f_{i-1}(max(j - size_i, 0)))

`f_i(j)` is the least cost at which the first i items free j or more.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.typing import ArrayLike

from perc.errors import InputError
from perc.select.items import Choice, Items, chosen, whole_need
from perc.shapes import bucket

MOST_CELLS = 2**28


def exact(items: Items, need: ArrayLike, *, most: int | None = None) -> Choice:
    """The cheapest set that covers the need, in O(n * need) time and bytes.

    It holds no redundant item. Costs are added in single precision, so that sets whose
    costs differ by rounding only are equal.

    Args:
        items: n candidates, sizes in units as large as they allow (blocks, not bytes).
        need: i32[], what to free; 0 or less takes nothing.
        most: no need is larger. To be given under `jit` and `vmap`, where the need is
            no number yet and cannot be checked: one that is larger is answered as if
            nothing were enough.

    Raises:
        InputError: for a need that is no whole number; if `most` is missing where it
            must be given or is below the need, or n * most is too large for a table.

    Example:
        Many instances in one call:

        >>> import functools, jax
        >>> from perc.select import items
        >>> batch = items(size=[[1, 2], [1, 2]], cost=[[1, 3], [4, 3]])
        >>> solve = jax.vmap(functools.partial(exact, most=4))
        >>> solve(batch, jax.numpy.array([2, 1])).cost.tolist()
        [3.0, 3.0]

    References:
        Bellman 1957; Csirik, Frenk, Labbé and Zhang 1991, "Heuristics for the 0-1
        min-knapsack problem", for the covering form.
    """
    need = whole_need(need, "exact")
    return _solve(items, need, most=table_width(need, most, np.shape(items.size)[-1]))


def table_width(need: Any, most: int | None, n: int) -> int:
    """Columns of the table: `most`, or the need rounded up so that programs are shared.

    Raises:
        InputError: see `exact`.
    """
    if isinstance(need, Tracer):
        if most is None:
            raise InputError("exact: inside jit or vmap, give most=, the largest need.")
    else:
        largest = int(np.max(need, initial=0))
        most = bucket(largest) if most is None else most
        if largest > most:
            raise InputError(f"exact: need {largest} is above most={most}. Raise most.")
    if max(n, 1) * (most + 1) > MOST_CELLS:
        raise InputError(
            f"exact: {n} items times a need of {most} are too many for a table. Use a "
            "larger unit, or two_approximation."
        )
    return most


@functools.partial(jax.jit, static_argnames="most")
def _solve(items: Items, need: jax.Array, most: int) -> Choice:
    need = jnp.asarray(need)
    possible = need <= most
    left = jnp.clip(need, 0, most)
    size = jnp.asarray(items.size)
    cost = jnp.where(items.evictable, items.cost, jnp.inf)
    column = jnp.arange(most + 1)

    def add(best, item):
        size, cost = item
        with_it = cost + best[jnp.maximum(column - size, 0)]
        return jnp.minimum(best, with_it), with_it < best

    start = jnp.where(column == 0, 0.0, jnp.inf)
    best, better = lax.scan(add, start, (size, cost))

    def trace_back(left, item):
        size, better = item
        take = better[left]
        return jnp.where(take, jnp.maximum(left - size, 0), left), take

    _, mask = lax.scan(trace_back, left, (size, better), reverse=True)
    usable = jnp.asarray(items.evictable) & possible
    return chosen(items, mask, need, bound=best[left], optimal=True, usable=usable)
