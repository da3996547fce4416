"""The dynamic programme against every subset."""

import functools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings

from perc import select
from perc.errors import InputError
from perc.select.exact import _solve, table_width
from tests.select import brute
from tests.select.brute import columns, cost, instances, members, size

many = settings(deadline=None, max_examples=100)


@many
@given(instances())
def test_equals_the_best_of_all_subsets(instance):
    rows, need = instance
    choice = select.exact(columns(rows), need)
    best = brute.optimum(rows, need)
    assert bool(choice.enough) == (best is not None)
    if best is None:
        assert not choice.mask.any() and not choice.freed and not choice.cost
        assert float(choice.bound) == float(choice.gap) == np.inf
        return
    chosen = members(choice.mask)
    assert size(rows, chosen) == int(choice.freed) >= need
    assert cost(rows, chosen) == float(choice.cost) == float(choice.bound) == best
    assert brute.optimum(rows, int(choice.optimal_for)) == best


@many
@given(instances())
def test_holds_nothing_redundant(instance):
    rows, need = instance
    chosen = members(select.exact(columns(rows), need).mask)
    assert all(size(rows, chosen - {i}) < need for i in chosen)


def test_many_instances_in_one_call():
    random = np.random.default_rng(0)
    sizes, costs = random.integers(1, 9, (2, 40, brute.N))
    needs = random.integers(0, sizes.sum(axis=1) + 3)
    batch = select.items(sizes, costs)
    solve = jax.jit(jax.vmap(functools.partial(select.exact, most=80)))
    found = solve(batch, needs)
    for i, need in enumerate(needs.tolist()):
        one = select.exact(jax.tree.map(lambda x, i=i: x[i], batch), need)
        assert float(found.cost[i]) == float(one.cost)
        assert found.mask[i].tolist() == one.mask.tolist()


def test_tables_are_checked():
    items = select.items([1, 2], [1, 1])
    with pytest.raises(InputError, match="give most="):
        jax.jit(select.exact)(items, 1)
    with pytest.raises(InputError, match="need 9 is above most=4"):
        select.exact(items, 9, most=4)
    with pytest.raises(InputError, match="larger unit"):
        select.exact(items, 2**28)
    traced = jax.jit(functools.partial(select.exact, most=1))(items, 2)
    assert not traced.enough and not traced.mask.any()


def test_needs_of_one_bucket_share_a_program():
    program: Any = _solve
    items = brute.plain([5, 6, 7], [1, 2, 3])
    select.exact(items, 3)
    programs = program._cache_size()
    for need in range(1, 18):
        select.exact(items, need)
    assert program._cache_size() == programs


@pytest.mark.parametrize(("n", "most"), [(2**14, 2**14), (0, 2**28), (2**28, 1)])
def test_a_table_has_no_more_than_its_limit(n, most):
    assert table_width(0, most - 1, n) == most - 1
    with pytest.raises(InputError, match=f"{n} items times a need of {most} are too"):
        table_width(0, most, n)
