"""Nearly the cheapest set, in the time of a sort, and how to mend a poor one."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from perc.select.bounds import fractional, ranking
from perc.select.items import Choice, Items, chosen, whole_need


def two_approximation(items: Items, need: ArrayLike) -> Choice:
    """At most twice the optimum, and never dearer than `greedy`.

    By ascending cost per byte, an item that leaves something to free is kept. One that
    would close the cover is not kept: it makes a candidate with those kept so far. The
    cheapest candidate wins. The first candidate is the greedy's.

    Args:
        items: n candidates.
        need: i32[], what to free; 0 or less takes nothing.

    Raises:
        InputError: for a need that is no whole number.

    Returns:
        A Choice; its `bound` is the linear relaxation, so `gap` may be far smaller than
        the factor of two. It may hold redundant items: see `drop_redundant`.

    Example:
        >>> from perc.select import greedy, items
        >>> sessions = items(size=[1, 1000], cost=[10, 9999])
        >>> [float(f(sessions, 1).cost) for f in (greedy, two_approximation)]
        [9999.0, 10.0]

    References:
        After Csirik, Frenk, Labbé and Zhang 1991; L7 of docs/theory.md.
    """
    return _two_approximation(items, whole_need(need, "two_approximation"))


@jax.jit
def _two_approximation(items: Items, need: ArrayLike) -> Choice:
    order = ranking(items)
    usable = jnp.asarray(items.evictable)[order]
    size, cost = jnp.asarray(items.size)[order], jnp.asarray(items.cost)[order]

    def offer(carry, item):
        left, paid = carry
        size, cost, usable = item
        keep = usable & (size < left)
        candidate = jnp.where(usable & (size >= left), paid + cost, jnp.inf)
        left, paid = jnp.where(keep, left - size, left), paid + jnp.where(keep, cost, 0)
        return (left, paid), (keep, candidate)

    start = jnp.asarray(need, jnp.int32), jnp.float32(0)
    _, (kept, candidate) = lax.scan(offer, start, (size, cost, usable))
    rank, best = jnp.arange(len(order)), jnp.argmin(candidate) if len(order) else 0
    by_rank = (kept & (rank < best)) | (rank == best)
    mask = jnp.zeros_like(usable).at[order].set(by_rank) & (jnp.asarray(need) > 0)
    return chosen(items, mask, need, bound=fractional(items, need).cost)


@jax.jit
def drop_redundant(items: Items, choice: Choice, need: ArrayLike) -> Choice:
    """Takes back what a choice does not need, dearest first.

    Not for forests: what is left need not be closed under descendants.

    Args:
        items: n candidates.
        choice: of these items for this need.
        need: i32[].

    Example:
        >>> from perc.select import greedy, items
        >>> sessions = items(size=[9, 10], cost=[0.9, 1.1])
        >>> choice = drop_redundant(sessions, greedy(sessions, 10), 10)
        >>> choice.mask.tolist()
        [False, True]
    """
    size, mask = jnp.asarray(items.size), jnp.asarray(choice.mask)
    order = jnp.argsort(-jnp.asarray(items.cost), stable=True)

    def consider(spare, item):
        size, inside = item
        drop = inside & (size <= spare)
        return spare - jnp.where(drop, size, 0), inside & ~drop

    spare = jnp.asarray(choice.freed - jnp.maximum(need, 0), jnp.int32)
    _, by_rank = lax.scan(consider, spare, (size[order], mask[order]))
    kept = jnp.zeros_like(mask).at[order].set(by_rank)
    mended = chosen(items, kept, need, bound=choice.bound)
    same = mended.freed == choice.freed
    return mended._replace(optimal_for=jnp.where(same, choice.optimal_for, 0))


@jax.jit
def cheapest_single(items: Items, need: ArrayLike) -> Choice:
    """The cheapest item that covers the need alone.

    If none does, `enough` is False and `bound` is inf, also where several together
    would.

    Example:
        >>> from perc.select import items
        >>> cheapest_single(items(size=[9, 10, 12], cost=[1, 3, 2]), 10).mask.tolist()
        [False, False, True]
    """
    covers = jnp.asarray(items.evictable) & (jnp.asarray(items.size) >= need)
    price = jnp.where(covers, items.cost, jnp.inf)
    best = jnp.argmin(price) if len(price) else 0
    mask = covers & (jnp.arange(len(price)) == best) & (jnp.asarray(need) > 0)
    bound = fractional(items, need).cost
    return chosen(items, mask, need, bound=bound, usable=covers)
