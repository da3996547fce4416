"""Greedy by exact on CachePilot's mix of sessions, against an independent table."""

import functools

import jax
import numpy as np
import pytest

from perc import select
from perc.cachepilot.workloads import MIXED
from perc.cachepilot.workloads import WORKLOADS as TRAFFIC
from perc.select.session_mix import WORKLOADS, session_mix

# One generator serves the needs 1, 4, 8, ... 256 in turn, with 300 draws each: mean,
# 95th percentile and maximum of the ratio, share of draws above 1.
EXPECTED = {
    1: (50.598, 108.926, 295.882, 1.00),
    32: (2.765, 5.920, 9.449, 0.96),
    128: (1.099, 1.547, 3.512, 0.26),
}


@pytest.fixture(scope="module")
def draws():
    generator = np.random.default_rng(0)
    return {
        need: [session_mix(generator) for _ in range(300)]
        for need in (1, 4, 8, 16, 32, 64, 128)
    }


@pytest.mark.parametrize("need", EXPECTED)
def test_ratios_of_the_table(draws, need):
    blocks, loss = (np.stack(column) for column in zip(*draws[need], strict=True))
    assert (blocks.sum(axis=1) >= need).all()
    items = select.items(blocks, loss)
    needs = np.full(len(blocks), need)
    exact = jax.vmap(functools.partial(select.exact, most=128))(items, needs)
    greedy = jax.vmap(select.greedy)(items, needs)
    assert (exact.freed >= need).all()
    spent = [np.where(choice.mask, loss, 0).sum(axis=1) for choice in (greedy, exact)]
    ratio = spent[0] / spent[1]
    found = ratio.mean(), np.percentile(ratio, 95), ratio.max()
    np.testing.assert_allclose(found, EXPECTED[need][:3], rtol=1e-3)
    assert np.mean(ratio > 1 + 1e-6) == pytest.approx(EXPECTED[need][3], abs=0.005)
    # Exact is at least the bound that the greedy proves.
    assert (greedy.bound <= exact.cost * (1 + 1e-5)).all()


def test_its_table_is_that_of_the_traffic():
    """Both come from CachePilot; they were written down apart."""
    traffic = {
        name: (MIXED[name], *kind.prompt, *kind.rates_per_s)
        for name, kind in TRAFFIC.items()
    }
    assert traffic == WORKLOADS
