"""Evolution: the estimate is the gradient, of a quadratic and of the lease game."""

import jax
import jax.numpy as jnp
import numpy as np

from perc.train import evolution, leases
from tests.train import games


def estimates(fitness, net, n=64, pairs=64):
    keys = jax.random.split(jax.random.key(4), n)

    def one(key):
        return evolution.estimate(fitness, net, key, pairs=pairs)

    found = jax.jit(lambda keys: jax.lax.map(one, keys))(keys)
    leaves = [np.asarray(leaf).reshape(n, -1) for leaf in jax.tree.leaves(found)]
    return np.concatenate(leaves, axis=1).astype(np.float64)


def test_of_a_quadratic():
    net = games.tiny()
    aims = jax.tree.map(lambda a: a + jnp.arange(a.size).reshape(a.shape) / 10, net)

    def fitness(n):
        miss = jax.tree.map(lambda a, b: 0.5 * jnp.square(a - b).sum(), n, aims)
        return -sum(jax.tree.leaves(miss))

    wanted = games.flat(jax.grad(fitness)(net))
    found = estimates(fitness, net)
    assert games.agrees(found, wanted)
    assert not games.agrees(found, -wanted)
    assert not games.agrees(found, 0.5 * wanted)


def test_of_the_lease_game():
    net, deal = games.tiny(), games.game()

    def fitness(n):
        return leases.expected(n, deal, games.prices, games.place)

    wanted = games.flat(jax.grad(fitness)(net))
    found = estimates(fitness, net)
    # The fitness is that of a cloud of networks, so it is a little smoother.
    assert games.agrees(found, wanted, bias=0.01)
    assert not games.agrees(found, -wanted, bias=0.01)
    mean = found.mean(axis=0)
    assert mean @ wanted > 0.99 * np.linalg.norm(mean) * np.linalg.norm(wanted)


def test_the_key_decides():
    net = games.tiny()

    def fitness(n):
        return n[0][0].sum()

    one, again, other = (
        games.flat(evolution.estimate(fitness, net, jax.random.key(k)))
        for k in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
