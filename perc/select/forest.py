"""Prefix trees for selection: nodes in pre-order, so that a subtree is an interval."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from perc.errors import InputError
from perc.types import Array


class Forest(NamedTuple):
    """The shape of one or more prefix trees of n nodes. `forest` builds and checks it.

    The subtree at place p, its root included, takes the places from p to
    `p + nodes[p] - 1`.
    """

    order: Array  # i32[n], node at each place: roots before their descendants
    nodes: Array  # i32[n], by place: nodes of the subtree
    depth: Array  # i32[n], by place: 0 = root


def check_fit(forest: Forest, n: int, rule: str) -> None:
    """Asks for one item a node.

    Raises:
        InputError: otherwise.
    """
    if len(forest.nodes) != n:
        raise InputError(f"{rule}: {n} items in a forest of {len(forest.nodes)} nodes.")


def forest(parent: ArrayLike) -> Forest:
    """Lays trees out from the parent of each node.

    Args:
        parent: i32[n], index of the node's parent, -1 for a root. Any order.

    Raises:
        InputError: for a parent out of range, or nodes that are their own ancestors.

    Example:
        >>> shape = forest([-1, 2, -1, 2])
        >>> shape.order.tolist(), shape.nodes.tolist(), shape.depth.tolist()
        ([0, 2, 1, 3], [1, 3, 1, 1], [0, 0, 1, 1])
    """
    above = np.asarray(parent)
    if above.ndim != 1 or (above.size and above.dtype.kind not in "iu"):
        raise InputError("forest: parent must be a list of whole numbers, one a node.")
    n = len(above)
    if ((above < -1) | (above >= n)).any():
        wrong = above[(above < -1) | (above >= n)][0]
        raise InputError(
            f"forest: parent {wrong} of {n} nodes; give an index, or -1 for a root."
        )
    children: list[list[int]] = [[] for _ in range(n + 1)]
    for node, up in enumerate(above.tolist()):
        children[up].append(node)  # those of -1, the roots, come last
    order, depth, nodes = [], [], np.ones(n, np.int32)
    waiting = [(root, 0) for root in reversed(children[n])]
    while waiting:
        node, level = waiting.pop()
        order.append(node)
        depth.append(level)
        waiting += [(child, level + 1) for child in reversed(children[node])]
    if len(order) < n:
        lost = min(set(range(n)) - set(order))
        raise InputError(f"forest: node {lost} is its own ancestor, or below one.")
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    for node in reversed(order):
        if above[node] >= 0:
            nodes[place[above[node]]] += nodes[place[node]]
    return Forest(np.array(order, np.int32), nodes, np.array(depth, np.int32))
