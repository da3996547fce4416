"""The default: exact where the table is small, bounded where it is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc import select
from perc.errors import InputError
from perc.shapes import bucket
from tests.select import brute
from tests.select.brute import NODES, columns, forests, instances, members, shape, size

many = settings(deadline=None, max_examples=60)


@many
@given(instances())
def test_exact_or_at_most_twice_the_optimum(instance):
    rows, need = instance
    best = brute.optimum(rows, need)
    exact = select.choose(columns(rows), need)
    fast = select.choose(columns(rows), need, cells=0)
    assert bool(exact.enough) == bool(fast.enough) == (best is not None)
    if best is not None:
        assert float(exact.cost) == best <= float(fast.cost) <= 2 * best
        chosen = members(fast.mask)
        assert all(size(rows, chosen - {i}) < need for i in chosen)


@many
@given(instances(most=NODES), st.data())
def test_closed_in_a_forest(instance, data):
    rows, need = instance
    parents = data.draw(forests(len(rows)))
    best = brute.optimum(rows, need, brute.closed_sets(parents))
    for cells in (10**6, 0):
        choice = select.choose(columns(rows), need, forest=shape(parents), cells=cells)
        assert bool(choice.enough) == (best is not None)
        assert brute.is_closed(parents, members(choice.mask))
        if best is not None and cells:
            assert float(choice.cost) == best


def test_large_needs():
    items = brute.plain([3, 4], [1, 2])
    for need in (8, 2**31, 2**40):
        choice = select.choose(items, need)
        assert not choice.enough and not choice.mask.any()
    assert select.choose(select.items([2**30], [1]), 2**30).enough


@pytest.mark.parametrize("cells", [0, 2**23])
def test_no_need_takes_nothing(cells):
    choice = select.choose(select.items([3, 4], [0, 2]), 0, cells=cells)
    assert choice.enough and not choice.mask.any()


@pytest.mark.parametrize("need", [-1, 1.5, "3", [1, 2]])
def test_needs_that_cannot_be(need):
    with pytest.raises(InputError, match="whole number"):
        select.choose(select.items([3], [1]), need)


def test_one_instance_at_a_time():
    with pytest.raises(InputError, match="one instance at a time"):
        select.choose(select.items([[1, 2], [1, 2]], [[1, 3], [4, 3]]), 1)


def test_a_table_beyond_the_limit_is_not_tried():
    many_items = select.items([1] * 2**13, [1] * 2**13)
    choice = select.choose(many_items, 2**13, cells=2**40)
    assert int(choice.freed) == 2**13
    assert select.choose(many_items, 1).optimal_for == 1


def test_cells_are_what_an_exact_table_may_have():
    """One too few, and the answer is the approximation's."""
    items, table = select.items([2, 3, 1], [2, 3, 1]), 3 * (bucket(4) + 1)
    assert float(select.choose(items, 4, cells=table).cost) == 4
    assert float(select.choose(items, 4, cells=table - 1).cost) == 5


def test_a_large_tree_is_quick_to_choose_from():
    """16,000 nodes: nothing of n * n is made."""
    n = 16_000
    chain = select.forest([i - 1 if i % 4 else -1 for i in range(n)])
    items = select.items([1] * n, [4] * n)
    for cells in (0, 2**23):
        choice = select.choose(items, 8, forest=chain, cells=cells)
        assert (int(choice.freed), float(choice.cost)) == (8, 32.0)
