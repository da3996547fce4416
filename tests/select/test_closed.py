"""Prefix trees: sets closed under descendants (L8), against every closed set."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perc import select
from perc.errors import InputError
from tests.select import brute
from tests.select.brute import (
    NODES,
    columns,
    cost,
    forests,
    members,
    plain,
    shape,
    size,
)

many = settings(deadline=None, max_examples=75)


@st.composite
def trees(draw, **kwargs):
    rows, need = draw(brute.instances(most=NODES, **kwargs))
    return rows, need, draw(forests(len(rows)))


def solve(rule, rows, parents, need):
    return rule(columns(rows), shape(parents), need)


@many
@given(trees())
def test_the_exact_form_equals_the_best_closed_set(tree):
    rows, need, parents = tree
    choice = solve(select.closed_exact, rows, parents, need)
    best = brute.optimum(rows, need, brute.closed_sets(parents))
    assert bool(choice.enough) == (best is not None)
    chosen = members(choice.mask)
    assert brute.is_closed(parents, chosen)
    if best is not None:
        assert size(rows, chosen) == int(choice.freed) >= need
        assert cost(rows, chosen) == float(choice.cost) == float(choice.bound) == best


@many
@given(trees())
def test_leaf_greedy_takes_the_leaf_of_least_cost_per_byte(tree):
    rows, need, parents = tree
    choice = solve(select.leaf_greedy, rows, parents, need)
    assume(choice.enough)
    assert members(choice.mask) == brute.leaf_greedy(rows, parents, need)
    best = brute.optimum(rows, need, brute.closed_sets(parents))
    assert float(choice.bound) <= best * (1 + 1e-6)
    assert not choice.optimal_for


@many
@given(trees())
def test_l8_subtree_greedy_is_optimal_at_its_breakpoints(tree):
    """Every step takes the closed set of least cost per byte, of all there are."""
    rows, need, parents = tree
    closed = brute.closed_sets(parents)
    gone, steps = frozenset(), []
    while len(gone) < len(rows):
        choice = solve(select.subtree_greedy, rows, parents, size(rows, gone) + 1)
        after = members(choice.mask)
        assert after > gone and brute.is_closed(parents, after)
        step = brute.density(rows, after - gone)
        assert step == brute.least_dense_closed(rows, parents, gone)
        assert int(choice.optimal_for) == size(rows, after)
        assert brute.optimum(rows, size(rows, after), closed) == cost(rows, after)
        steps.append(step)
        gone = after
    assert steps == sorted(steps)


@many
@given(trees())
def test_l8_subtree_greedy_is_within_its_last_subtree(tree):
    rows, need, parents = tree
    choice = solve(select.subtree_greedy, rows, parents, need)
    assume(choice.enough)
    best = brute.optimum(rows, need, brute.closed_sets(parents))
    gone = before = frozenset()
    while size(rows, gone) < need:
        before = gone
        more = solve(select.subtree_greedy, rows, parents, size(rows, gone) + 1)
        gone = members(more.mask)
    assert gone == members(choice.mask)
    last = gone - before
    left = need - size(rows, before)
    relaxed = cost(rows, before) + brute.density(rows, last) * left
    assert relaxed <= best <= cost(rows, gone)
    assert cost(rows, gone) - best < cost(rows, last) or cost(rows, gone) == best
    assert float(choice.bound) == pytest.approx(float(relaxed), rel=1e-6)


@many
@given(trees(sizes=st.just(1)), st.data())
def test_l8_closure_costs_nothing_if_no_child_is_dearer(tree, data):
    rows, need, parents = tree
    paid = [row[1] for row in rows]
    order = sorted(range(len(rows)), key=lambda i: brute.depth_of(parents, i))
    for i in order:
        if parents[i] is not None:
            paid[i] = min(paid[i], paid[parents[i]])
    rows = [(1, c, 0, brute.depth_of(parents, i)) for i, c in enumerate(paid)]
    assume(need <= len(rows))
    leaf = solve(select.leaf_greedy, rows, parents, need)
    free = select.greedy(columns(rows), need)
    assert members(leaf.mask) == members(free.mask)
    assert brute.is_closed(parents, members(free.mask))
    best = brute.optimum(rows, need)
    assert float(leaf.cost) == best
    assert best == brute.optimum(rows, need, brute.closed_sets(parents))


def test_l8_leaf_greedy_is_not_optimal_for_equal_sizes():
    """Roots a (5) and b (3), and q (6) below b."""
    nodes, tree = plain([1, 1, 1], [5, 3, 6]), shape([None, None, 1])
    found = {
        rule.__name__: (float(choice.cost), members(choice.mask))
        for rule in (select.leaf_greedy, select.subtree_greedy, select.closed_exact)
        for choice in [rule(nodes, tree, 2)]
    }
    assert found == {
        "leaf_greedy": (11, {0, 2}),
        "subtree_greedy": (9, {1, 2}),
        "closed_exact": (9, {1, 2}),
    }


@pytest.mark.parametrize("m", [2, 3, 4])
def test_l8_leaf_greedy_has_no_constant_ratio(m):
    """A chain of M blocks, free but for a leaf of cost 2, beside M leaves of cost 1."""
    parents = [None, *range(m - 1), *[None] * m]
    nodes = plain([1] * 2 * m, [0] * (m - 1) + [2] + [1] * m)
    assert float(select.leaf_greedy(nodes, shape(parents), m).cost) == m
    assert float(select.subtree_greedy(nodes, shape(parents), m).cost) == 2
    assert float(select.closed_exact(nodes, shape(parents), m).cost) == 2


@pytest.fixture(scope="module")
def solved_trees():
    """Three equal nodes, two of them a chain, costs up to 6: each rule in one call."""
    costs = np.array(list(np.ndindex(6, 6, 6))) + 1
    costs = costs[np.argsort(costs.sum(axis=1), kind="stable")]
    nodes = jax.tree.map(
        lambda *rows: np.stack(rows), *(plain([1, 1, 1], row) for row in costs)
    )
    tree = shape([None, None, 1])
    exact = functools.partial(select.closed_exact, most=64)
    rules = {"leaf": select.leaf_greedy, "subtree": select.subtree_greedy}
    found = {
        name: jax.vmap(lambda i, rule=rule: rule(i, tree, 2))(nodes)
        for name, rule in [*rules.items(), ("exact", exact)]
    }
    return costs, nodes, tree, jax.tree.map(np.asarray, found)


def test_many_trees_in_one_call(solved_trees):
    _, nodes, tree, found = solved_trees
    for name, rule in (
        ("leaf", select.leaf_greedy),
        ("subtree", select.subtree_greedy),
        ("exact", select.closed_exact),
    ):
        for i in range(0, 216, 10):
            one = rule(jax.tree.map(lambda x, i=i: x[i], nodes), tree, 2)
            assert found[name].mask[i].tolist() == one.mask.tolist()


def test_l8_a_search_finds_trees_that_mislead_the_leaf_greedy(solved_trees):
    costs, _, _, found = solved_trees
    worse = found["leaf"].cost > found["exact"].cost
    assert costs[worse][0].tolist() == [2, 1, 3]
    # Always with a child that costs more than its parent.
    assert (costs[worse][:, 2] > costs[worse][:, 1]).all()


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([0], "node 0 is its own ancestor"),
        ([-1, 2, 1], "node 1 is its own ancestor, or below one"),
        ([3, -1], "parent 3 of 2 nodes"),
        ([-2], "parent -2"),
        ([[-1]], "one a node"),
        ([0.5], "whole numbers"),
    ],
)
def test_no_forest(parent, message):
    with pytest.raises(InputError, match=message):
        select.forest(parent)


def test_the_last_node_may_leave_alone():
    """Without the padding that ends all other trees here."""
    items, roots = select.items([1, 1], [5, 3]), select.forest([-1, -1])
    choice = select.closed_exact(items, roots, 1)
    assert choice.mask.tolist() == [False, True]
    assert float(choice.cost) == float(choice.bound) == 3
    assert select.closed_exact(items, roots, 2).mask.all()


def test_an_empty_forest():
    items, nothing = select.items([], []), select.forest([])
    for rule in (select.closed_exact, select.subtree_greedy, select.leaf_greedy):
        assert bool(rule(items, nothing, 0).enough)
        assert not bool(rule(items, nothing, 1).enough)
