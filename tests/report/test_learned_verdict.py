"""Sentences on a learned policy: won, lost or level, and whether to take it."""

from dataclasses import replace

import pytest

from perc.report.learned_verdict import won_or_lost

SIZES = [10, 20, 30]


@pytest.fixture
def verdict(comparison):
    """Sentences from hits of 1,000 blocks; LRU has 100, 200, 300 and perc as given."""

    def say(mine, perc=(100, 200, 300), gap=0.25):
        lru = [100, 200, 300]
        hits = {"lru": lru, "perc": perc, "mine": mine, "belady": [500] * 3}
        found = comparison([0] * 501, SIZES, clairvoyant=["belady"], gap=gap, **hits)
        return won_or_lost(found)

    return say


def test_it_wins_everywhere(verdict):
    lru, perc, gap, advice = verdict([110, 225, 330])
    assert lru == "mine beats lru at every size, by 1.0 to 3.0 points."
    assert perc == "mine beats perc at every size, by 1.0 to 3.0 points."
    assert gap == "It closes 25.0% of the gap between LRU and the bound, on mean."
    assert advice.startswith("mine earned its place on this traffic")


def test_it_wins_loses_and_is_level(verdict):
    lru, perc, _, advice = verdict([110, 200, 280], perc=[120, 220, 320])
    assert lru == (
        "mine beats lru at 10 blocks, by 1.0 points, loses at 30 blocks, by 2.0 "
        "points, is level at 1 of 3 sizes."
    )
    assert perc == "mine loses to perc at every size, by 1.0 to 4.0 points."
    assert advice.startswith("Keep LRU")


def test_it_is_level(verdict):
    lru, *_, advice = verdict([100, 200, 300])
    assert lru == "mine is level with lru at every size."
    assert advice.startswith("Keep LRU")


def test_perc_does_as_well(verdict):
    *_, advice = verdict([110, 210, 310], perc=[120, 210, 310])
    assert advice.startswith("Use perc")


def test_more_blocks_for_more_seconds(comparison):
    hits = {"lru": [100, 200], "perc": [110, 210], "mine": [120, 205]}
    found = comparison([0] * 501, [10, 2000], gap=0.2, **hits, belady=[500] * 2)
    dear = [
        replace(r, recompute_s=r.recompute_s + (r.policy == "mine")) for r in found.rows
    ]
    said = won_or_lost(replace(found, rows=dear))
    assert said[2] == (
        "At 10 blocks it hits more blocks than perc, but recomputes for more seconds."
    )
    assert len(said) == 5 and len(won_or_lost(found)) == 4


def test_there_is_no_gap(verdict):
    assert "There is no gap" in verdict([100, 200, 300], gap=None)[2]
