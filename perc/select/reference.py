"""Reference semantics: how CachePilot chooses its victims. Not perc's default."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.select.bounds import fractional
from perc.select.items import Choice, Items, chosen


@jax.jit
def select_eviction_set(score: ArrayLike, items: Items, need: ArrayLike) -> Choice:
    """CachePilot's `select_eviction_set`: the shortest prefix of a ranking.

    Sessions leave by ascending score, ties in the order given, until their blocks cover
    the need; **all of them** if they do not suffice, `enough` being False; none if
    there are none. Known faults, kept on purpose: what `items` sets aside is not
    spared, so that sessions in use leave and the one that asks for room may be its own
    victim, and callers ask for the whole need although blocks are free.

    Args:
        score: f32[n]: PERC's score (cost per block), the last activity for LRU, or the
            length for "priority".
        items: n sessions; which of them are evictable is ignored.
        need: i32[], blocks to free.

    Example:
        >>> from perc.select import items
        >>> sessions = items(size=[1, 2, 3], cost=[1, 1, 1], refs=[1, 0, 0])
        >>> select_eviction_set([0.1, 0.2, 0.3], sessions, 2).mask.tolist()
        [True, True, False]
        >>> select_eviction_set([0.1, 0.2, 0.3], sessions, 9).mask.tolist()
        [True, True, True]

    References:
        aryanputta/cachepilot on GitHub, `eviction.py`.
    """
    items = items._replace(evictable=jnp.ones(jnp.shape(items.size), bool))
    size = jnp.asarray(items.size)
    order = jnp.argsort(jnp.asarray(score), stable=True)
    before = jnp.cumsum(size[order]) - size[order]
    mask = jnp.zeros(size.shape, bool).at[order].set(before < need)
    cut = fractional(items, need)
    most = jnp.minimum(need, size.sum())
    choice = chosen(items, mask, most, bound=cut.cost)
    return choice._replace(enough=cut.enough)
