"""Partial loads: every request runs, in a bounded number of steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError
from perc.loads import REMEDY, Load, finish_loads


@st.composite
def queues(draw):
    usable = draw(st.integers(1, 12))
    queue, held = [], 0
    for i in range(draw(st.integers(0, 7))):
        needs = draw(st.integers(0, usable))
        loaded = draw(st.integers(0, min(needs, usable - held)))
        held += loaded
        queue.append(Load(str(i), needs, loaded))
    return usable, queue


@given(queues())
def test_all_run_once_and_nothing_is_held_twice(case):
    usable, queue = case
    found = finish_loads(usable, queue)
    assert found.remedy == REMEDY
    assert len(found.moves) <= max(2 * len(queue) - 1, 0)
    loaded = {load.name: load.loaded_blocks for load in queue}
    needs = {load.name: load.needs_blocks for load in queue}
    for move in found.moves:
        free = usable - sum(loaded.values())
        missing = {name: needs[name] - held for name, held in loaded.items()}
        fits = [name for name in loaded if missing[name] <= free]
        if move.action == "run":
            assert move.name == fits[0]  # the first in the queue that fits
            assert move.blocks == missing[move.name]
            del loaded[move.name], needs[move.name]
        else:
            assert not fits
            holders = [name for name in list(loaded)[1:] if loaded[name]]
            assert move.name == holders[-1] and move.blocks == loaded[move.name]
            loaded[move.name] = 0
        assert move.free_blocks == usable - sum(loaded.values())
    assert not loaded


def test_when_none_fits_the_last_holder_gives_back():
    """Each of three holds 3 of 9 and needs one more: nobody could ever move."""
    moves = finish_loads(9, [Load(name, 4, 3) for name in "abc"]).moves
    assert [(move.action, move.name) for move in moves] == [
        ("roll back", "c"),
        ("run", "a"),
        ("run", "b"),
        ("run", "c"),
    ]


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ([Load("a", 11)], "load 'a' needs 11 blocks of 10: it can never fit"),
        ([Load("a", 5, 6)], "load 'a': 6 of 5 blocks"),
        ([Load("a", 5, -1)], "load 'a': -1 of 5 blocks"),
        ([Load("a", 9, 6), Load("b", 9, 6)], "hold 12 blocks of 10"),
        ([Load("a", 1), Load("a", 1)], "two loads are called 'a'"),
    ],
)
def test_what_can_never_run_is_refused(queue, message):
    with pytest.raises(InputError, match=message):
        finish_loads(10, queue)
