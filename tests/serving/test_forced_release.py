"""KVopt's forced-release lab, digit for digit, and what a check of content changes."""

import pytest

from perc.errors import InputError
from perc.serving.forced_release import (
    LAB,
    Entry,
    Scenario,
    World,
    linear,
    play,
    programs_of,
)

BY_NAME = {scenario.name: scenario for scenario in LAB}


@pytest.mark.parametrize(
    "name, published, owned",
    [
        ("uniform_medium", (0, 61, 11, 7.8083, 0.0), (0, 39, 33, 22.7371)),
        ("mixed_length", (13, 48, 24, 83.0736, 191.5), (14, 31, 41, 198.7998)),
        ("fast_slow_tools", (0, 69, 3, 4.2590, 0.0), (0, 62, 10, 12.7993)),
        (
            "anticorrelated_size_gap",
            (19, 54, 18, 75.9752, 356.1),
            (22, 26, 46, 265.5249),
        ),
        ("high_pressure", (0, 43, 29, 20.5854, 0.1), (0, 29, 43, 29.1478)),
        ("heavy_tail_aged", (40, 56, 28, 295.3382, 2224.3), (45, 24, 60, 999.5005)),
        (
            "affine_prefill_overhead",
            (20, 53, 31, 117.7171, 406.6),
            (18, 25, 59, 296.0897),
        ),
    ],
)
def test_published_scenarios(name, published, owned):
    """The order in which protection breaks changes none of them."""
    orders = ("deadline", "cost") if "heavy" not in name else ("deadline",)
    for order in orders:
        found = play(BY_NAME[name], owned=False, order=order)
        assert (found.releases, found.hits, found.misses) == published[:3], order
        assert found.recompute_s == pytest.approx(published[3], abs=5.1e-5)
        assert found.wait_s == pytest.approx(published[4], abs=0.051)
        found = play(BY_NAME[name], order=order)
        assert (found.releases, found.hits, found.misses) == owned[:3], order
        assert found.recompute_s == pytest.approx(owned[3], abs=5.1e-5)


def affine(tokens: int) -> float:
    return 5 + linear(tokens)


def falling(tokens: int) -> float:
    return linear(tokens) * (tokens / 32768) ** -0.5


@pytest.mark.parametrize(
    "name, reload, owned, deadline, cost",
    [
        ("mixed_length", affine, False, (139.6177, 24, 15), (130.0349, 17, 15)),
        ("mixed_length", affine, True, (381.3154, 32, 37), (359.8957, 25, 33)),
        ("mixed_length", falling, False, (150.3930, 19, 29), (144.3698, 18, 26)),
        ("mixed_length", falling, True, (252.4231, 26, 39), (244.3922, 21, 36)),
        (
            "anticorrelated_size_gap",
            affine,
            False,
            (155.3276, 17, 18),
            (138.1980, 16, 15),
        ),
        (
            "anticorrelated_size_gap",
            affine,
            True,
            (484.1052, 23, 44),
            (484.1052, 22, 44),
        ),
        ("heavy_tail_aged", falling, False, (296.2977, 40, 28), (262.2254, 38, 25)),
        ("heavy_tail_aged", falling, True, (757.3875, 43, 57), (757.3875, 43, 57)),
        ("high_pressure", falling, False, (116.4139, 22, 41), (116.4139, 21, 41)),
        ("high_pressure", falling, True, (123.0965, 22, 45), (120.2572, 20, 44)),
    ],
)
def test_reloads_that_are_not_linear(name, reload, owned, deadline, cost):
    for order, published in (("deadline", deadline), ("cost", cost)):
        found = play(BY_NAME[name], reload=reload, order=order, owned=owned)
        assert found.recompute_s == pytest.approx(published[0], abs=5.1e-5), order
        assert (found.releases, found.misses) == published[1:], order


def test_a_mean_wait_changes_no_order():
    scenario = BY_NAME["mixed_length"]
    found = [play(scenario, order="cost", wait_weight=w) for w in (0.0, 1.0)]
    assert found[0] == found[1]


def test_all_turns_are_served_whatever_the_pressure():
    """A turn as large as the memory waits, and is served: nothing deadlocks."""
    tight = Scenario("mixed_length", 2048, 16, (1024, 32768), ("search",), 0.01)
    programs = programs_of([tight])["mixed_length"]
    world = World(tight.capacity, linear, order="deadline", owned=True)
    found = world.run(programs)
    assert found.hits + found.misses == sum(len(p.gaps_s) for p in programs)
    assert len(world.free) == tight.capacity
    assert found.releases > 0


def world_of(*prefixes: tuple[int, float, tuple[int, ...]], order="deadline") -> World:
    """Ten free blocks; prefixes (program, deadline, blocks) are protected."""
    world = World(10, linear, order=order, owned=True)
    for program, deadline_s, blocks in prefixes:
        world.entries[program] = Entry(
            program, set(blocks), 0.0, deadline_s, float(len(blocks)), []
        )
        for block in blocks:
            world.tag[block] = program
            world.owners.setdefault(block, set()).add(program)
    return world


def test_others_leave_before_the_protected():
    world = world_of((1, 50.0, (0, 1, 2)), (2, 40.0, (3, 4)))
    assert world.plan(1.0, 5) == [5, 6, 7, 8, 9]
    assert world.found.releases == 0


def test_a_plan_stops_as_soon_as_it_has_enough():
    world = world_of((1, 50.0, (0, 1, 2)), (2, 40.0, (3, 4)), (3, 60.0, (5,)))
    assert world.plan(1.0, 6) == [6, 7, 8, 9, 3, 4]  # the earliest deadline
    assert world.found.releases == 1
    assert [e.protected for e in world.entries.values()] == [True, False, True]


def test_a_block_of_two_prefixes_needs_both_released():
    two = (1, 50.0, (0, 1)), (2, 40.0, (1, 2))
    world = world_of(*two)
    assert world.plan(1.0, 8) == [3, 4, 5, 6, 7, 8, 9, 2]
    assert world.found.releases == 1
    world = world_of(*two)
    assert world.plan(1.0, 9) == [3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert world.found.releases == 2


def test_by_cost_the_cheapest_goes_first_and_the_empty_last():
    world = world_of((1, 50.0, (0,)), (2, 40.0, (1, 2)), order="cost")
    world.entries[2].reload_s = 9.0
    world.entries[3] = Entry(3, set(), 0.0, 10.0, 0.0, [])
    world.plan(1.0, 8)
    assert [e.protected for e in world.entries.values()] == [False, True, True]


def test_expiry_spares_who_waits():
    world = world_of((1, 5.0, (0, 1)), (2, 5.0, (2, 3)))
    world.entries[2].waiting = True
    world.allocate(9.0, 8)
    assert world.found.releases == 0
    assert set(world.free) == {2, 3}
    world.allocate(9.0, 1)
    assert world.found.releases == 1
    # What left is nobody's any more.
    assert world.entries[1].blocks == set()
    assert world.entries[2].blocks == {3}


def test_unknown_orders_are_refused():
    with pytest.raises(InputError, match="deadline, cost"):
        play(LAB[0], order="newest")
