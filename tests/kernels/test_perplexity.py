"""The forward pass that `benchmarks/perplexity.py` measures with, on a tiny model."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc.kernels.formats import Format

FOLDER = Path(__file__).parents[2] / "benchmarks"
if not FOLDER.is_dir():
    pytest.skip("run away from a checkout", allow_module_level=True)
VOCABULARY, LAYERS, WIDTH, HEADS, KV_HEADS, SIZE, INNER = 50, 2, 24, 4, 2, 8, 40


@pytest.fixture
def perplexity(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("perplexity")


@pytest.fixture
def model(perplexity):
    rng = np.random.default_rng(3)

    def drawn(*shape):
        return rng.normal(size=shape, scale=0.4).astype(np.float32)

    layers = perplexity.Layer(
        1 + drawn(LAYERS, WIDTH),
        drawn(LAYERS, WIDTH, HEADS, SIZE),
        drawn(LAYERS, WIDTH, KV_HEADS, SIZE),
        drawn(LAYERS, WIDTH, KV_HEADS, SIZE),
        drawn(LAYERS, HEADS, SIZE, WIDTH),
        1 + drawn(LAYERS, WIDTH),
        drawn(LAYERS, WIDTH, INNER),
        drawn(LAYERS, WIDTH, INNER),
        drawn(LAYERS, INNER, WIDTH),
    )
    return perplexity.Model(
        drawn(VOCABULARY, WIDTH), layers, 1 + drawn(WIDTH), 1e4, 1e-5
    )


def text_of(windows=2, length=48):
    return np.random.default_rng(4).integers(0, VOCABULARY, (windows, length + 1))


def uncached(model, text, stored=lambda pages, which: pages, page=16):
    """-log of each next token of one window in plain numpy, float64, no cache.

    Every query sees its own page's keys and values as they are, earlier pages through
    `stored`, head by head.
    """
    layers, length = model.layers, len(text) - 1
    hidden = model.embedding[text[:-1]].astype(np.float64)
    for n in range(LAYERS):
        x = normed(hidden, layers.attention_norm[n], model.epsilon)
        mixed = np.zeros((length, HEADS, SIZE))
        for h in range(HEADS):
            g = h // (HEADS // KV_HEADS)
            query = turned(x @ layers.query[n][:, h], model.theta)
            key = turned(x @ layers.key[n][:, g], model.theta)
            value = x @ layers.value[n][:, g]
            old_key, old_value = stored(key, "keys"), stored(value, "values")
            for t in range(length):
                first = t // page * page
                seen = np.concatenate([old_key[:first], key[first : t + 1]])
                share = np.exp(seen @ query[t] / SIZE**0.5)
                seen = np.concatenate([old_value[:first], value[first : t + 1]])
                mixed[t, h] = share @ seen / share.sum()
        hidden = hidden + np.einsum("thd,hde->te", mixed, layers.out[n])
        x = normed(hidden, layers.unit_norm[n], model.epsilon)
        gate = x @ layers.gate[n]
        hidden = (
            hidden + (gate / (1 + np.exp(-gate)) * (x @ layers.up[n])) @ layers.down[n]
        )
    logits = normed(hidden, model.norm, model.epsilon) @ model.embedding.T
    total = np.log(np.exp(logits).sum(1))
    return total - logits[np.arange(length), text[1:]]


def normed(x, weight, epsilon):
    return x / np.sqrt((x**2).mean(1, keepdims=True) + epsilon) * weight


def turned(x, theta):
    """Channels d and d + D / 2 as one complex number, turned by the position."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] / theta ** (np.arange(half) / half)
    z = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], axis=1)


def test_page_by_page_equals_reading_at_once(perplexity, model):
    text = text_of()
    lost, best = perplexity.read(model, jnp.asarray(text, jnp.int32), dtype="float32")
    assert lost.shape == best.shape == (2, 48)
    for window, found in zip(text, lost, strict=True):
        np.testing.assert_allclose(found, uncached(model, window), atol=2e-4)


def test_later_pages_read_what_was_stored(perplexity, model):
    """int8 with a scale a token and head, by numpy, against the formats."""

    def rounded(x, which):
        scale = abs(x).max(1, keepdims=True) / 127
        return np.round(x / scale) * scale

    text, form = text_of(), Format("int8")
    given = jnp.asarray(text, jnp.int32)
    lost, _ = perplexity.read(model, given, keys=form, values=form, dtype="float32")
    plain, _ = perplexity.read(model, given, dtype="float32")
    expected = np.stack([uncached(model, window, rounded) for window in text])
    np.testing.assert_allclose(lost, expected, atol=1e-3)
    assert abs(lost - plain).max() > 0.1
    np.testing.assert_array_equal(lost[:, :16], plain[:, :16])


def test_only_what_has_a_format_is_changed(perplexity, model):
    """Values in two bits, keys as they are: another answer than the other way round."""
    text, form = jnp.asarray(text_of(), jnp.int32), Format("int2", symmetric=False)
    found = [
        perplexity.read(model, text, keys=k, values=v)[0]
        for k, v in ((None, None), (form, None), (None, form), (None, None))
    ]
    assert jnp.array_equal(found[0], found[3])
    assert all((a != b).any() for a, b in zip(found[:2], found[1:3], strict=True))


def test_a_page_without_a_format_comes_back_as_it_was(perplexity):
    pages = jax.random.normal(jax.random.key(0), (2, 16, 2, 8))
    assert perplexity.stored(pages, None) is pages
    error = abs(perplexity.stored(pages, Format("int8")) - pages).max()
    assert 0 < error < abs(pages).max() / 253


def test_windows_are_spread_over_the_text(perplexity):
    found = perplexity.windows_of(np.arange(100), 3, 16)
    assert found.shape == (3, 17)
    assert found[:, 0].tolist() == [0, 41, 83] and found[-1, -1] == 99
