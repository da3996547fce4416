"""Greedy by cost per byte: the rule that every eviction queue follows.

density = cost / size;  evict in ascending order until the need is covered
"""

import jax
from jax.typing import ArrayLike

from perc.select.bounds import fractional
from perc.select.items import Choice, Items, chosen, whole_need


def greedy(items: Items, need: ArrayLike) -> Choice:
    """The shortest prefix of the ranking by cost per byte that covers the need.

    Not optimal in general, and not within any constant factor. It is optimal when all
    sizes are equal, and always for what it really frees (`optimal_for`). Otherwise it
    exceeds the optimum by less than the cost of its last victim: `bound` is the value
    of the linear relaxation, and `gap` is `cost_k * (1 - left / size_k)` of the last
    victim k, which was taken with `left` still to free.

    Args:
        items: n candidates; ties leave least recent first, then deepest, then in order.
        need: i32[], what to free; 0 or less takes nothing.

    Raises:
        InputError: for a need that is no whole number.

    Returns:
        A Choice: empty, with `enough` False, if nothing covers the need.

    Example:
        >>> from perc.select import items
        >>> choice = greedy(items(size=[1, 2], cost=[1, 3]), 2)
        >>> choice.mask.tolist(), float(choice.cost), float(choice.bound)
        ([True, True], 4.0, 2.5)

    References:
        Dantzig 1957, "Discrete-variable extremum problems", for the relaxation;
        lemmas L1 to L4 and L6 of docs/theory.md.
    """
    return _greedy(items, whole_need(need, "greedy"))


@jax.jit
def _greedy(items: Items, need: ArrayLike) -> Choice:
    cut = fractional(items, need)
    return chosen(items, cut.taken > 0, need, bound=cut.cost, optimal=True)
