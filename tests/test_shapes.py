"""Buckets: powers of two, and no larger than needed."""

import numpy as np

from perc.shapes import bucket, pad


def test_bucket_is_the_next_power_of_two():
    sizes = (0, 1, 64, 65, 128, 1000, 1024)
    assert [bucket(n) for n in sizes] == [64, 64, 64, 128, 128, 1024, 1024]
    assert bucket(5, smallest=2) == 8


def test_pad_fills_the_end():
    padded = pad(np.arange(3, dtype=np.int32), -1, smallest=4)
    assert padded.tolist() == [0, 1, 2, -1] and padded.dtype == np.int32
