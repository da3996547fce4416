"""Lower bounds: the relaxation (L1) and the price of a byte (L5)."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perc import select
from perc.select.bounds import ranking
from tests.select import brute
from tests.select.brute import columns, instances

many = settings(deadline=None, max_examples=100)


def dual(rows, need, price):
    return price * need - sum(max(0, price * s - c) for s, c, *_ in rows)


def test_equals_leave_least_recent_first_then_deepest_then_in_order():
    equal = select.items(
        [2] * 6,
        [1] * 6,
        last=[1, 0, 0, 0, 1, 0],
        depth=[9, 1, 3, 3, 0, 9],
        refs=[0] * 5 + [1],
    )
    assert ranking(equal).tolist() == [2, 3, 1, 0, 4, 5]


@many
@given(instances(), st.fractions(0, 9, max_denominator=8))
def test_l5_any_price_gives_a_bound(instance, price):
    rows, need = instance
    found = float(select.dual_bound(columns(rows), need, float(price)))
    assert found == pytest.approx(float(dual(rows, need, price)), abs=1e-4)
    best = brute.optimum(rows, need)
    assert best is None or dual(rows, need, price) <= best


@many
@given(instances())
def test_l5_the_price_of_the_last_victim_gives_the_relaxation(instance):
    rows, need = instance
    taken = brute.greedy(rows, need)
    assume(taken)
    size, cost, *_ = rows[taken[-1]]
    assert dual(rows, need, Fraction(cost, size)) == brute.relaxation(rows, need)


@many
@given(instances())
def test_l1_a_cut_frees_the_need_exactly_at_the_cost_of_the_relaxation(instance):
    rows, need = instance
    cut = select.fractional(columns(rows), need)
    taken = brute.greedy(rows, need)
    assert bool(cut.enough) == (taken is not None)
    if taken is None:
        assert float(cut.cost) == np.inf and not cut.taken.any()
        return
    assert int(cut.taken.sum()) == need
    parts = zip(cut.taken.tolist(), rows, strict=False)
    paid = sum(Fraction(part * cost, size) for part, (size, cost, *_) in parts)
    assert paid == brute.relaxation(rows, need)
    assert float(cut.cost) == pytest.approx(float(paid), rel=1e-6)
    assert np.count_nonzero((cut.taken > 0) & (cut.taken < columns(rows).size)) <= 1


def test_a_whole_price_does_not_overflow():
    assert float(select.dual_bound(select.items([2**30], [1]), 1, 3)) <= 1
