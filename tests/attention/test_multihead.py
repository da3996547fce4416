"""With the cache as without it, heads shared as repeated, the future unseen."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.attention import multihead
from perc.attention.multihead import append, causal, decode, empty_cache
from perc.errors import InputError
from tests.attention.given import qkv
from tests.oracles import attention as oracle


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 99), st.sampled_from([(4, 4), (4, 2), (6, 1)]))
def test_cached_is_full_is_numpy(seed, heads):
    q, k, v = qkv(seed, 7, heads[0], heads[1], 6)
    cache, outputs = empty_cache(9, heads[1], 6), []
    for i in range(7):
        cache, fits = append(cache, k[i : i + 1], v[i : i + 1])
        assert fits and int(cache.length) == i + 1
        outputs.append(decode(cache, q[i : i + 1])[0])
    full = causal(q, k, v)
    np.testing.assert_allclose(jnp.stack(outputs), full, atol=1e-5)
    np.testing.assert_allclose(full, oracle.causal(q, k, v), atol=1e-5)


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_a_prompt_in_pieces_is_the_prompt(cut):
    q, k, v = qkv(1, 7, 4, 2, 8)
    cache, _ = append(empty_cache(7, 2, 8), k[:cut], v[:cut])
    first = decode(cache, q[:cut])
    cache, _ = append(cache, k[cut:], v[cut:])
    pieces = np.concatenate([first, decode(cache, q[cut:])])
    np.testing.assert_allclose(pieces, causal(q, k, v), atol=1e-5)


def test_the_future_changes_nothing():
    q, k, v = qkv(2, 6, 2, 2, 4)
    before = causal(q, k, v)
    k[4:], v[4:] = 99.0, -99.0
    np.testing.assert_array_equal(causal(q, k, v)[:4], before[:4])
    assert not np.allclose(causal(q, k, v)[4], before[4])


@pytest.mark.parametrize("ratio", [4, 8])
def test_shared_heads_are_repeated_heads_and_take_that_much_less(ratio):
    q, k, v = qkv(3, 5, 8, 8 // ratio, 4)
    wide = [np.repeat(x, ratio, axis=1) for x in (k, v)]
    np.testing.assert_allclose(causal(q, k, v), causal(q, *wide), atol=1e-6)
    shared, own = (
        sum(x.nbytes for x in empty_cache(16, heads, 4)[:2])
        for heads in (8 // ratio, 8)
    )
    assert own == ratio * shared


def test_what_does_not_fit_changes_nothing():
    _, k, v = qkv(4, 3, 1, 1, 2)
    cache, _ = append(empty_cache(4, 1, 2), k, v)
    after, fits = append(cache, k, v)
    assert not fits and int(after.length) == 3
    np.testing.assert_array_equal(after.keys, cache.keys)


@pytest.mark.parametrize("n", [1, 33, 100, 257])
def test_scores_of_one_query(n):
    q, k, _ = qkv(5, 1, 1, 1, 64, keys=n)
    exact = k[:, 0].astype(np.float64) @ q[0, 0].astype(np.float64) / 8.0
    found = multihead.scores(q, k)[0, 0, 0]
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)


def test_a_query_without_keys_gets_zeros():
    q, k, v = qkv(6, 2, 2, 1, 4)
    mask = jnp.array([[False, False], [True, False]])
    out = multihead.attend(q, k, v, mask)
    np.testing.assert_array_equal(out[0], 0)
    np.testing.assert_allclose(out[1], np.repeat(v[:1, 0], 2, axis=0), rtol=1e-6)


def test_half_precision_is_kept_as_it_is():
    _, k, v = qkv(7, 2, 2, 2, 4)
    cache, _ = append(empty_cache(2, 2, 4, jnp.bfloat16), k, v)
    assert cache.keys.dtype == jnp.bfloat16
    assert (cache.keys == k.astype(jnp.bfloat16)).all()


def test_bad_shapes():
    with pytest.raises(InputError, match="every size is 1 or more"):
        empty_cache(0, 1, 2)
    q, k, v = qkv(8, 2, 3, 2, 4)
    with pytest.raises(ValueError, match="3 query heads cannot share 2"):
        causal(q, k, v)
