"""The two classics, `zipf` and `scan`, with the cases that they are made for."""

import numpy as np
import pytest

from perc.workloads import scan, zipf
from tests.oracles.lru import lru_hit_ratio


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.2])
def test_popularity_follows_the_power_law(alpha):
    trace = zipf(requests=100_000, n_blocks=100, alpha=alpha, seed=1)
    counts = np.sort(np.bincount(trace.block))[::-1]
    weight = np.arange(1, 101.0) ** -alpha
    assert (trace.stop - trace.start == 1).all()
    np.testing.assert_allclose(
        counts[:20] / 100_000, (weight / weight.sum())[:20], rtol=0.15
    )


def test_arrivals_are_poisson():
    gaps = np.diff(zipf(requests=20_000, requests_per_s=4.0).arrival_s)
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)
    assert gaps.std() == pytest.approx(0.25, rel=0.05)


def test_cyclic_scan_leaves_lru_nothing():
    """cases.md 1: five blocks in turn, four slots: 0 of 100."""
    trace = scan(
        requests=100, hot_chains=5, hot_blocks=1, hot_order="cyclic", scan_requests=0
    )
    assert trace.block.tolist() == [0, 1, 2, 3, 4] * 20
    assert lru_hit_ratio(trace, 4) == 0
    assert lru_hit_ratio(trace, 5) == 0.95


def test_a_scan_flushes_the_hot_prefix():
    """cases.md 2 B: after eight one-offs of 4 blocks, LRU with 14 has lost it."""
    trace = scan(requests=19, hot_chains=1, scan_every=10, scan_requests=8)
    assert [trace.kinds[k] for k in trace.kind] == ["hot"] * 10 + ["scan"] * 8 + ["hot"]
    assert lru_hit_ratio(trace, 14) == pytest.approx(9 * 4 / 76)
    assert lru_hit_ratio(trace, 36) == pytest.approx(10 * 4 / 76)


def test_scans_are_never_seen_again():
    trace = scan(requests=2_000)
    scans = trace.kind[trace.request] == trace.kinds.index("scan")
    assert scans.mean() == pytest.approx(1 / 3, abs=0.05)
    assert (trace.next[scans] == -1).all() and (trace.prev[scans] == -1).all()
    assert len(np.unique(trace.block[~scans])) == 50 * 4
