"""Imitation of the clairvoyant bound's decisions to keep.

With a price on room, the bound keeps an idle block at age a if and only if it is used
before a + 1 / price: then the hit pays for the stay. All those decisions, at every age
and price, follow from when the block is used. The network gives the probability of each
by one hazard a bin of age,

    P(the bound keeps it | unused at a) = 1 - S(a + 1 / price) / S(a)

with S the survival that the hazards make, and is trained by cross-entropy, bin by bin,
on the blocks that reached the bin and were watched to its end.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.policies.learned import apply
from perc.train.examples import Examples


class Watched(NamedTuple):
    """Examples as bins of age, f32."""

    x: jax.Array  # [S, H], normalised
    used: jax.Array  # [S, B], 1 = used in the bin
    there: jax.Array  # [S, B], weight of those that reached it and were seen to its end


def watched(x: np.ndarray, found: Examples, edges_s: np.ndarray, weight) -> Watched:
    """Which bins each example reached, and in which it was used."""
    ends = np.append(edges_s[1:], 2 * edges_s[-1])
    there = (found.gap_s[:, None] >= edges_s) & (found.seen_s[:, None] >= ends)
    used = there & (found.gap_s[:, None] < ends)
    return Watched(
        x=jnp.asarray(x),
        used=jnp.asarray(used, jnp.float32),
        there=jnp.asarray(there * np.asarray(weight)[:, None], jnp.float32),
    )


def base_rates(seen: Watched) -> jax.Array:
    """Log odds f32[B] of use in each bin, over all examples: where training begins."""
    used = (seen.there * seen.used).sum(axis=0) + 1
    unused = (seen.there * (1 - seen.used)).sum(axis=0) + 10
    return jnp.log(used / unused)


def settle_unwatched(net, seen: Watched, edges_s: jax.Array):
    """The network with a constant hazard in bins that no example was watched through.

    Nothing was learned of them, so the rate of uses in the last watched bin before
    them, over all examples, goes on. Otherwise chance would set it, and `best_rates`
    would carry it into earlier bins.
    """
    width = jnp.append(edges_s[1:], 2 * edges_s[-1]) - edges_s
    rate = jax.nn.softplus(base_rates(seen)) / width  # -log(1 - hazard) = softplus
    known = seen.there.sum(axis=0) > 0
    last = jax.lax.cummax(jnp.where(known, jnp.arange(len(width)), 0))
    odds = jnp.log(jnp.expm1(rate[last] * width))
    *hidden, (w, b) = net
    return (*hidden, (jnp.where(known, w, 0), jnp.where(known, b, odds)))


def cross_entropy(net, seen: Watched) -> jax.Array:
    """Mean cross-entropy of a bin, in nats."""
    z = apply(net, seen.x)
    each = seen.there * (jax.nn.softplus(z) - seen.used * z)
    return each.sum() / jnp.maximum(seen.there.sum(), 1e-6)
