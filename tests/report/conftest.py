"""Comparisons that were never run, to see what is said about them."""

from collections.abc import Callable

import numpy as np
import pytest

from perc.compare import Comparison, Row

Build = Callable[..., Comparison]


@pytest.fixture
def comparison() -> Build:
    """Builds a `Comparison` of 1,000 looked-up blocks from hits in blocks.

    `lru_hits` is LRU at capacity 0, 1, ...; `hits` gives each policy its hits, in the
    order of `sizes`.
    """

    def build(lru_hits, sizes, counted=1000, clairvoyant=(), gap=None, **hits):
        rows = [
            Row(policy, size, values[i] / max(counted, 1), 0.5, 2_000_000, 99.5, gap)
            for i, size in enumerate(sizes)
            for policy, values in hits.items()
        ]
        trace = {"source": "traffic", "requests": 7, "distinct_blocks": len(lru_hits)}
        return Comparison(
            trace, {}, rows, np.array(lru_hits), counted, tuple(clairvoyant)
        )

    return build
