"""W-TinyLFU by hand: who competes with whom, and what protection holds."""

import pytest

from perc.errors import InputError
from perc.online import replay_online
from perc.policies.w_tinylfu import w_tinylfu
from tests.test_step import trace_of


def hits(ids, capacity, **parameters):
    policy = w_tinylfu(**parameters)
    found = replay_online(trace_of([[b] for b in ids]), policy, [capacity])
    return found.blocks[0].tolist()


@pytest.mark.parametrize(("last", "hit"), [(0, 0), (1, 1), (4, 0), (6, 1), (8, 1)])
def test_protection_is_a_share_of_main(last, hit):
    """Ten slots: a window of 4, a main of 6, of which 3 are protected.

    6 to 9 are in the window, the rest on probation. 0 to 3 are used again, so 0 is
    demoted behind 4 and 5. 6, 7 and 8 are used often; 9 is not and loses to 4. Then
    6 replaces 4, 7 replaces 5, and 8 replaces 0.
    """
    often = [6, 7, 8] * 3
    ids = [*range(10), 0, 1, 2, 3, *often, 10, 11, 12, 13]
    assert hits([*ids, last], 10, window=0.4, protected=0.5)[-1] == hit


def test_main_keeps_its_block_at_equal_counts():
    """Two slots, one of them the window: 0 passes on to main, 1 does not replace it."""
    assert hits([0, 1, 2, 0, 1], 2) == [0, 0, 0, 1, 0]
    assert hits([0, 1, 1, 2, 0, 1], 2) == [0, 0, 1, 0, 0, 1]


def test_counts_fade():
    """0 was used four times, long ago; then 1 twice. 9 makes the two compete."""
    ids = [0, 0, 0, 0, 5, 6, 7, 8, 1, 1, 9, 1]
    assert hits(ids, 2, halve=100)[-1] == 0  # 2 uses against 4
    assert hits(ids, 2, halve=2)[-1] == 1  # halved twice by then: 2 against 1


@pytest.mark.parametrize("name", ["window", "protected"])
@pytest.mark.parametrize("value", [0.0, 1.5, float("nan")])
def test_shares_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=f"w_tinylfu: {name} is .*, must be"):
        w_tinylfu(**{name: value})


def test_the_period_must_be_positive():
    with pytest.raises(InputError, match="w_tinylfu: halve is 0, must be above 0"):
        w_tinylfu(halve=0)
