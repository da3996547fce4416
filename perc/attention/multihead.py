"""Causal attention, in full and with an append-only cache; heads may share keys.

    out = softmax(q k^T / sqrt(D)) v,  over the keys at or before the query

Keys and values of a token never change, so they are kept; its query is used once and
never kept. With G < H key-value heads, H / G query heads read each: the cache is that
much smaller, and the result is that of G heads repeated.

References:
    Vaswani et al. 2017, "Attention Is All You Need", equation 1; Ainslie et al. 2023,
    "GQA: Training Generalized Multi-Query Transformer Models".
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import InputError


class KVCache(NamedTuple):
    """Keys and values of at most T tokens of one layer."""

    keys: jax.Array  # [T, G, D]
    values: jax.Array  # [T, G, D]
    length: jax.Array  # i32[], tokens in it


def empty_cache(
    capacity: int, kv_heads: int, head_size: int, dtype=jnp.float32
) -> KVCache:
    """A cache without tokens.

    Raises:
        InputError: if a size is not 1 or more.

    Example:
        >>> cache = empty_cache(4, kv_heads=1, head_size=2)
        >>> cache, fits = append(cache, jnp.ones((3, 1, 2)), jnp.ones((3, 1, 2)))
        >>> int(cache.length), bool(fits)
        (3, True)
    """
    shape = (capacity, kv_heads, head_size)
    if min(shape) < 1:
        raise InputError(f"a cache of shape {shape}; every size is 1 or more.")
    return KVCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.int32(0))


@jax.jit
def append(
    cache: KVCache, keys: jax.Array, values: jax.Array
) -> tuple[KVCache, jax.Array]:
    """Adds n tokens, [n, G, D] each; returns whether they fit, else nothing changes."""
    size, n = len(cache.keys), len(keys)
    fits = cache.length + n <= size
    at = jnp.where(fits, cache.length + jnp.arange(n), size)
    return KVCache(
        keys=cache.keys.at[at].set(keys.astype(cache.keys.dtype), mode="drop"),
        values=cache.values.at[at].set(values.astype(cache.values.dtype), mode="drop"),
        length=cache.length + jnp.where(fits, n, 0),
    ), fits


@jax.jit
def decode(cache: KVCache, queries: jax.Array) -> jax.Array:
    """Outputs [n, H, D] of the queries of the last n tokens in the cache."""
    n = len(queries)
    place = cache.length - n + jnp.arange(n)
    mask = jnp.arange(len(cache.keys)) <= place[:, None]
    return attend(queries, cache.keys, cache.values, mask)


@jax.jit
def causal(queries: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """Outputs [n, H, D] of a whole prompt at once: what `decode` must equal."""
    return attend(queries, keys, values, jnp.tri(len(queries), dtype=bool))


def scores(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Scaled products f32[G, H / G, n, t]; head h of H reads key-value head h G / H.

    Raises:
        ValueError: if the query heads are not a multiple of the key-value heads.
    """
    n, heads, size = queries.shape
    kv_heads = keys.shape[1]
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} evenly")
    grouped = queries.reshape(n, kv_heads, heads // kv_heads, size)
    products = jnp.einsum("nghd,tgd->ghnt", grouped, keys)
    return products.astype(jnp.float32) / math.sqrt(size)


def weights(queries: jax.Array, keys: jax.Array, mask: jax.Array) -> jax.Array:
    """Attention weights f32[G, H / G, n, t]: 0 where `mask` bool[n, t] is not set.

    A query without any key gets none.
    """
    found = jax.nn.softmax(jnp.where(mask, scores(queries, keys), -jnp.inf))
    return jnp.where(mask, found, 0.0)


def attend(
    queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
    """Outputs f32[n, H, D]: each query's weighted mean of the values."""
    mixed = jnp.einsum("ghnt,tgd->nghd", weights(queries, keys, mask), values)
    return mixed.reshape(queries.shape)
