"""REINFORCE: drawn leases give the exact gradient on average, and of the right sign."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc.policies.learned import price_at
from perc.train import leases, reinforce
from perc.train.leases import Deals
from perc.train.reinforce import ActorCritic
from tests.train import games

KEYS = 4000
climb = jax.jit(jax.grad(reinforce.surrogate))


@pytest.fixture(scope="module")
def nets():
    return ActorCritic(games.tiny(), games.tiny(outputs=1, seed=5))


@pytest.fixture(scope="module")
def estimates(nets):
    """Gradients of actor and critic, flat f64[KEYS, D] each."""
    deal = games.game()

    def one(key):
        return jax.grad(reinforce.surrogate)(nets, deal, games.prices, games.place, key)

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), KEYS))
    parts: Any = [np.asarray(jax.vmap(ravel)(part), float) for part in found]
    return ActorCritic(*parts)


def ravel(net):
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(net)])


def exact(nets, deal):
    climb = jax.grad(leases.expected)
    return games.flat(climb(nets.actor, deal, games.prices, games.place))


def test_on_average_the_actor_climbs_the_mean_reward(nets, estimates):
    wanted = exact(nets, games.game())
    assert games.agrees(estimates.actor, wanted)
    mean = estimates.actor.mean(axis=0)
    assert mean @ wanted > 0.99 * np.linalg.norm(mean) * np.linalg.norm(wanted)


def test_the_comparison_would_see_a_wrong_sign_or_a_missing_price(nets, estimates):
    deal = games.game()
    free = deal._replace(stay_s=jnp.zeros_like(deal.stay_s))
    assert not games.agrees(estimates.actor, -exact(nets, deal))
    assert not games.agrees(estimates.actor, exact(nets, free))
    assert not games.agrees(estimates.actor, 0.8 * exact(nets, deal))


def test_the_critic_learns_the_reward_to_expect(nets, estimates):
    deal = games.game()
    chances = jax.nn.softmax(leases.logits(nets.actor, deal.x, games.place))
    earned = leases.rewards(deal, price_at(games.prices, games.place))

    def closeness(critic):
        x = jnp.concatenate([deal.x, 4 * games.place[:, None] - 2], axis=1)
        value = reinforce.apply(critic, x)
        miss = 0.5 * (chances * jnp.square(earned - value)).sum(axis=1)
        return -(deal.weight * miss).mean()

    assert games.agrees(estimates.critic, games.flat(jax.grad(closeness)(nets.critic)))


def test_a_critic_makes_it_steadier_and_does_not_bias(nets, estimates):
    """One that knows the mean reward, against one that says 100."""
    deal = games.game()
    _, (w, b) = nets.critic
    far = nets._replace(critic=(nets.critic[0], (0 * w, b + 100)))

    def one(key):
        return jax.grad(reinforce.surrogate)(far, deal, games.prices, games.place, key)

    found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), KEYS))
    found = np.asarray(jax.vmap(ravel)(found.actor), float)
    assert games.agrees(found, exact(nets, deal))
    assert found.std(axis=0).sum() > 10 * estimates.actor.std(axis=0).sum()


@pytest.mark.parametrize("hit", [True, False])
def test_what_paid_becomes_likelier(hit):
    """CachePilot's learner has the sign wrong: what paid becomes rarer."""
    deal = Deals(
        x=jnp.zeros((1, 1)),
        hit=jnp.float32([[0, hit]]),
        stay_s=jnp.float32([[0, 1]]),
        weight=jnp.ones(1),
    )
    linear = ((jnp.zeros((2, 2)), jnp.float32([1.3, 0.0])),)  # mostly refuses
    nets = ActorCritic(linear, ((jnp.zeros((2, 1)), jnp.zeros(1)),))
    prices, place = jnp.float32([0.1, 0.2]), jnp.float32([0.5])

    def admits(nets):
        chosen = leases.logits(nets.actor, deal.x, place)
        return float(jax.nn.softmax(chosen)[0, 1])

    before = admits(nets)
    for key in jax.random.split(jax.random.key(2), 100):
        uphill = climb(nets, deal, prices, place, key)
        nets = jax.tree.map(lambda a, u: a + 0.1 * u, nets, uphill)
    assert admits(nets) > 2 * before if hit else admits(nets) < before
