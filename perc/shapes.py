"""Round array sizes up, so that traces of similar size share compiled programs."""

import numpy as np

from perc.types import Trace


def bucket(size: int, smallest: int = 64) -> int:
    """The next power of two, at least `smallest`."""
    return max(smallest, 1 << max(size - 1, 0).bit_length())


def pad(array: np.ndarray, fill: float, smallest: int = 64) -> np.ndarray:
    """Extends the first axis to its bucket with `fill`."""
    room = bucket(len(array), smallest) - len(array)
    return np.concatenate([array, np.full((room, *array.shape[1:]), fill, array.dtype)])


def parents(trace: Trace) -> np.ndarray:
    """The block i32[M] before each in its prompts, padded; the padded M = none."""
    parent = np.full(bucket(trace.n_blocks), bucket(trace.n_blocks), np.int32)
    inner = np.flatnonzero(trace.depth > 0)
    parent[trace.block[inner]] = trace.block[inner - 1]
    return parent
