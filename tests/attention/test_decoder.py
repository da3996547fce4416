"""The model writes the same with the cache and without, for a hundredth of the work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc.attention.decoder import (
    empty_caches,
    forward,
    next_recomputed,
    random_model,
    token_forwards,
    write_cached,
    write_recomputed,
)
from perc.errors import InputError


@pytest.fixture(scope="module")
def model():
    return random_model(jax.random.key(0), layers=2, heads=4, kv_heads=2, head_size=8)


def test_the_same_128_tokens_after_a_prompt_of_128(model):
    prompt = jax.random.randint(jax.random.key(1), (128,), 0, 256)
    cached = write_cached(model, prompt, new=128).tolist()
    assert cached == write_recomputed(model, prompt, new=128).tolist()
    assert len(cached) == 128 and len(set(cached)) > 20


def test_the_work():
    full = token_forwards(128, 128, cached=False)
    kept = token_forwards(128, 128, cached=True)
    assert (full, kept) == (24_512, 255) and round(full / kept, 3) == 96.125
    ratios = [
        token_forwards(128, n, cached=False) / token_forwards(128, n, cached=True)
        for n in (1, 2, 32, 128, 512)
    ]
    assert ratios[0] == 1 and ratios == sorted(ratios)
    for none in ((0, 1), (1, 0), (0, 0)):
        with pytest.raises(InputError, match="is 0, must be a whole number from 1"):
            token_forwards(*none, cached=True)


def test_a_step_with_the_cache_takes_ever_less_of_the_arithmetic(model):
    """Script 3: more than 1 times as fast, and growing, in operations XLA counts."""

    def flops(step, *arguments) -> float:
        return step.lower(model, *arguments).compile().cost_analysis()["flops"]

    ratios = []
    for length in (16, 128):
        text = jnp.zeros(length, jnp.int32)
        anew = flops(next_recomputed, text, length)
        ratios.append(anew / flops(forward, empty_caches(model, length), text[:1]))
    assert 1 < ratios[0] < ratios[1] / 2


def test_logits_do_not_depend_on_how_the_text_is_cut(model):
    text = jax.random.randint(jax.random.key(2), (12,), 0, 256)
    _, whole = forward(model, empty_caches(model, 12), text)
    caches, pieces = empty_caches(model, 12), []
    for part in jnp.split(text, [3]):
        caches, logits = forward(model, caches, part)
        pieces.append(logits)
    assert caches.length.tolist() == [12, 12]
    np.testing.assert_allclose(jnp.concatenate(pieces), whole, rtol=1e-3, atol=1e-3)


def test_one_new_token(model):
    prompt = jnp.array([3, 1, 4])
    assert (
        write_cached(model, prompt, new=1).tolist()
        == write_recomputed(model, prompt, new=1).tolist()
    )


def test_bad_shapes():
    with pytest.raises(InputError, match="a multiple of the second"):
        random_model(jax.random.key(0), heads=3, kv_heads=2)
