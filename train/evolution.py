"""Evolution strategies: a gradient from rewards of networks drawn around the present.

    gradient ~ mean of (fitness(net + s e) - fitness(net - s e)) e / 2s,  e ~ N(0, 1)

(Salimans et al. 2017, "Evolution strategies as a scalable alternative to reinforcement
learning"). Pairs play the same examples at the same prices, so their difference is
theirs. Nothing is differentiated.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

PAIRS = 128
SPREAD = 0.1


def estimate(
    fitness: Callable, net, key: jax.Array, *, pairs: int = PAIRS, spread=SPREAD
):
    """The estimated gradient, shaped as the network.

    Args:
        fitness: of a network, a scalar.
        net: pytree of f32.
        key: draws the directions.
        pairs: of networks that are tried.
        spread: how far from the present, in each number.
    """
    flat, unravel = ravel_pytree(net)
    directions = jax.random.normal(key, (pairs, len(flat)))

    def difference(e):
        ahead, back = unravel(flat + spread * e), unravel(flat - spread * e)
        return (fitness(ahead) - fitness(back)) / (2 * spread)

    slopes = jax.lax.map(difference, directions)
    return unravel(jnp.asarray(slopes @ directions / pairs))
