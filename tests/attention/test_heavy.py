"""Heavy hitters against a window of the same size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.attention.heavy import empty_heavy, mass_kept, run_heavy
from perc.attention.multihead import causal
from perc.errors import InputError
from tests.attention.given import qkv
from tests.oracles import attention as oracle


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.sampled_from([(1, 1), (4, 1), (4, 2), (5, 5)]))
def test_against_numpy_token_by_token(seed, sizes):
    q, k, v = qkv(seed, 14, 4, 2, 6)
    run = run_heavy(q, k, v, budget=sizes[0], recent=sizes[1])
    out, kept = oracle.heavy(q, k, v, *sizes)
    np.testing.assert_allclose(run.outputs, out, atol=1e-5)
    for now, expected in zip(np.asarray(run.kept), kept, strict=True):
        for g in range(2):
            assert sorted(now[now[:, g] >= 0, g].tolist()) == expected[g]
            assert len(expected[g]) <= sizes[0]


@pytest.mark.parametrize("seed", range(5))
def test_planted_heavy_hitters_are_kept(seed):
    """Three early tokens that every query looks at: the window loses them."""
    q, k, v = qkv(seed, 60, 2, 1, 16)
    common = np.random.default_rng(99).standard_normal(16).astype(np.float32)
    common *= 4 / np.linalg.norm(common)
    q += common
    k[[1, 4, 6]] += 2 * common
    runs = [run_heavy(q, k, v, budget=12, recent=recent) for recent in (6, 12)]
    heavy, window = (np.asarray(mass_kept(q, k, run.kept)) for run in runs)
    assert {1, 4, 6} <= set(np.asarray(runs[0].kept)[-1, :, 0].tolist())
    assert heavy[30:].mean() > window[30:].mean() + 0.2
    assert heavy.mean() >= window.mean()


def test_without_structure_both_keep_the_same():
    q, k, v = qkv(0, 40, 2, 2, 8)
    q[:] = 0  # every token weighs the same
    for recent in (2, 8):
        run = run_heavy(q, k, v, budget=8, recent=recent)
        share = np.minimum(8 / np.arange(1, 41), 1)
        np.testing.assert_allclose(mass_kept(q, k, run.kept), share, rtol=1e-5)


def test_of_equal_ones_the_oldest_leaves():
    q, k, v = qkv(1, 6, 1, 1, 4)
    q[:], k[:], k[0] = 100, -100, 100  # all weight is on the first, exactly
    run = run_heavy(q, k, v, budget=4, recent=1)
    assert sorted(run.kept[-1, :, 0].tolist()) == [0, 3, 4, 5]


def test_with_room_for_all_it_is_full_attention():
    q, k, v = qkv(3, 9, 4, 2, 6)
    run = run_heavy(q, k, v, budget=9, recent=1)
    np.testing.assert_allclose(run.outputs, causal(q, k, v), atol=1e-5)
    np.testing.assert_allclose(mass_kept(q, k, run.kept), 1, rtol=1e-5)


def test_bad_sizes():
    with pytest.raises(InputError, match="every size is 1 or more"):
        empty_heavy(0, 1, 2)
    q, k, v = qkv(0, 5, 2, 1, 4)
    for recent in (0, -1, 5):
        with pytest.raises(InputError, match=f"recent is {recent}, must .* 1 to 4"):
            run_heavy(q, k, v, budget=4, recent=recent)
