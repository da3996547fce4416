"""The engine of `Aged` rules against a cache in plain Python, and what it rests on."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.aged import aged_traffic, replay_at, worth_of
from perc.errors import InputError
from perc.features import features
from perc.online_aged import one_peak, replay_aged
from perc.policies.registry import registry
from perc.reuse import age_bin, dense_levels
from perc.segments import cut
from perc.shapes import bucket, pad
from perc.types import Aged, OnlinePolicy
from tests.oracles import aged as oracle
from tests.strategies import rows_of, traces
from tests.test_replay_hlo import state_copies

CAPACITIES = (0, 1, 2, 3, 5, 8, 100)


AGED = {"perc": (registry["perc"](), oracle.replay_aged)}


@st.composite
def priced(draw):
    """A trace, classes of its accesses, epochs, and tables with one peak."""
    trace = draw(traces(max_requests=25).filter(lambda t: t.n_accesses))
    n_classes, n_epochs, n_ages = 3, 2, 24
    n = trace.n_accesses
    labels = st.lists(st.integers(0, n_classes - 1), min_size=n, max_size=n)
    classes = np.array(draw(labels), np.int32)
    flips = st.lists(
        st.booleans(), min_size=trace.n_requests, max_size=trace.n_requests
    )
    epoch = np.cumsum(np.array(draw(flips), np.int32)) % n_epochs
    seed = draw(st.integers(0, 2**32 - 1))
    shape = (n_epochs, n_classes, n_ages)
    table = np.random.default_rng(seed).integers(0, 6, shape)
    return trace, classes, epoch, np.asarray(one_peak(jnp.float32(table)))


@settings(deadline=None)
@given(priced(), st.sampled_from(CAPACITIES))
def test_equals_a_cache_of_single_blocks(case, capacity):
    trace, classes, epoch, table = case
    equals_the_oracle(trace, classes, epoch, table, capacity)


@settings(deadline=None, max_examples=30)
@given(traces(max_requests=50).filter(lambda t: t.n_accesses), st.integers(0, 9))
def test_perc_equals_a_cache_of_single_blocks(trace, capacity):
    policy, _ = AGED["perc"]
    levels = policy.rule.classes(features(trace, policy.uses))
    classes, _ = dense_levels(list(levels))
    traffic = aged_traffic(trace, policy)
    table = np.asarray(worth_of(policy, traffic.reuse))
    equals_the_oracle(trace, classes[-1], traffic.reuse.epoch, table, capacity)


def equals_the_oracle(trace, classes, epoch, table, capacity):
    segments = jax.tree.map(jnp.asarray, cut(trace, classes))
    hits, evictions = replay_aged(
        jnp.asarray(table),
        jnp.asarray(pad(epoch, 0)),
        segments,
        np.int32(capacity),
        bucket(trace.n_blocks),
    )
    times = trace.arrival_s.astype(np.float32).tolist()
    expected, gone, regret = oracle.replay_aged(
        rows_of(trace, trace.block),
        rows_of(trace, classes),
        times,
        epoch.tolist(),
        table.tolist(),
        lambda age: int(age_bin(age)),
        capacity,
    )
    assert np.asarray(hits)[: trace.n_requests].tolist() == expected
    assert int(evictions) == gone
    assert not any(regret)  # with one peak, the cheapest is at an end


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1, width=32, allow_subnormal=False), min_size=1, max_size=12)
)
def test_one_peak_rises_and_falls_and_keeps_the_highest(values):
    exact = np.asarray(values, np.float32)
    found = np.asarray(one_peak(jnp.asarray(exact)))
    peak = int(np.argmax(values))
    assert found[peak] == exact[peak]
    assert (np.diff(found[: peak + 1]) >= 0).all()
    assert (np.diff(found[peak:]) <= 0).all()
    assert (found[:peak] <= exact[:peak]).all()
    assert (found[peak:] >= exact[peak:]).all()


@settings(deadline=None, max_examples=30)
@given(traces())
def test_a_worth_that_falls_with_age_is_lru(trace):
    def worth(params, reuse):
        ages = np.arange(len(reuse.ages), 0, -1, dtype=np.float32)
        return np.broadcast_to(ages, (*reuse.events[0].shape[:2], len(ages)))

    policy = OnlinePolicy(
        (), Aged(lambda f: (np.zeros_like(f.turn),), worth), "aged", uses=("turn",)
    )
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    expected = perc.replay(trace, order, CAPACITIES)
    found = perc.replay_online(trace, policy, CAPACITIES)
    np.testing.assert_array_equal(found.blocks, expected.blocks)
    np.testing.assert_array_equal(found.evictions, expected.evictions)


def test_parameters_share_one_layout(small_chat):
    one, other = registry["perc"](), registry["perc"](smoothing=5.0)
    traffic = aged_traffic(small_chat, one)
    for policy in (one, other):
        np.testing.assert_array_equal(
            replay_at(small_chat, policy, [50, 200], traffic).blocks,
            perc.replay_online(small_chat, policy, [50, 200]).blocks,
        )
    assert not np.array_equal(
        worth_of(one, traffic.reuse), worth_of(other, traffic.reuse)
    )


@pytest.mark.parametrize("name", ["perc", "gdsf"])
def test_configurations_share_the_layout(small_chat, name):
    policy = registry[name]()
    other = dataclasses.replace(policy, params=jax.tree.map(jnp.sqrt, policy.params))
    shared, kept = {}, []
    for one in (policy, other, policy):
        found = perc.replay_online(small_chat, one, [50], shared=shared)
        alone = perc.replay_online(small_chat, one, [50])
        np.testing.assert_array_equal(found.blocks, alone.blocks)
        kept += shared.values()
    assert len({id(layout) for layout in kept}) == 1


def test_one_layout_is_kept_and_none_that_learns_by_its_parameters(small_chat):
    shared: dict = {}
    for name, rules in (("perc", 1), ("gdsf", 1), ("ttl", 1)):
        perc.replay_online(small_chat, registry[name](), [50], shared=shared)
        assert len(shared) == rules
    assert [rule for rule, _ in shared] == [registry["gdsf"]().rule]


def test_bad_rules_are_refused(small_chat):
    def nan(params, reuse):
        return reuse.events[-1] * np.nan

    levels = registry["perc"]().rule.classes
    uses = ("tokens", "frequency", "turn", "kind")
    with pytest.raises(InputError, match="not a number"):
        policy = OnlinePolicy((), Aged(levels, nan), "mine", uses=uses)
        perc.replay_online(small_chat, policy, [10])
    with pytest.raises(InputError, match="cannot bypass"):
        policy = OnlinePolicy((), Aged(levels, nan), "mine", uses=uses, bypass=True)
        perc.replay_online(small_chat, policy, [10])


def test_updates_in_place(small_chat):
    policy = registry["perc"]()
    segments, reuse, n_blocks = aged_traffic(small_chat, policy)
    program = replay_aged.lower(
        worth_of(policy, reuse),
        jnp.asarray(pad(reuse.epoch, 0)),
        jax.tree.map(jnp.asarray, segments),
        np.int32(8),
        n_blocks,
    ).compile()
    text = program.as_text()
    assert text is not None
    n_segments, n_requests = len(segments.cls), len(segments.length)
    large = {n_segments, n_segments // 32, n_blocks + 1, n_requests}
    assert state_copies(text, large) == []
    assert re.search("xla_cpu_small_call", text)
