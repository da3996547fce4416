"""The greedy against its rule and its lemmas, L1 to L4 and L6 of docs/theory.md."""

import itertools
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perc import select
from tests.select import brute
from tests.select.brute import columns, cost, instances, members, plain, size

many = settings(deadline=None, max_examples=100)
M = 1000


def pairs(most_size=4, most_cost=7):
    """All instances of two items, and all needs that they can meet, the small first."""
    sizes, costs = range(1, most_size + 1), range(1, most_cost + 1)
    rows = itertools.product(sizes, costs, sizes, costs)
    found = [((a, b), (c, d), n) for a, b, c, d in rows for n in range(1, a + c + 1)]
    return sorted(found, key=lambda row: (sum(row[0] + row[1]), row))


@pytest.fixture(scope="module")
def solved_pairs():
    """What the compiled rules make of all of them, in one call each."""
    cases = pairs()
    items = select.items(
        [[a[0], b[0]] for a, b, _ in cases], [[a[1], b[1]] for a, b, _ in cases]
    )
    needs = np.array([need for *_, need in cases])
    greedy = jax.vmap(select.greedy)(items, needs)
    best = jax.vmap(lambda i, n: select.exact(i, n, most=8))(items, needs)
    return cases, *jax.tree.map(np.asarray, (greedy, best))


@many
@given(instances())
def test_takes_the_shortest_prefix_of_the_ranking(instance):
    rows, need = instance
    choice = select.greedy(columns(rows), need)
    expected = brute.greedy(rows, need)
    assert bool(choice.enough) == (expected is not None)
    assert members(choice.mask) == frozenset(expected or [])
    assert int(choice.freed) == size(rows, expected or [])
    assert float(choice.cost) == cost(rows, expected or [])
    if expected:  # property 3: without its last victim the need is not met
        assert int(choice.freed) - rows[expected[-1]][0] < need <= int(choice.freed)


@many
@given(instances())
def test_l1_l2_the_bound_is_the_relaxation_and_the_gap_is_part_of_one_victim(instance):
    rows, need = instance
    taken = brute.greedy(rows, need)
    assume(taken)
    best, paid = brute.optimum(rows, need), cost(rows, taken)
    relaxed = brute.relaxation(rows, need)
    assert relaxed <= best <= paid
    *before, last = taken
    left = need - size(rows, before)
    last_size, last_cost = rows[last][:2]
    assert paid - relaxed == last_cost * (1 - Fraction(left, last_size))
    assert paid - best < last_cost or (paid == best and last_cost == 0)
    assert left < last_size or paid == best
    choice = select.greedy(columns(rows), need)
    assert float(choice.bound) == pytest.approx(float(relaxed), rel=1e-6)
    assert float(choice.gap) == pytest.approx(float(paid - relaxed), abs=1e-5)


@many
@given(instances())
def test_l3_optimal_for_what_it_frees(instance):
    rows, need = instance
    choice = select.greedy(columns(rows), need)
    assume(choice.enough)
    assert int(choice.optimal_for) == int(choice.freed)
    assert brute.optimum(rows, int(choice.freed)) == float(choice.cost)


@many
@given(st.integers(1, 5), instances(sizes=st.just(1)))
def test_l4_optimal_for_equal_sizes(each, instance):
    rows = [(each, *row[1:]) for row in instance[0]]
    for need in range(1, each * len(rows) + 1):
        count = -(-need // each)
        cheapest = sum(sorted(row[1] for row in rows)[:count])
        assert cost(rows, brute.greedy(rows, need)) == cheapest
        assert brute.optimum(rows, need) == cheapest
    all_but_one = each * (len(rows) - 1)
    cheapest = sum(sorted(row[1] for row in rows)[:-1])
    assert float(select.greedy(columns(rows), all_but_one).cost) == cheapest


@many
@given(instances(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_scaling_and_permuting_change_nothing_but_ties(instance, random, factor):
    rows, need = instance
    keys = [(Fraction(row[1], row[0]), *row[2:]) for row in rows]
    assume(len(set(keys)) == len(keys))
    scaled = [(row[0], factor * row[1], *row[2:]) for row in rows]
    choice = select.greedy(columns(rows), need)
    assert members(select.greedy(columns(scaled), need).mask) == members(choice.mask)
    order = random.sample(range(len(rows)), len(rows))
    shuffled = [rows[i] for i in order]
    again = select.greedy(columns(shuffled), need)
    assert sorted(shuffled[i] for i in members(again.mask)) == sorted(
        rows[i] for i in members(choice.mask)
    )


def test_smallest_instances_on_which_it_is_not_optimal(solved_pairs):
    """L2, found by search: with a tie in density, and without one."""
    cases, greedy, best = solved_pairs
    worse = np.flatnonzero(greedy.cost > best.cost)
    assert cases[worse[0]] == ((1, 1), (2, 2), 2)
    assert (greedy.cost[worse[0]], best.cost[worse[0]]) == (3, 2)
    untied = [
        case
        for case in (cases[i] for i in worse)
        if case[0][1] * case[1][0] != case[1][1] * case[0][0]
    ]
    assert untied[0] == ((1, 1), (2, 3), 2)
    assert brute.optimum(untied[0][:2], 2) == 3
    assert cost(untied[0][:2], [0, 1]) == 4


def test_l4_powers_of_two_do_not_suffice(solved_pairs):
    cases, greedy, best = solved_pairs
    at = cases.index(((2, 1), (4, 7), 4))
    assert (greedy.cost[at], best.cost[at]) == (8, 7)


def test_optimal_sets_need_not_consist_of_the_smallest_scores(solved_pairs):
    """What CachePilot's proof claims; the search finds sets that are no prefix."""
    cases, _, best = solved_pairs
    no_prefix = [
        (case, members(mask))
        for case, mask in zip(cases, best.mask, strict=True)
        if case[0][1] * case[1][0] < case[1][1] * case[0][0]  # the first ranks first
        and members(mask) == {1}
        and brute.optimum(case[:2], case[2], [frozenset(), {0}, {0, 1}])
        > cost(case[:2], {1})
    ]
    assert no_prefix[0] == (((1, 1), (2, 3), 2), {1})


def test_the_exchange_of_the_published_proof_frees_less():
    """Section 4.1: k has the smaller score and no more bytes, and covers nothing."""
    j, k, need = (2, 2.0), (1, 0.5), 2
    assert k[1] / k[0] < j[1] / j[0] and k[0] <= j[0]
    assert j[0] >= need > k[0]


@pytest.mark.parametrize("m", [2, 10, M])
def test_l6_no_constant_ratio(m):
    rows = [(1, 10, 0, 0), (m, 10 * m - 1, 0, 0)]
    choice = select.greedy(columns(rows), 1)
    assert float(choice.cost) == 10 * m - 1
    assert brute.optimum(rows, 1) == 10
    mended = select.drop_redundant(columns(rows), choice, 1)
    assert float(mended.cost) == float(choice.cost)


def test_l6_the_best_single_item_does_not_help():
    rows = [(1, 1, 0, 0), (1, 10, 0, 0), (M, 10 * M - 1, 0, 0)]
    found = [rule(columns(rows), 2) for rule in (select.greedy, select.cheapest_single)]
    assert min(float(choice.cost) for choice in found) == 10 * M - 1
    assert brute.optimum(rows, 2) == 11


@pytest.mark.parametrize(
    ("sizes", "costs", "paid", "best"),
    [((9, 10), (0.9, 1.1), 2.0, 1.1), ((9, 1000, 10), (0.09, 500, 6), 500.09, 6.0)],
)
def test_sessions_of_cachepilot(sizes, costs, paid, best):
    items = plain(sizes, costs)
    assert float(select.greedy(items, 10).cost) == pytest.approx(paid)
    for rule in (select.exact, select.choose):
        assert float(rule(items, 10).cost) == pytest.approx(best)
        assert members(rule(items, 10).mask) == {len(sizes) - 1}
