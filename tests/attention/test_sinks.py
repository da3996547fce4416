"""Sinks and window: who stays, where it counts as standing, what comes out."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.attention.multihead import causal
from perc.attention.rotary import rotate
from perc.attention.sinks import append_sinks, attend_sinks, empty_sinks, places
from perc.errors import InputError
from tests.attention.given import qkv
from tests.oracles import attention as oracle


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.sampled_from([(0, 1), (0, 3), (2, 1), (2, 4), (4, 3)]))
def test_against_numpy_at_every_length(seed, sizes):
    sinks, window = sizes
    q, k, v = qkv(seed, 11, 4, 2, 6)
    cache = empty_sinks(sinks, window, 2, 6)
    for i in range(11):
        cache = append_sinks(cache, k[i], v[i], sinks=sinks)
        out, kept = oracle.sinks(q[: i + 1], k[: i + 1], v[: i + 1], sinks, window)
        position = np.asarray(cache.position)
        assert sorted(position[position >= 0].tolist()) == kept
        assert len(kept) <= sinks + window
        place = np.asarray(places(cache, sinks=sinks))
        order = np.argsort(position[position >= 0])
        assert place[position >= 0][order].tolist() == list(range(len(kept)))
        found = attend_sinks(cache, q[i], sinks=sinks)
        np.testing.assert_allclose(found, out, atol=1e-5)


def test_while_nothing_has_left_it_is_full_attention():
    q, k, v = qkv(1, 6, 2, 2, 4)
    cache = empty_sinks(2, 4, 2, 4)
    at = jnp.arange(6)
    full = causal(rotate(q, at), rotate(k, at), v)
    for i in range(6):
        cache = append_sinks(cache, k[i], v[i], sinks=2)
        np.testing.assert_allclose(
            attend_sinks(cache, q[i], sinks=2), full[i], atol=1e-5
        )


def test_only_distances_count():
    x, y = qkv(2, 1, 1, 1, 8)[:2]

    def product(a, b):
        return float((rotate(x, jnp.array([a])) * rotate(y, jnp.array([b]))).sum())

    assert product(3, 7) == pytest.approx(product(103, 107), abs=1e-4)
    assert abs(product(3, 7) - product(3, 8)) > 1e-3
    np.testing.assert_allclose(
        rotate(x, jnp.array([5]))[0, 0], oracle.rotate(x[0, 0], 5), atol=1e-5
    )


def test_bad_sizes():
    for sizes in ((-1, 4), (2, 0)):
        with pytest.raises(InputError, match="0 or more sinks"):
            empty_sinks(*sizes, 1, 2)
