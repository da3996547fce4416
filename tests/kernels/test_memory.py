"""The checks that interpreted kernels run under, without Triton."""

import numpy as np
import pytest

from perc.kernels.memory import HostTensor, Memory

FIRST, SECOND = (0, 0, 0), (1, 0, 0)


def memory():
    array = np.zeros(8, np.int32)
    return Memory([HostTensor(array)]), array.ctypes.data


def lanes(base, *elements):
    return np.array([base + 4 * e for e in elements], np.uint64)


@pytest.mark.parametrize("element", [-1, 8])
def test_a_lane_outside_all_buffers_is_found(element):
    checked, base = memory()
    with pytest.raises(AssertionError, match=f"byte {4 * element} of buffer 0"):
        checked.read(lanes(base, 0, element), np.array([True, True]), 4, FIRST)
    checked.read(lanes(base, 0, element), np.array([True, False]), 4, FIRST)


def test_a_lane_that_ends_outside_is_found():
    checked, base = memory()
    with pytest.raises(AssertionError, match="byte 29"):
        checked.write(np.array([base + 29], np.uint64), np.array([True]), 4, FIRST)


def test_two_programs_may_not_write_one_byte():
    checked, base = memory()
    checked.write(lanes(base, 3), np.array([True]), 4, FIRST)
    checked.write(lanes(base, 3), np.array([True]), 4, FIRST)
    checked.write(lanes(base, 4), np.array([True]), 4, SECOND)
    with pytest.raises(AssertionError, match="writes what another wrote: byte 12"):
        checked.write(lanes(base, 3), np.array([True]), 4, SECOND)


def test_a_program_may_not_write_what_another_reads():
    checked, base = memory()
    both = np.array([True])
    checked.read(lanes(base, 1), both, 4, FIRST)
    checked.write(lanes(base, 1), both, 4, FIRST)
    with pytest.raises(AssertionError, match="reads what another wrote"):
        checked.read(lanes(base, 1), both, 4, SECOND)
    checked.read(lanes(base, 2), both, 4, FIRST)
    checked.read(lanes(base, 2), both, 4, SECOND)
    for program in (FIRST, SECOND):
        with pytest.raises(AssertionError, match="writes what another read"):
            checked.write(lanes(base, 2), both, 4, program)


def test_bytes_are_counted():
    checked, base = memory()
    checked.read(lanes(base, 0, 1, 2), np.array([True, True, False]), 4, FIRST)
    checked.write(lanes(base, 5), np.array([True]), 4, FIRST)
    assert (checked.bytes_read, checked.bytes_written) == (8, 4)
