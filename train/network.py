"""Networks for training: drawn from a key, and their inputs' scales."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc import npz
from perc.errors import InputError
from perc.history import NAMES
from perc.train.examples import MOST_BINS, Examples

Net = Any  # ((f32[in, out], f32[out]), ...), one network
# Of a file, for networks: its header and classes take the rest.
ROOM_BYTES = npz.LIMIT_BYTES - npz.HEADER_LIMIT_BYTES - (1 << 20)


def draw(key: jax.Array, widths: tuple[int, ...]) -> Net:
    """A network whose outputs are small at first (He et al. 2015, ICCV)."""
    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        size = jnp.sqrt(2 / inputs) * (0.1 if i == len(widths) - 2 else 1.0)
        w = size * jax.random.normal(jax.random.fold_in(key, i), (inputs, outputs))
        layers.append((w, jnp.zeros(outputs)))
    return tuple(layers)


def scales(found: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale f32[H] of the inputs; constant ones have scale 1."""
    mean, deviation = found.history.mean(axis=0), found.history.std(axis=0)
    scale = np.where(deviation > 1e-4, deviation, 1.0)
    return mean.astype(np.float32), scale.astype(np.float32)


def check_storable(members: int, hidden: tuple[int, ...]) -> None:
    """Finds before training that no policy file could hold the networks.

    Raises:
        InputError: if they can have more bytes than fit, with as many bins of age as
            traffic may want.
    """
    widths = (len(NAMES) + 1, *hidden, MOST_BINS)  # 1 = the price, of a lease network
    size = 4 * members * sum((n + 1) * m for n, m in pairwise(widths))
    if size > ROOM_BYTES:
        raise InputError(
            f"{members} networks with hidden layers of {hidden} have up to {size:,} "
            f"bytes, at most {ROOM_BYTES:,} fit into a policy file. Give narrower "
            "layers, fewer of them, or fewer members."
        )
