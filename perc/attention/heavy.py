"""A cache of B tokens that keeps what was attended to most, and the last R.

    mass += attention weights of each new query        (of every token that is kept)
    victim = least mass among the tokens that are not the last R, the oldest at a tie

With R = B nothing but the age counts, and it is a sliding window: the two are compared
by the share of full attention's weight that falls on what they kept.

References:
    Zhang et al. 2023, "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of
    Large Language Models", algorithm 1.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.attention.multihead import weights
from perc.errors import InputError, check_whole


class HeavyCache(NamedTuple):
    """B slots for each key-value head, which choose for themselves."""

    keys: jax.Array  # [B, G, D]
    values: jax.Array  # [B, G, D]
    position: jax.Array  # i32[B, G], of the token in the text, -1 = empty
    mass: jax.Array  # f32[B, G], attention received so far
    length: jax.Array  # i32[], tokens seen


class Run(NamedTuple):
    """A text of T tokens through such a cache."""

    outputs: jax.Array  # [T, H, D]
    kept: jax.Array  # i32[T, B, G], positions in the cache at each query, -1 = none


def empty_heavy(
    budget: int, kv_heads: int, head_size: int, dtype=jnp.float32
) -> HeavyCache:
    """A cache of B = `budget` empty slots.

    Raises:
        InputError: if a size is not 1 or more.
    """
    shape = (budget, kv_heads, head_size)
    if min(shape) < 1:
        raise InputError(f"a cache of shape {shape}; every size is 1 or more.")
    return HeavyCache(
        keys=jnp.zeros(shape, dtype),
        values=jnp.zeros(shape, dtype),
        position=jnp.full((budget, kv_heads), -1, jnp.int32),
        mass=jnp.zeros((budget, kv_heads), jnp.float32),
        length=jnp.int32(0),
    )


@functools.partial(jax.jit, static_argnames="recent")
def step_heavy(
    cache: HeavyCache,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    recent: int,
) -> tuple[HeavyCache, jax.Array]:
    """Adds one token, key and value [G, D], and answers its query [H, D].

    Args:
        cache: B slots.
        query: of the token, [H, D].
        key: of the token, [G, D].
        value: of the token, [G, D].
        recent: R, 1 to B; the last R tokens, this one included, stay.

    Returns:
        The cache, and the output [H, D].

    Raises:
        InputError: if R is not from 1 to B.
    """
    budget, heads = cache.position.shape
    check_whole("a cache of heavy hitters", "recent", recent, 1, budget)
    slot, every = _slot(cache, recent), jnp.arange(heads)
    cache = cache._replace(
        keys=cache.keys.at[slot, every].set(key.astype(cache.keys.dtype)),
        values=cache.values.at[slot, every].set(value.astype(cache.values.dtype)),
        position=cache.position.at[slot, every].set(cache.length),
        mass=cache.mass.at[slot, every].set(0.0),
        length=cache.length + 1,
    )
    # Slots fill alike for all heads, so the first says which of them hold a token.
    held = cache.position[:, 0] >= 0
    found = weights(query[None], cache.keys, held[None])[:, :, 0]  # [G, H / G, B]
    output = jnp.einsum("ght,tgd->ghd", found, cache.values).reshape(query.shape)
    return cache._replace(mass=cache.mass + found.sum(axis=1).T), output


def _slot(cache: HeavyCache, recent: int) -> jax.Array:
    """i32[G], the first empty slot, or that of the victim."""
    may_leave = cache.position <= cache.length - recent
    worth = jnp.where(may_leave, cache.mass, jnp.inf)
    # The last key decides first: what must stay, then mass, then age.
    victim = jnp.lexsort((cache.position, worth), axis=0)[0]
    filling = cache.length < len(cache.position)
    return jnp.where(filling, cache.length, victim)


@functools.partial(jax.jit, static_argnames=("budget", "recent"))
def run_heavy(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    *,
    budget: int,
    recent: int,
) -> Run:
    """A text [T, H, D] and [T, G, D], token by token; `recent == budget`: a window.

    Raises:
        InputError: if the budget is not 1 or more, or `recent` not from 1 to it.
    """
    cache = empty_heavy(budget, *keys.shape[1:])

    def serve(cache, token):
        cache, output = step_heavy(cache, *token, recent=recent)
        return cache, Run(output, cache.position)

    return jax.lax.scan(serve, cache, (queries, keys, values))[1]


@jax.jit
def mass_kept(queries: jax.Array, keys: jax.Array, kept: jax.Array) -> jax.Array:
    """f32[T], share of full attention's weight on what was kept, mean over heads."""
    full = weights(queries, keys, jnp.tri(len(queries), dtype=bool)).mean(axis=1)
    full = jnp.concatenate([full, jnp.zeros_like(full[..., :1])], axis=-1)  # for -1
    at = jnp.moveaxis(kept, 2, 0)  # [G, T, B]
    return jnp.take_along_axis(full, at, axis=-1).sum(axis=-1).mean(axis=0)
