"""What is set aside before any key is looked at; properties 2 and 4 of the theory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc import select
from perc.errors import InputError
from tests.select import brute
from tests.select.brute import N, columns, instances, members, plain, size

many = settings(deadline=None, max_examples=50)
FLAT = {
    "greedy": select.greedy,
    "exact": select.exact,
    "two_approximation": select.two_approximation,
    "choose": select.choose,
}
CLOSED = {
    "leaf_greedy": select.leaf_greedy,
    "subtree_greedy": select.subtree_greedy,
    "closed_exact": select.closed_exact,
    "choose": lambda items, tree, need: select.choose(items, need, forest=tree),
}


def columns_of(rows, held):
    return columns(rows, refs=[h == 1 for h in held], pinned=[h == 2 for h in held])


@pytest.mark.parametrize("rule", FLAT.values(), ids=FLAT)
@many
@given(instances(), st.data())
def test_held_items_are_neither_chosen_nor_change_the_choice(rule, instance, data):
    rows, need = instance
    marks = st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    held = data.draw(marks)
    free = [row for row, mark in zip(rows, held, strict=True) if not mark]
    choice = rule(columns_of(rows, held), need)
    without = rule(columns(free), need)
    names = [i for i, mark in enumerate(held) if not mark]
    assert members(choice.mask) == {names[i] for i in members(without.mask)}
    assert bool(choice.enough) == (sum(row[0] for row in free) >= need)
    assert int(choice.freed) >= need if choice.enough else int(choice.freed) == 0


@pytest.mark.parametrize("rule", CLOSED.values(), ids=CLOSED)
@many
@given(instances(most=brute.NODES), st.data())
def test_a_held_node_holds_its_ancestors(rule, instance, data):
    rows, need = instance
    parents = data.draw(brute.forests(len(rows)))
    marks = st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    held = data.draw(marks)
    choice = rule(columns_of(rows, held), brute.shape(parents), need)
    allowed = [s for s in brute.closed_sets(parents) if all(held[i] == 0 for i in s)]
    assert bool(choice.enough) == any(size(rows, s) >= need for s in allowed)
    if choice.enough:
        assert members(choice.mask) in allowed
        assert size(rows, members(choice.mask)) == int(choice.freed) >= need
    else:
        assert not choice.mask.any()


def test_what_is_not_evictable():
    items = select.items(
        [1] * 5,
        [1] * 5,
        refs=[1, 0, 0, 0, 0],
        pinned=[False, True, False, False, False],
        ready=[True, True, False, True, True],
        requester=3,
    )
    assert items.evictable.tolist() == [False, False, False, False, True]
    batch = select.items([[1, 1]] * 2, [[1, 1]] * 2, requester=[0, 1])
    assert batch.evictable.tolist() == [[False, True], [True, False]]


def test_only_the_shortfall_leaves():
    assert int(select.shortfall(10, 4)) == 6
    assert select.shortfall([10, 3], 4).tolist() == [6, 0]
    nothing = select.greedy(plain([3, 4], [1, 1]), select.shortfall(3, 4))
    assert nothing.enough and not nothing.mask.any() and nothing.cost == 0


@pytest.mark.parametrize("rule", FLAT.values(), ids=FLAT)
def test_no_need_and_no_items(rule):
    nothing = rule(plain([3, 4], [1, 2]), 0)
    assert nothing.enough and not nothing.mask.any() and float(nothing.gap) == 0
    none = select.items([], [])
    assert rule(none, 0).enough and not rule(none, 1).enough


@pytest.mark.parametrize("rule", CLOSED.values(), ids=CLOSED)
def test_no_need_and_no_nodes(rule):
    nothing = rule(plain([3, 4], [1, 2]), brute.shape([None, 0]), 0)
    assert nothing.enough and not nothing.mask.any() and float(nothing.gap) == 0
    none, empty = select.items([], []), select.forest([])
    assert rule(none, empty, 0).enough and not rule(none, empty, 1).enough


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(size=[0], cost=[1]), "size 0, must be whole and above 0"),
        (dict(size=[1.5], cost=[1]), "size 1.5"),
        (dict(size=[np.nan], cost=[1]), "size nan"),
        (dict(size=[-1], cost=[1], pinned=[True]), "size -1"),
        (dict(size=[2**30, 2**30], cost=[1, 1]), "larger unit"),
        (dict(size=[1], cost=[-1.0]), "cost -1.0, must be 0 or more"),
        (dict(size=[1], cost=[np.nan]), "cost nan"),
        (dict(size=[1], cost=[np.inf]), "cost inf"),
        (dict(size=[1, 2], cost=[1, 2, 3]), "give each item one value"),
        (dict(size=1, cost=1), "give lists"),
        (dict(size=[1], cost=[1], requester=1), "requester is 1"),
        (dict(size=[1], cost=[1], requester=-1), "requester is -1"),
    ],
)
def test_bad_items_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        select.items(**arguments)


def test_rows_are_padded_with_what_is_not_evictable():
    padded = select.items([2, 0], [1, 0], ready=[True, False])
    assert members(select.exact(padded, 2).mask) == {0}
    assert len(columns([(1, 1, 0, 0)]).size) == N


@pytest.mark.parametrize("rule", [*FLAT.values()], ids=FLAT)
@pytest.mark.parametrize("need", [2.5, float("nan"), None, "3", [2, 3]])
def test_a_need_that_is_no_whole_number_is_refused(rule, need):
    with pytest.raises(InputError, match="need is .*, must be a whole number"):
        rule(plain([3, 4], [1, 2]), need)


@pytest.mark.parametrize("rule", [*CLOSED.values()], ids=CLOSED)
def test_a_forest_has_one_node_an_item(rule):
    for nodes in ([], [-1], [-1, -1, -1]):
        with pytest.raises(InputError, match="2 items in a forest of"):
            rule(select.items([3, 4], [1, 2]), select.forest(nodes), 5)


@pytest.mark.parametrize("rule", [select.greedy, select.two_approximation])
def test_needs_beyond_32_bits_are_not_enough(rule):
    assert not rule(plain([3, 4], [1, 2]), 2**31).enough


@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(size=[1, 1], cost=[3e38, 3e38]), "the costs sum to"),
        (dict(size=[1, 1], cost=["a", "b"]), "cost must be numbers"),
        (dict(size=[1, [1, 2]], cost=1), "rows of different lengths"),
        (dict(size=[1], cost=[1], last=2**40), "last must be whole numbers below 2"),
        (dict(size=[1], cost=[1], last=[float("nan")]), "last must be whole numbers"),
        (dict(size=[1], cost=[1], depth=[1.5]), "depth must be whole numbers"),
        (dict(size=[1, 1], cost=[1, 1], requester=[0, 1]), "requester has shape"),
    ],
)
def test_columns_that_cannot_be(wrong, words):
    with pytest.raises(InputError, match=words):
        select.items(**wrong)
