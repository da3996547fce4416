"""Configurations side by side give what they give one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import perc
from perc.batch import replay_batch
from perc.policies.registry import registry
from perc.replay import engine_columns, replay_one
from tests.strategies import traces
from tests.test_replay_hlo import state_copies


@settings(deadline=None, max_examples=25)
@given(traces())
def test_stacked_parameters_and_capacities_equal_replays(trace):
    taus, sizes = [0.0, 5.0, 200.0, 200.0], [3, 5, 2, 0]
    family = [registry["perc_decay"](tau_s=tau) for tau in taus]
    params = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *[p.params for p in family]
    )
    found = replay_batch(family[0], params, trace, sizes)
    for k, (policy, size) in enumerate(zip(family, sizes, strict=True)):
        order = perc.ranks(trace, perc.scores(policy, trace))
        alone = perc.replay(trace, order, [size])
        assert np.array_equal(found.blocks[k], alone.blocks[0])
        assert found.evictions[k] == alone.evictions[0]


@settings(deadline=None, max_examples=15)
@given(traces())
def test_a_policy_without_parameters(trace):
    policy = registry["belady_bypass"]()
    found = replay_batch(policy, (), trace, [1, 4])
    order = perc.ranks(trace, perc.scores(policy, trace))
    alone = perc.replay(trace, order, [1, 4], bypass=True)
    assert np.array_equal(found.blocks, alone.blocks)


def test_parameters_must_be_stacked(small_chat):
    policy = registry["perc_decay"]()
    with pytest.raises(ValueError, match="stack one"):
        replay_batch(policy, policy.params, small_chat, [10, 20])
    two = jax.tree.map(lambda x: jnp.stack([x] * 2), policy.params)
    with pytest.raises(ValueError, match="for 3 capacities"):
        replay_batch(policy, two, small_chat, [10, 20, 30])


def test_vmap_means_one_by_one(small_chat):
    """Over capacities, over orders, and over both; without copies of the state."""
    orders = [small_chat.request, small_chat.depth.astype(float)]
    rows = [
        engine_columns(small_chat, perc.ranks(small_chat, score)) for score in orders
    ]
    sizes = jnp.array([50, 400, 2000])
    hits, _ = jax.vmap(replay_one, in_axes=(None, 0))(rows[0], sizes)
    for row, size in zip(hits, sizes, strict=True):
        assert np.array_equal(row, replay_one(rows[0], size)[0])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    hits, _ = jax.vmap(replay_one, in_axes=(0, None))(stacked, 300)
    for row, columns in zip(hits, rows, strict=True):
        assert np.array_equal(row, replay_one(columns, 300)[0])
    both = jax.jit(jax.vmap(jax.vmap(replay_one, in_axes=(None, 0)), in_axes=(0, None)))
    hits, _ = both(stacked, sizes)
    assert np.array_equal(hits[1, 2], replay_one(rows[1], 2000)[0])
    text = both.lower(stacked, sizes).compile().as_text()
    assert text is not None
    words = rows[0].rank.shape[0] // 32 + 1
    assert state_copies(text, {words}) == []
