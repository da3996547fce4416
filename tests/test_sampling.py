"""Sampled estimates: what they keep, how far off they are, and that they say so."""

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.policies.registry import registry
from perc.sampling import estimate, sample_blocks


@pytest.fixture(scope="module")
def chat():
    return perc.make("chat", requests=4000)


def test_a_sample_keeps_every_access_of_its_blocks(chat):
    part = sample_blocks(chat, 0.2, 0.5)
    assert 0.27 < part.n_blocks / chat.n_blocks < 0.33
    assert part.n_requests == chat.n_requests
    assert np.array_equal(np.diff(part.stop), (part.stop - part.start)[1:])
    uses = np.sort(np.bincount(part.block))
    whole = np.bincount(chat.block)
    assert np.isin(uses, whole).all()
    # Disjoint samples that cover the range share the accesses out.
    rest = [sample_blocks(chat, 0.0, 0.2), sample_blocks(chat, 0.5, 1.0)]
    assert part.n_accesses + sum(p.n_accesses for p in rest) == chat.n_accesses


@pytest.mark.parametrize("name", ["lru", "perc_decay", "belady"])
def test_estimates_lie_within_their_error(chat, name):
    sizes = [500, 2000, 8000]
    policy = registry[name]()
    exact = [r.block_hit_ratio for r in perc.compare(chat, [policy], sizes).rows]
    found = estimate(policy, chat, sizes, rate=0.1, samples=10)
    for own, true in zip(found, exact, strict=True):
        assert 0 < own.standard_error < 0.02
        assert abs(own.block_hit_ratio - true) < 4 * own.standard_error


def test_all_blocks_in_samples_of_half_average_to_the_ceiling(chat):
    (found,) = estimate(registry["lru"](), chat, [chat.n_blocks], rate=0.5, samples=2)
    ceiling = np.count_nonzero(chat.prev >= 0) / chat.n_accesses
    assert found.block_hit_ratio == pytest.approx(ceiling, abs=1e-9)


@pytest.mark.parametrize(("rate", "samples"), [(0.3, 5), (0.0, 5), (0.1, 1)])
def test_samples_must_fit(chat, rate, samples):
    with pytest.raises(InputError, match="samples at a rate"):
        estimate(registry["lru"](), chat, [10], rate=rate, samples=samples)
