"""A few examples and a tiny network, for checks of gradients."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from perc.train.examples import Examples
from perc.train.leases import Deals, deals
from perc.train.network import draw

EDGES = np.array([0, 2, 8, 32], np.float32)
PRICES = np.array([0.02, 0.4], np.float32)
X = np.random.default_rng(7).normal(size=(6, 2)).astype(np.float32)
GAPS = np.array([1.0, 5.0, 20.0, np.inf, 3.0, np.inf])
WEIGHTS = np.array([1.0, 0.5, 2.0, 1.0, 0.7, 0.8])
PLACE = np.linspace(0.05, 0.95, 6).astype(np.float32)


def examples_of(gap_s, seen_s):
    """Examples of one block each, without a history."""
    n = len(gap_s)
    return Examples(
        history=np.zeros((n, 1), np.float32),
        gap_s=np.asarray(gap_s, np.float64),
        seen_s=np.asarray(seen_s, np.float64),
        blocks=np.ones(n, np.int64),
        session=np.arange(n, dtype=np.int32),
    )


def game() -> Deals:
    return deals(X, examples_of(GAPS, np.full(6, 1e3)), EDGES, WEIGHTS)


def tiny(inputs: int = 3, outputs: int = 4, seed: int = 3):
    """A network whose outputs differ: leases are neither even nor certain."""
    net = draw(jax.random.key(seed), (inputs, 3, outputs))
    return jax.tree.map(lambda a: 2 * a + 0.1, net)


def flat(net) -> np.ndarray:
    return np.asarray(ravel_pytree(net)[0], np.float64)


def agrees(found: np.ndarray, wanted: np.ndarray, *, bias: float = 0.0) -> bool:
    """Whether estimates [T, D] have the mean `wanted` [D], as far as they can tell.

    Each number within five standard errors, and `bias` of the largest.
    """
    error = found.std(axis=0) / np.sqrt(len(found))
    allowed = 5 * error + bias * np.abs(wanted).max() + 1e-7
    return bool((np.abs(found.mean(axis=0) - wanted) <= allowed).all())


place = jnp.asarray(PLACE)
prices = jnp.asarray(PRICES)
