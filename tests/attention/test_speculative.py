"""Several tokens a pass, and none that the target would not have written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from perc.attention.speculative import (
    acceptance_of,
    expected_tokens,
    simulate_passes,
    speed_up,
    verify,
)
from perc.errors import InputError

TABLE = {
    0.5: (1.5, 1.75, 1.9375, 1.9961),
    0.7: (1.7, 2.19, 2.7731, 3.1988),
    0.8: (1.8, 2.44, 3.3616, 4.3289),
    0.9: (1.9, 2.71, 4.0951, 6.1258),
}
DRAFTED = (1, 2, 4, 8)


@pytest.mark.parametrize("a", TABLE)
def test_expectation_and_monte_carlo(a):
    for k, expected in zip(DRAFTED, TABLE[a], strict=True):
        assert round(expected_tokens(a, k), 4) == expected
        tokens = simulate_passes(jax.random.key(k), a, drafted=k, passes=40_000)
        assert float(tokens.mean()) == pytest.approx(expected, rel=0.01)
        assert int(tokens.min()) >= 1 and int(tokens.max()) <= k + 1


def test_the_ends():
    assert expected_tokens(1, 4) == 5 and expected_tokens(0, 4) == 1
    assert expected_tokens(0.3, 0) == 1
    assert speed_up(0.8, 4, 0) == pytest.approx(3.3616)
    assert speed_up(0, 4, 0.25) == 0.5


def test_the_output_has_the_targets_distribution():
    """Two proposals that depend on each other, over all pairs of tokens."""
    draw, n, v = np.random.default_rng(5), 60_000, 4
    first = {"draft": draw.dirichlet(np.ones(v)), "target": draw.dirichlet(np.ones(v))}
    second = {name: draw.dirichlet(np.ones(v), size=v) for name in first}
    third = draw.dirichlet(np.ones(v))

    def one(key):
        keys = jax.random.split(key, 5)
        x = jax.random.categorical(keys[0], jnp.log(jnp.array(first["draft"])))
        q = jnp.array(second["draft"])[x]
        y = jax.random.categorical(keys[1], jnp.log(q))
        target = [first["target"], jnp.array(second["target"])[x], third]
        draft = jnp.stack([jnp.array(first["draft"]), q])
        found = verify(keys[2], jnp.stack([x, y]), draft, jnp.stack(target))
        # A pass of one token leaves the next one to the target itself.
        after = jnp.array(second["target"])[found.tokens[0]]
        other = jax.random.categorical(keys[3], jnp.log(after))
        pair = jnp.where(found.accepted > 0, found.tokens[1], other)
        return found.tokens[0], pair, found.accepted

    one_, two, accepted = jax.vmap(one)(jax.random.split(jax.random.key(0), n))
    counts = np.zeros((v, v))
    np.add.at(counts, (np.asarray(one_), np.asarray(two)), 1)
    expected = n * first["target"][:, None] * second["target"]
    assert stats.chisquare(counts.ravel(), expected.ravel()).pvalue > 0.001
    drafted = n * first["draft"][:, None] * second["draft"]
    assert stats.chisquare(counts.ravel(), drafted.ravel()).pvalue < 1e-9
    stands = float(acceptance_of(first["draft"], first["target"]))
    assert float((accepted > 0).mean()) == pytest.approx(stands, abs=0.01)


def test_equal_models_accept_all_and_disjoint_ones_nothing():
    p = jnp.full((3, 4), 0.25)
    found = verify(jax.random.key(1), jnp.array([2, 0]), p[:2], p)
    assert int(found.accepted) == 2 and found.tokens[:2].tolist() == [2, 0]
    draft, target = jnp.eye(4)[:1], jnp.eye(4)[jnp.array([3, 3])]
    found = verify(jax.random.key(1), jnp.array([0]), draft, target)
    assert int(found.accepted) == 0 and found.tokens.tolist() == [3, -1]


def test_bad_input():
    for a, k in ((1.5, 1), (-0.1, 1), (0.5, -1), (float("nan"), 1)):
        with pytest.raises(InputError, match="give a probability"):
            expected_tokens(a, k)
    with pytest.raises(InputError, match="draft_cost is -1"):
        speed_up(0.5, 1, -1)
