"""Which set to evict, when items differ in size and cost.

One eviction is a covering problem: of items with a size and an expected loss, choose a
set that frees the need and loses least. It is NP-hard, and cost per byte alone may be
far from the optimum. `docs/theory.md` says what is proved of each rule.

    choose               the default: exact where that fits, else at most twice the best
    greedy               the shortest prefix by cost per byte, and how far off it may be
    two_approximation    at most twice the optimum, and never dearer than `greedy`
    exact                the optimum, a dynamic programme over whole units
    subtree_greedy       for prefix trees: the whole subtree of least cost per byte
    leaf_greedy          for prefix trees: the leaf of least cost per byte
    closed_exact         for prefix trees: the optimum
    select_eviction_set  CachePilot's rule, as a reference

All but `choose` are compiled, and `jax.vmap` runs many instances in one call.

>>> from perc import select
>>> sessions = select.items(size=[9, 10], cost=[0.9, 1.1])
>>> select.greedy(sessions, 10).mask.tolist()  # the cheaper per byte, then the rest
[True, True]
>>> select.choose(sessions, 10).mask.tolist()
[False, True]
"""

from perc.select.approximate import cheapest_single, drop_redundant, two_approximation
from perc.select.bounds import Cut, dual_bound, fractional
from perc.select.choose import choose
from perc.select.closed import leaf_greedy, subtree_greedy
from perc.select.closed_exact import closed_exact
from perc.select.exact import exact
from perc.select.forest import Forest, forest
from perc.select.greedy import greedy
from perc.select.items import Choice, Items, items, shortfall
from perc.select.reference import select_eviction_set

__all__ = [
    "Choice",
    "Cut",
    "Forest",
    "Items",
    "cheapest_single",
    "choose",
    "closed_exact",
    "drop_redundant",
    "dual_bound",
    "exact",
    "forest",
    "fractional",
    "greedy",
    "items",
    "leaf_greedy",
    "select_eviction_set",
    "shortfall",
    "subtree_greedy",
    "two_approximation",
]
