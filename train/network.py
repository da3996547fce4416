"""Networks for training: drawn from a key, and their inputs' scales."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc.train.examples import Examples

Net = Any  # ((f32[in, out], f32[out]), ...), one network


def draw(key: jax.Array, widths: tuple[int, ...]) -> Net:
    """A network whose outputs are small at first (He et al. 2015, ICCV)."""
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        size = jnp.sqrt(2 / inputs) * (0.1 if i == len(widths) - 2 else 1.0)
        w = size * jax.random.normal(jax.random.fold_in(key, i), (inputs, outputs))
        layers.append((w, jnp.zeros(outputs)))
    return tuple(layers)


def scales(found: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale f32[H] of the inputs; constant ones have scale 1."""
    mean, deviation = found.history.mean(axis=0), found.history.std(axis=0)
    scale = np.where(deviation > 1e-4, deviation, 1.0)
    return mean.astype(np.float32), scale.astype(np.float32)
