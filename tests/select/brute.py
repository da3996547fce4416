"""Selection in plain Python and exact fractions: every subset, and the rules as said.

An instance is a list of rows (size, cost, last, depth) and a need. A set is a frozenset
of indices. Forests are lists of parents, None for a root.
"""

from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import strategies as st

from perc import select

N = 9  # items that Hypothesis draws at most; fewer are padded, to compile once
NODES = 7  # of a tree that Hypothesis draws, at most
SIZES = st.integers(1, 7)


@st.composite
def instances(draw, most=N, sizes=SIZES):
    """Rows and a need of at most their total size and a bit more."""
    tie = st.integers(0, 2)
    row = st.tuples(sizes, st.integers(0, 9), tie, tie)
    rows = draw(st.lists(row, min_size=1, max_size=most))
    return rows, draw(st.integers(1, sum(size for size, *_ in rows) + 2))


@st.composite
def forests(draw, n):
    """Parents of n nodes, numbered in any order."""
    above = [draw(st.integers(-1, i - 1)) for i in range(n)]
    names = draw(st.permutations(range(n)))
    parents = [None] * n
    for i, up in enumerate(above):
        parents[names[i]] = None if up < 0 else names[up]
    return parents


def columns(rows, width=N, **held):
    """The rows as `Items`, padded with items that are not evictable."""
    padding = [(1, 0, 0, 0)] * (width - len(rows))
    size, cost, last, depth = np.array([*rows, *padding]).T
    ready = np.arange(width) < len(rows)
    held = {name: [*column, *[0] * len(padding)] for name, column in held.items()}
    return select.items(size, cost, last=last, depth=depth, ready=ready, **held)


def plain(sizes, costs):
    """Rows without ties to break, padded as all others."""
    return columns([(s, c, 0, 0) for s, c in zip(sizes, costs, strict=True)])


def shape(parents, width=N):
    """The parents as a `Forest`, padded with roots."""
    above = [-1 if up is None else up for up in parents]
    return select.forest(above + [-1] * (width - len(parents)))


def members(mask):
    """A mask as a frozenset."""
    return frozenset(np.flatnonzero(mask).tolist())


def size(rows, chosen):
    return sum(rows[i][0] for i in chosen)


def cost(rows, chosen):
    return sum(rows[i][1] for i in chosen)


def density(rows, chosen):
    return Fraction(cost(rows, chosen), size(rows, chosen))


def subsets(n):
    for k in range(n + 1):
        yield from map(frozenset, combinations(range(n), k))


def optimum(rows, need, sets=None) -> Any:
    """Least cost of a set that frees the need, None if none does."""
    sets = subsets(len(rows)) if sets is None else sets
    found = [cost(rows, chosen) for chosen in sets if size(rows, chosen) >= need]
    return min(found, default=None)


def ranking(rows):
    """Cost per byte, least recent, deepest, in order."""

    def key(i):
        size, cost, last, depth = rows[i]
        return Fraction(cost, size), last, -depth, i

    return sorted(range(len(rows)), key=key)


def greedy(rows, need) -> Any:
    """The items taken in order, None if they are not enough."""
    taken = []
    for i in ranking(rows):
        if size(rows, taken) >= need:
            return taken
        taken.append(i)
    return taken if size(rows, taken) >= need else None


def relaxation(rows, need):
    """The greedy's cost if the last item may be cut."""
    *whole, last = greedy(rows, need)
    left = need - size(rows, whole)
    return cost(rows, whole) + Fraction(rows[last][1], rows[last][0]) * left


def two_approximation(rows, need):
    """Keep what leaves a need; what would close the cover makes a candidate."""
    kept, candidates = [], []
    for i in ranking(rows):
        if size(rows, [*kept, i]) < need:
            kept.append(i)
        else:
            candidates.append([*kept, i])
    return min(candidates, key=lambda chosen: cost(rows, chosen))


def children(parents, i):
    return [j for j, up in enumerate(parents) if up == i]


def is_closed(parents, chosen):
    """Whoever leaves takes all descendants along."""
    return all(j in chosen for i in chosen for j in children(parents, i))


def closed_sets(parents):
    return [s for s in subsets(len(parents)) if is_closed(parents, s)]


def depth_of(parents, i):
    return 0 if parents[i] is None else 1 + depth_of(parents, parents[i])


def leaf_greedy(rows, parents, need):
    """The leaf of least cost per byte, until the need is freed or nothing is left."""
    gone = frozenset()
    while size(rows, gone) < need and len(gone) < len(rows):
        leaves = [
            i
            for i in range(len(rows))
            if i not in gone and all(j in gone for j in children(parents, i))
        ]
        gone |= {
            min(
                leaves,
                key=lambda i: (
                    density(rows, [i]),
                    rows[i][2],
                    -depth_of(parents, i),
                    i,
                ),
            )
        }
    return gone


def least_dense_closed(rows, parents, gone):
    """The least cost per byte that any closed set of what is left has."""
    return min(
        density(rows, s - gone)
        for s in closed_sets(parents)
        if s > gone  # what left before is closed too
    )
