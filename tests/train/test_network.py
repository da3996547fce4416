"""Networks that a policy file can hold."""

import numpy as np
import pytest

from perc import npz
from perc.errors import InputError
from perc.history import NAMES
from perc.train.examples import MOST_BINS
from perc.train.network import check_storable


def holds(members, hidden):
    """Whether the check lets it pass."""
    try:
        check_storable(members, hidden)
    except InputError as error:
        assert "Give narrower layers, fewer of them, or fewer members" in str(error)
        return False
    return True


def numbers(members, hidden):
    """As many as the largest network has, counted array by array."""
    found, width = 0, len(NAMES) + 1
    for out in (*hidden, MOST_BINS):
        found += members * (width * out + out)
        width = out
    return found


@pytest.mark.parametrize("members", [1, 8, 64])
def test_the_largest_that_passes_is_packed_and_no_much_smaller_one_refused(members):
    widths = [w for w in range(1, 4096) if holds(members, (w, w))]
    largest = numbers(members, (widths[-1],) * 2)
    assert widths == [*range(1, widths[-1] + 1)]
    assert 0.95 * npz.LIMIT_BYTES < 4 * largest
    header = {"about": "a" * (npz.HEADER_LIMIT_BYTES - 20)}
    worths = np.zeros((256, MOST_BINS), np.float32)
    npz.pack(header, {"w0": np.zeros(largest, np.float32), "worths": worths})


def test_the_default_and_no_hidden_layer_pass():
    assert holds(8, (32, 32)) and holds(64, ())
    assert not holds(8, (4096, 4096))
