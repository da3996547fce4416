"""CachePilot's rule, from its description."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perc import select
from tests.select.brute import members


def cachepilot(scores, blocks, need):
    """Ranks sessions, and takes them until the need is covered or none is left."""
    taken, freed = [], 0
    for i in sorted(range(len(scores)), key=lambda i: scores[i]):
        if freed >= need:
            break
        taken.append(i)
        freed += blocks[i]
    return frozenset(taken), freed


ROW = st.tuples(st.integers(0, 3), st.integers(1, 5))  # score, blocks


@settings(deadline=None, max_examples=100)
@given(st.lists(ROW, min_size=5, max_size=5), st.data())
def test_equals_the_rule(rows, data):
    need = data.draw(st.integers(0, 20))
    scores, blocks = [r[0] for r in rows], [r[1] for r in rows]
    items = select.items(blocks, [1] * len(rows), requester=0)
    choice = select.select_eviction_set(np.array(scores, float), items, need)
    expected, freed = cachepilot(scores, blocks, need)
    assert members(choice.mask) == expected
    assert int(choice.freed) == freed
    assert bool(choice.enough) == (freed >= need)


def test_equal_scores_leave_in_the_order_given():
    """So many that an unstable sort would mix them."""
    scores, blocks = [i % 3 for i in range(200)], [1] * 200
    choice = select.select_eviction_set(scores, select.items(blocks, blocks), 90)
    assert members(choice.mask) == cachepilot(scores, blocks, 90)[0]


def test_vectors():
    items = select.items([1, 2, 3], [1, 1, 1])
    choice = select.select_eviction_set([0.0, 1.0, 2.0], items, 2)
    assert members(choice.mask) == {0, 1}
    none = select.items([], [])
    assert members(select.select_eviction_set(np.zeros(0), none, 5).mask) == set()


def test_cost_and_bound_are_those_of_the_items():
    items = select.items([9, 10], [0.9, 1.1])
    choice = select.select_eviction_set(items.cost / items.size, items, 10)
    greedy = select.greedy(items, 10)
    assert members(choice.mask) == members(greedy.mask)
    assert float(choice.cost) == float(greedy.cost)
    assert float(choice.bound) == float(greedy.bound)
    assert not choice.optimal_for  # a ranking by anything proves nothing
