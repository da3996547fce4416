"""The ways to learn, as one table: what a network starts as, and how it improves.

All train the same network on the same examples; they differ in what they are told.

    imitation  the bound's decisions to keep, at all ages and prices at once
    ttl        the exact mean reward of its leases: differentiable TTL
    reinforce  rewards of leases that it drew, with a critic
    evolution  rewards of networks around it
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from perc.train import evolution, imitation, leases, reinforce
from perc.train.examples import Examples
from perc.train.network import draw

ENTROPY = 0.01  # hits that a nat is worth: keeps leases open while they are learned
NOISE = 0.15  # of the inputs, in standard deviations: like inputs, like leases


class Method(NamedTuple):
    """One way to learn; `data` is a pytree with `x` f32[S, H], rows are examples."""

    head: str  # of perc.policies.learned.HEADS
    data: Callable[[np.ndarray, Examples, np.ndarray, np.ndarray], Any]
    start: Callable[[jax.Array, tuple[int, ...], Any], Any]  # (key, widths, data)
    # (nets, rows of data, prices, key) -> what to step along, uphill
    ascent: Callable[[Any, Any, jax.Array, jax.Array], Any]
    # (nets, data, prices) -> held-out score, the higher the better
    score: Callable[[Any, Any, jax.Array], jax.Array]
    actor: Callable[[Any], Any] = lambda nets: nets  # the network to keep
    # (network, data, edges) -> the network, where data say nothing of it
    settle: Callable[[Any, Any, jax.Array], Any] = lambda net, data, edges: net
    steps: int = 600
    noise: float = NOISE
    members: int = 8
    batch: int = 8192
    rate: float = 5e-3


def _start_imitation(key, widths, data):
    *hidden, (w, _) = draw(key, widths)
    return (*hidden, (w, imitation.base_rates(data)))


def _climb_imitation(net, rows, prices, key):
    return jax.grad(lambda n: -imitation.cross_entropy(n, rows))(net)


def _start_leases(key, widths, data):
    return draw(key, (widths[0] + 1, *widths[1:]))


def _start_actor_critic(key, widths, data):
    critic = (widths[0] + 1, *widths[1:-1], 1)
    return reinforce.ActorCritic(
        _start_leases(key, widths, data), draw(jax.random.fold_in(key, 99), critic)
    )


def _places(rows, key):
    return jax.random.uniform(key, (len(rows.x),))


def _value(rows, prices, place):
    """What a lease network is worth on some examples, as a function of it."""

    def value(net):
        earned = leases.expected(net, rows, prices, place)
        return earned + ENTROPY * leases.entropy(net, rows, prices, place)

    return value


def _climb_ttl(net, rows, prices, key):
    return jax.grad(_value(rows, prices, _places(rows, key)))(net)


def _climb_reinforce(nets, rows, prices, key):
    place = _places(rows, key)

    def value(n):
        played = reinforce.surrogate(n, rows, prices, place, jax.random.fold_in(key, 1))
        return played + ENTROPY * leases.entropy(n.actor, rows, prices, place)

    return jax.grad(value)(nets)


def _climb_evolution(net, rows, prices, key):
    fitness = _value(rows, prices, _places(rows, key))
    return evolution.estimate(fitness, net, jax.random.fold_in(key, 1))


def _score_leases(net, data, prices):
    """Mean reward over evenly spread prices."""
    place = (jnp.arange(len(data.x)) * 0.618034) % 1.0
    return leases.expected(net, data, prices, place)


METHODS = {
    "imitation": Method(
        "hazard",
        imitation.watched,
        _start_imitation,
        _climb_imitation,
        lambda net, data, prices: -imitation.cross_entropy(net, data),
        settle=imitation.settle_unwatched,
        steps=400,
        noise=0.2,
    ),
    "ttl": Method("lease", leases.deals, _start_leases, _climb_ttl, _score_leases),
    "reinforce": Method(
        "lease",
        leases.deals,
        _start_actor_critic,
        _climb_reinforce,
        lambda nets, data, prices: _score_leases(nets.actor, data, prices),
        actor=lambda nets: nets.actor,
        steps=1000,
        members=4,
    ),
    "evolution": Method(
        "lease",
        leases.deals,
        _start_leases,
        _climb_evolution,
        _score_leases,
        members=1,
        batch=512,
        rate=0.02,
    ),
}
