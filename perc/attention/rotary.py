"""Rotary positions: queries and keys turned by their place; only distances count.

    (x_i, x_{i + D/2}) turned by the angle  position * base**(-2 i / D)

References:
    Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    equation 34, in the pairing of halves that Llama uses.
"""

import jax
import jax.numpy as jnp


def rotate(x: jax.Array, position: jax.Array, base: float = 10_000.0) -> jax.Array:
    """Turns x [n, H, D] (D even) to the positions i32[n].

    Example:
        >>> rotate(jnp.ones((1, 1, 2)), jnp.array([0])).tolist()
        [[[1.0, 1.0]]]
    """
    half = x.shape[-1] // 2
    rate = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = position.astype(jnp.float32)[:, None, None] * rate
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = x[..., :half], x[..., half:]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
