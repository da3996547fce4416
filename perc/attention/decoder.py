"""A small decoder that writes with its cache, or without one, and counts the work.

    without  every new token sends the whole text through the model again
    with     the prompt goes through once, then one token at a time

Both give the same tokens. A prompt of P and G new tokens take G P + G (G - 1) / 2
passes of a token through the model, or P + G - 1.

The model is of Llama's kind: rotary positions, shared key-value heads, gated units; its
weights are drawn from a key, for it is to be measured, not read.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from perc.attention.multihead import KVCache, append, decode, empty_cache
from perc.attention.rotary import rotate
from perc.errors import INT32_MAX, InputError, check_whole


class Layer(NamedTuple):
    """Weights of a layer; of all layers with a first axis more."""

    query: jax.Array  # [E, H, D]
    key: jax.Array  # [E, G, D]
    value: jax.Array  # [E, G, D]
    out: jax.Array  # [H, D, E]
    gate: jax.Array  # [E, 4 E]
    up: jax.Array  # [E, 4 E]
    down: jax.Array  # [4 E, E]


class Model(NamedTuple):
    """A decoder over V tokens."""

    embedding: jax.Array  # [V, E]
    layers: Layer
    reading: jax.Array  # [E, V], from the last layer to logits


def random_model(
    key: jax.Array,
    *,
    vocabulary: int = 256,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_size: int = 16,
) -> Model:
    """Draws a model of width E = H D; the key is consumed.

    Raises:
        InputError: if heads cannot be shared evenly, or D is odd.
    """
    if heads % kv_heads or head_size % 2:
        raise InputError(
            f"{heads} heads over {kv_heads}, of size {head_size}; the first must be a "
            "multiple of the second, the size even."
        )
    return _draw(key, vocabulary, layers, heads, kv_heads, head_size)


@functools.partial(jax.jit, static_argnums=range(1, 6))
def _draw(key, vocabulary, layers, heads, kv_heads, head_size) -> Model:
    """All weights are cut from one draw, so that one program makes them."""
    width = heads * head_size
    one = {
        "query": (width, heads, head_size),
        "key": (width, kv_heads, head_size),
        "value": (width, kv_heads, head_size),
        "out": (heads, head_size, width),
        "gate": (width, 4 * width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    shapes = [(vocabulary, width), *((layers, *one[n]) for n in Layer._fields)]
    shapes.append((width, vocabulary))
    stops = np.cumsum([math.prod(shape) for shape in shapes])
    drawn = jnp.split(jax.random.normal(key, (int(stops[-1]),)), stops[:-1])
    embedding, *inner, reading = (
        x.reshape(shape) for x, shape in zip(drawn, shapes, strict=True)
    )
    return Model(embedding, Layer(*(x * width**-0.5 for x in inner)), reading)


def empty_caches(model: Model, capacity: int) -> KVCache:
    """Caches of all layers, of T = `capacity` tokens, with a first axis more."""
    layers, _, kv_heads, head_size = model.layers.key.shape
    one = empty_cache(capacity, kv_heads, head_size)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (layers, *x.shape)), one)


@jax.jit
def forward(
    model: Model, caches: KVCache, tokens: jax.Array
) -> tuple[KVCache, jax.Array]:
    """Sends n tokens i32[n] through, behind those in the caches, which have room.

    Returns:
        The caches with them, and logits f32[n, V].
    """
    position = caches.length[0] + jnp.arange(len(tokens))

    def through(x, layer_and_cache):
        layer, cache = layer_and_cache
        h = _normal(x)
        query = rotate(jnp.einsum("ne,ehd->nhd", h, layer.query), position)
        key = rotate(jnp.einsum("ne,egd->ngd", h, layer.key), position)
        cache, _ = append(cache, key, jnp.einsum("ne,egd->ngd", h, layer.value))
        x = x + jnp.einsum("nhd,hde->ne", decode(cache, query), layer.out)
        h = _normal(x)
        return x + (jax.nn.silu(h @ layer.gate) * (h @ layer.up)) @ layer.down, cache

    x, caches = jax.lax.scan(through, model.embedding[tokens], (model.layers, caches))
    return caches, _normal(x) @ model.reading


@functools.partial(jax.jit, static_argnames="new")
def write_cached(model: Model, prompt: jax.Array, *, new: int) -> jax.Array:
    """The likeliest continuation i32[new] of a prompt i32[P], with the cache."""
    caches = empty_caches(model, len(prompt) + new)
    caches, logits = forward(model, caches, prompt)

    def one(state, _):
        caches, token = state
        caches, logits = forward(model, caches, token[None])
        return (caches, _likeliest(logits[0])), token

    start = (caches, _likeliest(logits[-1]))
    (_, last), tokens = jax.lax.scan(one, start, length=new - 1)
    return jnp.append(tokens, last)


@jax.jit
def next_recomputed(model: Model, text: ArrayLike, length: ArrayLike) -> jax.Array:
    """The likeliest token after the first `length` of a padded text i32[T]."""
    text = jnp.asarray(text)
    _, logits = forward(model, empty_caches(model, len(text)), text)
    return _likeliest(logits[length - 1])


@functools.partial(jax.jit, static_argnames="new")
def write_recomputed(model: Model, prompt: jax.Array, *, new: int) -> jax.Array:
    """What `write_cached` writes, without a cache."""
    size = len(prompt)
    text = jnp.concatenate([prompt, jnp.zeros(new, prompt.dtype)])

    def one(i, text):
        return text.at[size + i].set(next_recomputed(model, text, size + i))

    return jax.lax.fori_loop(0, new, one, text)[size:]


def token_forwards(prompt: int, new: int, *, cached: bool) -> int:
    """Passes of a token through the model for `new` tokens after a prompt.

    Raises:
        InputError: if either is less than 1 token.

    Example:
        >>> [token_forwards(128, 128, cached=cached) for cached in (False, True)]
        [24512, 255]
    """
    check_whole("a decoder", "prompt", prompt, 1, INT32_MAX)
    check_whole("a decoder", "new", new, 1, INT32_MAX)
    if cached:
        return prompt + new - 1
    return new * prompt + new * (new - 1) // 2


def _normal(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def _likeliest(logits: jax.Array) -> jax.Array:
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)
