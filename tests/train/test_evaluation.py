"""How policies stand, beside LRU and the bound."""

import dataclasses
import math

import numpy as np
import pytest

import perc
from perc.policies.registry import registry
from perc.train.evaluation import standings

TRACE = perc.make("chat", requests=600, seed=5)
SIZES = (300, 900)


def by_hand(name, skip):
    policy = registry[name]()
    order = perc.ranks(TRACE, perc.scores(policy, TRACE))
    return np.asarray(perc.replay(TRACE, order, SIZES).blocks)[:, skip:].sum(axis=1)


@pytest.mark.parametrize("skip", [0, 60])
def test_shares_of_the_gap_are_those_of_the_replays(skip):
    own = [registry["perc_decay"](), registry["lfu"]()]
    found = standings(TRACE, own, SIZES, skip=skip, resamples=50)
    assert [s.name for s in found] == ["lru", "perc_decay", "lfu", "belady"]
    low, high = by_hand("lru", skip), by_hand("belady", skip)
    asked = (TRACE.stop - TRACE.start)[skip:].sum()
    for standing in found:
        hits = by_hand(standing.name, skip)
        assert np.array_equal(standing.hits, hits)
        assert np.array_equal(standing.misses, asked - hits)
        assert standing.gap_closed == pytest.approx((hits - low) / (high - low))
        assert standing.mean == pytest.approx(np.mean((hits - low) / (high - low)))


def test_draws_are_paired_and_their_ends_are_lru_and_the_bound():
    found = standings(TRACE, [registry["perc_decay"]()], SIZES, resamples=150, seed=2)
    lru, own, bound = found
    assert own.draws.shape == (150,)
    assert (lru.draws == 0).all()
    assert bound.draws == pytest.approx(np.ones(150))
    low, high = own.interval
    assert low is not None and high is not None and low < own.mean < high
    again = standings(TRACE, [registry["perc_decay"]()], SIZES, resamples=150, seed=2)
    assert np.array_equal(own.draws, again[1].draws)


def test_no_draws_leave_no_interval():
    found = standings(TRACE, [], SIZES, resamples=0)
    assert [s.interval.low for s in found] == [None, None]


def test_where_there_is_no_gap_no_share_counts():
    alone = standings(TRACE, [registry["lfu"]()], (300,), resamples=60)[1]
    beside = standings(TRACE, [registry["lfu"]()], (300, 1_000_000), resamples=60)[1]
    assert np.isnan(beside.gap_closed[1])
    assert beside.mean == alone.mean == alone.gap_closed[0]
    assert np.array_equal(beside.draws, alone.draws)
    nowhere = standings(TRACE, [], (1_000_000,), resamples=60)[0]
    assert math.isnan(nowhere.mean) and nowhere.interval.low is None


def test_progress_names_what_runs():
    named = []
    mine = dataclasses.replace(registry["lfu"](), name="mine")
    standings(TRACE, [mine], SIZES[:1], resamples=0, progress=named.append)
    assert named == ["lru", "mine", "belady"]
