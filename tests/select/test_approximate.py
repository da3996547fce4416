"""The two-approximation (L7), and what takes back redundant items."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perc import select
from tests.select import brute
from tests.select.brute import columns, cost, instances, members, plain, size

many = settings(deadline=None, max_examples=100)


@many
@given(instances())
def test_l7_follows_its_rule_within_twice_the_optimum(instance):
    rows, need = instance
    best = brute.optimum(rows, need)
    choice = select.two_approximation(columns(rows), need)
    assert bool(choice.enough) == (best is not None)
    if best is None:
        assert not choice.mask.any()
        return
    assert members(choice.mask) == frozenset(brute.two_approximation(rows, need))
    assert size(rows, members(choice.mask)) == int(choice.freed) >= need
    assert best <= float(choice.cost) <= 2 * best
    assert float(choice.cost) <= cost(rows, brute.greedy(rows, need))
    assert float(choice.bound) <= best * (1 + 1e-6)


@pytest.mark.parametrize("q", [2, 10, 30])
def test_l7_two_cannot_be_improved(q):
    items = plain([q - 1, q], [q - 1, q])
    assert float(select.two_approximation(items, q).cost) == 2 * q - 1
    assert float(select.exact(items, q).cost) == q


@many
@given(instances(), st.sampled_from(["greedy", "two_approximation"]))
def test_nothing_redundant_is_left(instance, rule):
    rows, need = instance
    items = columns(rows)
    choice = getattr(select, rule)(items, need)
    assume(choice.enough)
    kept = members(choice.mask)
    for i in sorted(kept, key=lambda i: (-rows[i][1], i)):  # the dearest first
        if size(rows, kept - {i}) >= need:
            kept -= {i}
    mended = select.drop_redundant(items, choice, need)
    assert members(mended.mask) == kept
    assert all(size(rows, kept - {i}) < need for i in kept)
    assert float(mended.cost) == cost(rows, kept) >= brute.optimum(rows, need)
    proved = int(mended.optimal_for)
    assert not proved or brute.optimum(rows, proved) == float(mended.cost)


@many
@given(instances())
def test_cheapest_single(instance):
    rows, need = instance
    covering = [row[1] for row in rows if row[0] >= need]
    choice = select.cheapest_single(columns(rows), need)
    assert bool(choice.enough) == bool(covering)
    assert len(members(choice.mask)) == bool(covering)
    assert float(choice.cost) == min(covering, default=0)
