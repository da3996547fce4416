"""Equal entries of a column: what came before each, from one sort."""

from typing import NamedTuple

import numpy as np


class Groups(NamedTuple):
    """Entries of a column sorted by value, equal ones in their own order."""

    order: np.ndarray  # i64[N], index of each sorted entry
    opens: np.ndarray  # bool[N], the sorted entry is the first of its value
    begin: np.ndarray  # i64[N], where in the sorted order its value begins


def group_by(key: np.ndarray) -> Groups:
    """Groups equal entries of a column [N]."""
    order = np.argsort(key, kind="stable")
    opens = np.ones(len(key), bool)
    opens[1:] = key[order[1:]] != key[order[:-1]]
    begin = np.maximum.accumulate(np.where(opens, np.arange(len(key)), 0))
    return Groups(order, opens, begin)


def count_before(groups: Groups) -> np.ndarray:
    """How many earlier entries are equal to each, i64[N]."""
    return _unsorted(groups, np.arange(len(groups.order)) - groups.begin)


def last_before(groups: Groups) -> np.ndarray:
    """Index i64[N] of the last earlier entry equal to each, -1 = none."""
    above = np.append(-1, groups.order)[: len(groups.order)]
    return _unsorted(groups, np.where(groups.opens, -1, above))


def first_equal(groups: Groups) -> np.ndarray:
    """Index i64[N] of the first entry equal to each: itself, or an earlier one."""
    return _unsorted(groups, groups.order[groups.begin])


def distinct_so_far(groups: Groups, label: np.ndarray) -> np.ndarray:
    """Distinct labels among the entries equal to each, up to it, i64[N].

    Args:
        groups: of N entries.
        label: [N], integers from 0 on.
    """
    mine = label[groups.order].astype(np.int64)
    # Where the label changes it may be new; an entry like the one above it is not.
    changes = groups.opens.copy()
    changes[1:] |= mine[1:] != mine[:-1]
    at = np.flatnonzero(changes)
    pair = groups.begin[at] * (mine.max(initial=0) + 1) + mine[at]
    new = np.zeros(len(mine), np.int64)
    new[at[np.unique(pair, return_index=True)[1]]] = 1
    running = np.cumsum(new)
    return _unsorted(groups, running - running[groups.begin] + 1)


def _unsorted(groups: Groups, values: np.ndarray) -> np.ndarray:
    found = np.empty(len(values), np.int64)
    found[groups.order] = values
    return found
