"""What a lease earns: the game that `ttl`, `reinforce` and `evolution` learn to play.

When a block was used, a lease is chosen, from the edges of the bins of age. The block
stays until it is used again or its lease ends, and pays for its room:

    reward = unit * ([it is used within the lease] - price * seconds that it stayed)

A price stands for a capacity: the dearer room is, the smaller the cache (Che's
characteristic time made explicit). Prices are drawn anew for every example, and the
network is told: one network learns all capacities at once.

    unit = 1 / (1 + price * longest stay)

depends on the price alone, so no lease becomes better than another, and keeps every
reward within -1 and 1. In hits, long leases where room is dear would cost hundreds, and
teach the network to give none at any price.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.policies.learned import apply, price_at, with_price
from perc.train.examples import Examples


class Deals(NamedTuple):
    """Examples as the game wants them, f32."""

    x: jax.Array  # [S, H], normalised
    hit: jax.Array  # [S, B], 1 = used within the lease
    stay_s: jax.Array  # [S, B], seconds in the cache
    weight: jax.Array  # [S]


def deals(x: np.ndarray, found: Examples, edges_s: np.ndarray, weight) -> Deals:
    """What each lease comes to; what is not used before the trace ends never is."""
    gap = found.gap_s[:, None]
    return Deals(
        x=jnp.asarray(x),
        hit=jnp.asarray(gap < edges_s, jnp.float32),
        stay_s=jnp.asarray(np.minimum(gap, edges_s), jnp.float32),
        weight=jnp.asarray(weight, jnp.float32),
    )


def long_enough(found: Examples, edges_s: np.ndarray) -> np.ndarray:
    """Examples bool[S] that were watched for a quarter of the longest lease."""
    enough = found.seen_s >= edges_s[-1] / 4
    return enough if enough.any() else np.ones(len(enough), bool)


def unit(deal: Deals, price: jax.Array) -> jax.Array:
    """What a hit counts in the game at each price, f32[S]."""
    return 1 / (1 + price * deal.stay_s.max())


def rewards(deal: Deals, price: jax.Array) -> jax.Array:
    """Reward f32[S, B] of every lease, at prices f32[S]."""
    earned = deal.hit - price[:, None] * deal.stay_s
    return unit(deal, price)[:, None] * earned


def logits(net, x: jax.Array, place: jax.Array) -> jax.Array:
    """The network's preference f32[S, B] among leases."""
    return apply(net, with_price(x, place))


def expected(net, deal: Deals, prices: jax.Array, place: jax.Array) -> jax.Array:
    """Mean reward of the network's leases, exactly: no lease is drawn."""
    keep = jax.nn.softmax(logits(net, deal.x, place))
    each = (keep * rewards(deal, price_at(prices, place))).sum(axis=1)
    return (deal.weight * each).mean()


def entropy(net, deal: Deals, prices: jax.Array, place: jax.Array) -> jax.Array:
    """Mean entropy of the network's leases, in nats times the unit of the price."""
    chosen = logits(net, deal.x, place)
    each = -(jax.nn.softmax(chosen) * jax.nn.log_softmax(chosen)).sum(axis=1)
    return (deal.weight * unit(deal, price_at(prices, place)) * each).mean()
