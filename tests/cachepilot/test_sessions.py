"""Rates, costs, orders and sizes of sessions."""

import math

import pytest

from perc.cachepilot.reference import Machine
from perc.cachepilot.sessions import (
    ORDERS,
    Session,
    blocks_of,
    order_of,
    usable_blocks,
    victims,
)
from perc.errors import InputError


def session(number=0, tokens=32, blocks=1, gaps=(), last=0.0) -> Session:
    found = Session(number, tokens, blocks, last)
    found.record(gaps)
    return found


@pytest.mark.parametrize(
    "gaps, rate",
    [
        ((), 0.05),
        ((0.1, 0.3), 5.0),
        ((100.0,) * 5 + (0.5,) * 20, 2.0),
        ((0.001,), 100.0),
    ],
)
def test_rates(gaps, rate):
    assert session(gaps=gaps).rate_per_s == pytest.approx(rate)


def test_costs():
    assert 1 - math.exp(-0.05 * 5) == pytest.approx(0.2211992, rel=1e-6)
    assert session(tokens=4096, gaps=[0.5]).cost_s == pytest.approx(8.1916281)
    slow = session(tokens=128, gaps=[100.0])
    assert slow.cost_s == pytest.approx(0.0124853, rel=1e-5)


def test_touch_moves_recency_and_rate():
    one = session()
    one.touch(3.0, 0.5)
    assert (one.last_active, one.rate_per_s) == (3.0, 2.0)


def test_the_score_is_per_block():
    long, short = session(0, 320, 10), session(1, 64, 1)
    assert victims([short, long], ORDERS["perc"], 1) == [long]
    assert victims([long, short], order_of("priority"), 1) == [short]


def test_victims():
    three = [session(i, i * 32, i) for i in (1, 2, 3)]
    key = ORDERS["shortest"]
    assert [s.id for s in victims(three, key, 2)] == [1, 2]
    assert [s.id for s in victims(three, key, 99)] == [1, 2, 3]
    assert victims(three, key, 0) == []
    assert victims([], key, 3) == []


def test_ties_leave_in_the_order_of_admission():
    equal = [session(i) for i in (5, 3, 4)]
    for name, key in ORDERS.items():
        assert [s.id for s in victims(equal, key, 2)] == [5, 3], name


def test_sizes():
    assert [blocks_of(n) for n in (1, 32, 33, 256, 512, 1024, 8192)] == [
        1,
        1,
        2,
        8,
        16,
        32,
        256,
    ]
    assert blocks_of(64, "fp8") == blocks_of(64, "int8") == 1
    assert blocks_of(65, "fp8") == 2
    assert (usable_blocks(16, 0.35), usable_blocks(24, 0.35)) == (666, 999)


@pytest.mark.parametrize(
    "wrong",
    [
        {"vram_gib": 0.0},
        {"pinned_share": 1.5},
        {"pinned_share": 1.0},
        {"concurrent": 0},
        {"kv": "int3"},
    ],
)
def test_bad_machines_are_refused(wrong):
    with pytest.raises(InputError):
        Machine(**wrong)


def test_unknown_policies_are_refused():
    with pytest.raises(InputError, match="lru"):
        order_of("garbage")
