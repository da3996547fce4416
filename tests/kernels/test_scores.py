"""Scores and victims against plain Python."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.kernels.evict import evict
from perc.kernels.formats import FORMATS
from perc.kernels.quantised import dequantise, quantise
from perc.kernels.scores import scores
from perc.kernels.victims import victims
from tests.kernels.common import pool_of

PAGE = (8, 2, 16)
TABLES = [[2, -1, 0], [1, 3, 9]]
LENGTHS = [24, 11]


def plain_scores(query, keys, scale):
    """Scores token by token and head by head; keys as float pages [P, B, H, D]."""
    tokens, heads, _ = PAGE
    group = query.shape[1] // heads
    out = np.full((2, query.shape[1], 3 * tokens), -np.inf)
    for s, table in enumerate(TABLES):
        for t in range(min(LENGTHS[s], 3 * tokens)):
            page = table[t // tokens]
            if 0 <= page < len(keys):
                for h in range(query.shape[1]):
                    key = keys[page, t % tokens, h // group]
                    out[s, h, t] = scale * float(query[s, h] @ key)
    return out


@pytest.mark.parametrize("name", [None, *FORMATS])
def test_scores_are_those_of_the_keys_as_restored(name):
    keys = pool_of(4, (4, *PAGE), "float32")
    query = jnp.asarray(np.random.default_rng(5).normal(size=(2, 6, 16)), jnp.float32)
    tables, lengths = jnp.array(TABLES), jnp.array(LENGTHS)
    if name is None:
        out = scores(query, keys, tables, lengths, scale=0.25)
    else:
        form = FORMATS[name]
        stored = jax.jit(evict, static_argnums=2)(keys, jnp.arange(4), form)
        keys = jax.jit(lambda k: dequantise(quantise(k, form), form, PAGE, k.dtype))(
            keys
        )
        score = jax.jit(partial(scores, scale=0.25, form=form, page=PAGE))
        out = score(query, stored, tables, lengths)
    expected = plain_scores(np.asarray(query, float), np.asarray(keys, float), 0.25)
    assert np.array_equal(np.isfinite(out), np.isfinite(expected))
    seen = np.isfinite(expected)
    assert np.allclose(np.asarray(out)[seen], expected[seen], rtol=1e-5, atol=2e-5)


WHOLE = st.integers(-3, 3).map(float)
SLOTS = st.lists(
    st.tuples(WHOLE, st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]), st.booleans()),
    min_size=6,
    max_size=6,
)


@given(slots=SLOTS, k=st.sampled_from([1, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_victims_are_the_lowest_unpinned_slots(slots, k):
    features = np.array([[a for a, _, _ in slots], [b for _, b, _ in slots]], "f4")
    pinned = np.array([p for _, _, p in slots])
    weights = np.array([0.5, -2.0], "f4")

    def score(slot):
        terms = [
            np.clip(w * f, -(2.0**96), 2.0**96)
            for w, f in zip(weights, slot[:2], strict=True)
        ]
        total = terms[0] + terms[1]
        return -np.inf if np.isnan(total) else total

    order = sorted(range(len(slots)), key=lambda i: (score(slots[i]), i))
    # among NaN and numbers only NaN is -inf: infinities are clipped
    expected = [i for i in order if not pinned[i]][:k]
    found = victims(jnp.asarray(features), jnp.asarray(weights), jnp.asarray(pinned), k)
    assert found.tolist() == expected + [-1] * (k - len(expected))
