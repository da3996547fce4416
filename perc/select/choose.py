"""perc's own default: the cheapest set where that can be known, a bounded one else."""

import numpy as np

from perc.errors import InputError
from perc.select.approximate import drop_redundant, two_approximation
from perc.select.closed import subtree_greedy
from perc.select.closed_exact import closed_exact
from perc.select.exact import MOST_CELLS, exact
from perc.select.forest import Forest
from perc.select.items import Choice, Items, whole_need
from perc.shapes import bucket

CELLS = 2**23  # some 10 ms of one core


def choose(
    items: Items, need: int, *, forest: Forest | None = None, cells: int = CELLS
) -> Choice:
    """Chooses what to evict, or says that nothing is enough and chooses nothing.

    The optimum, as long as the table of `exact` stays small. Otherwise
    `two_approximation` without its redundant items, or `subtree_greedy` in a forest.
    `optimal_for` and `gap` tell how good the choice is.

    Args:
        items: n candidates.
        need: what to free, usually a `shortfall`.
        forest: if given, a node leaves only with all its descendants.
        cells: the largest table, about n * need, that is solved exactly.

    Raises:
        InputError: for a need that is negative or not whole, a batch, or a forest that
            has not one node an item.

    Example:
        >>> from perc.select import items
        >>> sessions = items(size=[9, 1000, 10], cost=[0.09, 500, 6], requester=2)
        >>> choice = choose(sessions, 10)
        >>> choice.mask.tolist(), float(choice.cost)
        ([False, True, False], 500.0)
        >>> bool(choose(sessions, 2000).enough)
        False
    """
    need = whole_need(need, "choose")
    if need < 0:
        raise InputError(f"choose: need is {need}, must be a whole number, 0 or more.")
    if np.ndim(items.size) != 1:
        raise InputError("choose: one instance at a time; vmap exact(most=) for more.")
    table = max(np.shape(items.size)[-1], 1) * (bucket(need) + 1)
    small = table <= min(cells, MOST_CELLS)
    if forest is not None:
        if small:
            return closed_exact(items, forest, need)
        return subtree_greedy(items, forest, need)
    if small:
        return exact(items, need)
    return drop_redundant(items, two_approximation(items, need), need)
