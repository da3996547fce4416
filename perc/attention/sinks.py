"""A cache of the first S tokens and the last W: endless text in bounded memory.

Attention gives much weight to the first tokens whatever they are, so a plain window
breaks down when they leave. Kept as sinks, they hold the model up. Positions count
inside the cache, not in the text: keys are stored unrotated, and turned when read.

References:
    Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks",
    section 3.2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.attention.multihead import attend
from perc.attention.rotary import rotate
from perc.errors import InputError


class SinkCache(NamedTuple):
    """Slots 0..S-1 hold the sinks, the W others the last tokens, in a ring."""

    keys: jax.Array  # [S + W, G, D], not rotated
    values: jax.Array  # [S + W, G, D]
    position: jax.Array  # i32[S + W], of the token in the text, -1 = empty
    length: jax.Array  # i32[], tokens seen


def empty_sinks(
    sinks: int, window: int, kv_heads: int, head_size: int, dtype=jnp.float32
) -> SinkCache:
    """A cache without tokens, for S = `sinks` and W = `window`.

    Raises:
        InputError: unless sinks >= 0 and the other sizes >= 1.

    Example:
        >>> cache = empty_sinks(1, 2, kv_heads=1, head_size=2)
        >>> for _ in range(5):
        ...     cache = append_sinks(cache, jnp.ones((1, 2)), jnp.ones((1, 2)), sinks=1)
        >>> cache.position.tolist(), places(cache, sinks=1).tolist()
        ([0, 3, 4], [0, 1, 2])
    """
    if sinks < 0 or min(window, kv_heads, head_size) < 1:
        raise InputError(
            f"{sinks} sinks, a window of {window}, {kv_heads} heads of {head_size}; "
            "give 0 or more sinks, and 1 or more of all else."
        )
    shape = (sinks + window, kv_heads, head_size)
    return SinkCache(
        keys=jnp.zeros(shape, dtype),
        values=jnp.zeros(shape, dtype),
        position=jnp.full(sinks + window, -1, jnp.int32),
        length=jnp.int32(0),
    )


@functools.partial(jax.jit, static_argnames="sinks")
def append_sinks(
    cache: SinkCache, key: jax.Array, value: jax.Array, *, sinks: int
) -> SinkCache:
    """Adds one token, [G, D] each; the oldest one behind the sinks makes room."""
    window = len(cache.position) - sinks
    n = cache.length
    slot = jnp.where(n < sinks, n, sinks + (n - sinks) % window)
    return SinkCache(
        keys=cache.keys.at[slot].set(key.astype(cache.keys.dtype)),
        values=cache.values.at[slot].set(value.astype(cache.values.dtype)),
        position=cache.position.at[slot].set(n),
        length=n + 1,
    )


def places(cache: SinkCache, *, sinks: int) -> jax.Array:
    """i32[S + W], the place of each token among those kept, -1 = empty slot."""
    gone = jnp.maximum(cache.length - len(cache.position), 0)
    behind = cache.position >= sinks
    return jnp.where(behind, cache.position - gone, cache.position)


@functools.partial(jax.jit, static_argnames=("sinks", "base"))
def attend_sinks(
    cache: SinkCache, query: jax.Array, *, sinks: int, base: float = 10_000.0
) -> jax.Array:
    """Output [H, D] of the unrotated query [H, D] of the token added last."""
    place = places(cache, sinks=sinks)
    keys = rotate(cache.keys, place, base)
    turned = rotate(query[None], place.max()[None], base)
    return attend(turned, keys, cache.values, (place >= 0)[None])[0]
