"""What every policy must do. A new one is tested here by being registered."""

import dataclasses
import inspect
import sys
import warnings
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.features import features
from perc.online import replay_online
from perc.online_aged import replay_aged
from perc.online_listed import replay_listed
from perc.online_rescored import replay_rescored
from perc.online_scored import replay_scored
from perc.policies.registry import Registry, registry
from perc.step import pin, replay_steps, requests_of
from perc.types import Aged, Listed, OnlinePolicy, Request, Rescored, Scored
from tests import test_online
from tests.oracles import cache as oracle
from tests.policies.test_timed import RESCORED
from tests.strategies import replay_each, rows_of, traces
from tests.test_aged import AGED

ENGINES = {
    Scored: replay_scored,
    Listed: replay_listed,
    Rescored: replay_rescored,
    Aged: replay_aged,
}
NAMES = list(registry)
ONLINE = [name for name in NAMES if isinstance(registry[name](), OnlinePolicy)]
RANKED = [name for name in NAMES if name not in ONLINE]
# No block leaves before its descendants. What is missing leaves holes by its rule.
CLOSED = (
    "lru lfu priority perc_decay belady belady_bypass filo shortest largest"
).split()
# Their order does not depend on the capacity: larger caches never hit less. That of
# `fifo` and `filo` does, since a block that was evicted enters anew, and so do those of
# the online policies, but for `gds`, which is LRU where blocks cost the same.
INCLUSIVE = [name for name in [*RANKED, "gds"] if name not in ("fifo", "filo")]

every_policy = pytest.mark.parametrize("name", NAMES)
ranked_policy = pytest.mark.parametrize("name", RANKED)
online_policy = pytest.mark.parametrize("name", ONLINE)


def hits_of(policy, trace, sizes):
    if isinstance(policy, OnlinePolicy):
        return replay_online(trace, policy, sizes)
    order = perc.ranks(trace, perc.scores(policy, trace))
    return replay_each(
        trace, order, sizes, bypass=policy.bypass, refresh=policy.refresh
    )


@every_policy
def test_is_documented_and_named(name):
    policy = registry[name]()
    assert policy.name == name
    doc = inspect.getdoc(registry[name]) or ""
    assert "Example:" in doc and "References:" in doc
    assert all(
        p.kind is p.KEYWORD_ONLY
        for p in inspect.signature(registry[name]).parameters.values()
    )


@ranked_policy
def test_score_is_a_finite_float_of_its_features_only(name, small_chat):
    policy = registry[name]()
    values = features(small_chat, policy.uses)
    score = policy.score(policy.params, values)
    chex.assert_shape(score, (small_chat.n_accesses,))
    chex.assert_type(score, jnp.float32)
    assert not np.isnan(score).any()
    if not policy.clairvoyant:
        assert np.isfinite(score).all()


@every_policy
def test_clairvoyance_is_declared(name):
    policy = registry[name]()
    assert policy.clairvoyant == ("next_use" in policy.uses)


@ranked_policy
def test_jitted_equals_unjitted(name, small_chat):
    policy = registry[name]()
    values = features(small_chat, policy.uses)
    np.testing.assert_array_equal(
        np.argsort(jax.jit(policy.score)(policy.params, values), stable=True),
        np.argsort(policy.score(policy.params, values), stable=True),
    )


@ranked_policy
@settings(deadline=None, max_examples=15)
@given(trace=traces(), capacity=st.sampled_from([1, 4]))
def test_engines_agree(name, trace, capacity):
    policy = registry[name]()
    score = perc.scores(policy, trace)
    hits, victims = oracle.simulate(
        rows_of(trace, trace.block),
        rows_of(trace, score),
        capacity,
        bypass=policy.bypass,
        refresh=policy.refresh,
    )
    fast = hits_of(policy, trace, [capacity])
    slow = replay_steps(policy, trace, capacity)
    assert fast.blocks[0].tolist() == hits
    assert slow.blocks.tolist() == hits
    evicted = sum(map(len, victims))
    assert int(fast.evictions[0]) == int(slow.evictions) == evicted


@every_policy
@settings(deadline=None, max_examples=30)
@given(trace=traces(max_requests=40))
def test_bounds_hold(name, trace):
    """Below the clairvoyant bound of the same residency, below the infinite cache."""
    policy = registry[name]()
    bound = registry["belady_bypass" if policy.bypass else "belady"]()
    sizes = [0, 1, 3, 6, trace.n_blocks]
    found = hits_of(policy, trace, sizes)
    total = found.blocks.sum(axis=1)
    assert (total <= hits_of(bound, trace, sizes).blocks.sum(axis=1)).all()
    assert (found.blocks <= trace.stop - trace.start).all()
    assert total[0] == 0
    assert total[-1] == np.count_nonzero(trace.prev >= 0)
    assert found.evictions[-1] == 0


@pytest.mark.parametrize("name", INCLUSIVE)
@settings(deadline=None, max_examples=40)
@given(trace=traces(max_requests=40))
def test_a_larger_cache_never_hits_less(name, trace):
    total = hits_of(registry[name](), trace, range(12)).blocks.sum(axis=1)
    assert (np.diff(total) >= 0).all()


def test_fifo_has_no_inclusion_property():
    """Belady's anomaly; misses 9 with three blocks, 10 with four (policies.md L13)."""
    from tests.test_step import trace_of

    trace = trace_of([[b] for b in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)])
    hits = hits_of(registry["fifo"](), trace, [3, 4]).blocks.sum(axis=1)
    assert (12 - hits).tolist() == [9, 10]


@ranked_policy
def test_pins_hold_and_capacity_is_kept(name, small_chat):
    policy = registry[name]()
    requests = requests_of(small_chat, policy.uses)
    state = perc.empty_cache(150, small_chat.n_blocks)

    def request(r):
        return Request(
            jnp.asarray(requests.block[r]),
            jax.tree.map(lambda column: jnp.asarray(column[r]), requests.features),
        )

    state, _ = perc.step(policy, state, request(0))
    held = requests.block[0][requests.block[0] >= 0]
    state = pin(state, held)
    for r in range(1, 40):
        state, outcome = perc.step(policy, state, request(r))
        assert not set(held.tolist()) & set(outcome.victims.tolist())
        resident = np.asarray(state.block)[np.asarray(state.block) >= 0]
        assert len(set(resident.tolist())) == len(resident) <= 150
        assert (np.asarray(state.slot)[resident] >= 0).all()
        assert np.count_nonzero(np.asarray(state.slot) >= 0) == len(resident)


@pytest.mark.parametrize("name", CLOSED)
@settings(deadline=None, max_examples=25)
@given(trace=traces(max_requests=15), capacity=st.sampled_from([2, 6]))
def test_closed_policies_leave_no_prefix_hole(name, trace, capacity):
    """A resident block's parent is resident: every resident block can be hit."""
    policy = registry[name]()
    rows = requests_of(trace, policy.uses)
    state = perc.empty_cache(capacity, 256)  # more blocks than a trace has here
    above: dict[int, int] = {}
    for r in range(trace.n_requests):
        features = jax.tree.map(lambda column, r=r: column[r], rows.features)
        state, _ = perc.step(policy, state, Request(rows.block[r], features))
        chain = trace.block[trace.start[r] : trace.stop[r]].tolist()
        above.update(zip(chain[1:], chain, strict=False))
        resident = {block for block in state.block.tolist() if block >= 0}
        assert all(above[block] in resident for block in resident if block in above)


@ranked_policy
def test_parameters_share_one_program(name, small_chat):
    """Policies that differ in parameters only must not compile again."""
    policy = registry[name]()
    values = features(small_chat, policy.uses)
    counted = jax.jit(chex.assert_max_traces(lambda p, f: p.score(p.params, f), n=1))
    chex.clear_trace_counter()
    for shift in (0, 1):
        params = jax.tree.map(lambda x, s=shift: x + x.dtype.type(s), policy.params)
        variant = perc.Policy(
            **{
                **{f: getattr(policy, f) for f in policy.__dataclass_fields__},
                "params": params,
            }
        )
        counted(variant, values)


@online_policy
def test_online_policies_have_an_oracle(name):
    """`tests/test_online.py` compares the engines with the oracles of these tables."""
    tables: tuple[dict, ...] = (
        test_online.SCORED,
        test_online.TRACED,
        test_online.LISTED,
        RESCORED,
        AGED,
    )
    known = [pair for table in tables for pair in table.values()]
    assert registry[name]().name in {policy.name for policy, _ in known}


@online_policy
def test_online_parameters_share_one_program(name, small_chat):
    policy = registry[name]()
    engine: Any = ENGINES[type(policy.rule)]
    first = replay_online(small_chat, policy, [100])
    programs = engine._cache_size()
    params = jax.tree.map(lambda x: (x * 0.5).astype(x.dtype), policy.params)
    replay_online(small_chat, dataclasses.replace(policy, params=params), [100])
    again = replay_online(small_chat, policy, [100])
    assert engine._cache_size() == programs
    assert again.blocks.tobytes() == first.blocks.tobytes()


def test_unknown_policy_is_answered_with_the_known():
    with pytest.raises(InputError, match="'lur'. There are: lru, fifo"):
        registry["lur"]


def test_registry_module_reads_as_the_mapping():
    module: Any = sys.modules[Registry.__module__]
    assert perc.policies.registry is module  # pyright: ignore[reportAttributeAccessIssue]
    assert list(module) == NAMES
    assert module["lru"] is registry["lru"]
    assert "lru" in module and len(module) == len(NAMES)


@pytest.mark.real_trace
@pytest.mark.parametrize(
    ("file", "points"),
    [
        ("mooncake_conversation_trace.jsonl.gz", 24),
        ("claude_code_v6_interleaved24h_b512.jsonl.xz", 6),
        ("ragpulse_b16.jsonl.xz", 12),
        ("lmcache_agent_b16.jsonl.xz", 12),
    ],
)
def test_perc_is_never_more_than_one_percent_below_lru(traces_folder, file, points):
    """From a cache of the longest request to one of a third of all blocks."""
    with warnings.catch_warnings(action="ignore"):
        trace = perc.load(
            traces_folder / file, block_tokens=16 if "b16" in file else None
        )
    sizes = np.geomspace(trace.longest_request, trace.n_blocks / 3, points).astype(int)
    rows = perc.compare(trace, ["lru", "perc"], sizes.tolist(), warmup=0.5).rows
    for lru, own in zip(rows[::2], rows[1::2], strict=True):
        assert own.block_hit_ratio >= 0.99 * lru.block_hit_ratio, own


@pytest.mark.real_trace
def test_perc_beats_what_was_known_on_the_second_half(traces_folder):
    """Known before: .1318 at 3k blocks, .2311 at 10k, .3410 at 30k (policies.md 8)."""
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    rows = perc.compare(trace, ["perc"], [3000, 10_000, 30_000], warmup=0.5).rows
    ratios = [row.block_hit_ratio for row in rows]
    assert ratios[0] >= 0.14 and ratios[1] >= 0.24 and ratios[2] >= 0.341
    again = perc.compare(trace, ["perc"], [100_000], warmup=0.5).rows[0]
    assert again.block_hit_ratio >= 0.384, "where nearly all fits, it equals LRU"
