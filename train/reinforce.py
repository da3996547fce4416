"""REINFORCE with a critic: leases are drawn, and what they earned is all that is known.

The gradient of the expected reward is the mean of

    (reward - critic) * d log P(lease drawn) / d network

(Williams 1992, Machine Learning 8). Each lease is credited with its own reward, not
with that of the whole trace: what other blocks did is noise. The critic, a network of
its own, learns the reward to expect by least squares; it does not bias the mean, since
it does not know the lease. Every example is played `PLAYS` times, side by side.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.policies.learned import apply, price_at, with_price
from perc.train.leases import Deals, logits, rewards

PLAYS = 4


class ActorCritic(NamedTuple):
    """The two networks."""

    actor: tuple
    critic: tuple  # one output: the reward to expect


def surrogate(
    nets: ActorCritic, deal: Deals, prices: jax.Array, place: jax.Array, key: jax.Array
) -> jax.Array:
    """A number whose gradient is the estimate: of actor and critic at once.

    Args:
        nets: actor and critic.
        deal: S examples.
        prices: f32[2], the range.
        place: f32[S] in it, of each example.
        key: draws the leases.
    """
    chosen = logits(nets.actor, deal.x, place)
    value = apply(nets.critic, with_price(deal.x, place))[:, 0]
    earned = rewards(deal, price_at(prices, place))

    def play(key):
        lease = jax.random.categorical(key, chosen)[:, None]
        got = jnp.take_along_axis(earned, lease, axis=1)[:, 0]
        log_p = jnp.take_along_axis(jax.nn.log_softmax(chosen), lease, axis=1)[:, 0]
        advantage = jax.lax.stop_gradient(got - value)
        return advantage * log_p - 0.5 * jnp.square(got - value)

    each = jax.vmap(play)(jax.random.split(key, PLAYS)).mean(axis=0)
    return (deal.weight * each).mean()
