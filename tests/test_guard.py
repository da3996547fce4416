"""The guard against three caches in plain Python, and its bound against adversaries."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.aged import aged_traffic, replay_rows, worth_of
from perc.errors import InputError
from perc.guard import forgiven, guarded, lru_hits, watch_of
from perc.online_aged import replay_guarded
from perc.policies.registry import registry
from perc.reuse import age_bin
from perc.segments import cut
from perc.shapes import bucket, pad
from perc.tune_search import first_requests
from perc.types import Guard
from perc.workloads.adversary import newest_first, punish
from perc.workloads.shifts import take_turns
from tests.oracles import guard as oracle
from tests.strategies import rows_of
from tests.test_aged import CAPACITIES, priced
from tests.test_replay_hlo import state_copies

GUARDS = st.builds(
    Guard,
    share=st.sampled_from([0.0, 0.3, 1.0]),
    patience=st.sampled_from([0.0, 0.4, 1.0]),
    memory=st.sampled_from([0.1, 1.0, 4.0]),
    credit=st.sampled_from([0.0, 0.5, 1.0]),
)


def replayed(case, capacity, guard):
    """Hits, evictions and trust by the engine."""
    trace, classes, epoch, table = case
    length = trace.stop - trace.start
    cache = (
        jnp.asarray(table),
        jnp.asarray(pad(epoch, 0)),
        jax.tree.map(jnp.asarray, cut(trace, classes)),
        np.int32(capacity),
        bucket(trace.n_blocks),
    )
    (lru,) = lru_hits(trace, [capacity])
    free = Guard(patience=1e9, memory=1e9, credit=1e9)
    alone, *_ = replay_guarded(*cache, watch_of(free, lru, lru, length, 1))
    alone = np.asarray(alone)[: trace.n_requests]
    watch = watch_of(guard, lru, alone, length, capacity)
    hits, evictions, trusted = replay_guarded(*cache, watch)
    n = trace.n_requests
    return np.asarray(hits)[:n], int(evictions), np.asarray(trusted)[:n], lru


@settings(deadline=None)
@given(priced(), st.sampled_from(CAPACITIES), GUARDS)
def test_equals_three_caches_of_single_blocks(case, capacity, guard):
    equals_the_oracle(case, capacity, guard)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("memory", [0.5, 4.0])
@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_equals_them_while_trust_comes_and_goes(share, memory, patience):
    options = {"hot_blocks": 1, "hot_order": "cyclic", "scan_requests": 0}
    loops = [perc.make("scan", requests=400, hot_chains=n, **options) for n in (12, 5)]
    trace = take_turns(loops, requests=50)
    none = np.zeros(800, np.int32)
    table = np.arange(24, dtype=np.float32).reshape(1, 1, 24)
    guard = Guard(share=share, memory=memory, patience=patience, credit=0.2)
    equals_the_oracle((trace, none, none, table), 6, guard)


def equals_the_oracle(case, capacity, guard):
    trace, classes, epoch, table = case
    hits, evictions, trusted, lru = replayed(case, capacity, guard)
    expected = oracle.replay_guarded(
        rows_of(trace, trace.block),
        rows_of(trace, classes),
        trace.arrival_s.astype(np.float32).tolist(),
        epoch.tolist(),
        table.tolist(),
        lambda age: int(age_bin(age)),
        capacity,
        guard,
    )
    found = hits.tolist(), evictions, trusted.tolist(), lru.tolist()
    assert found == expected


def check_bound(guard, hits, lru, length, capacity):
    """After every request, and between any two."""
    lost = np.concatenate([[0], np.cumsum(lru - hits)])
    pardoned = np.concatenate([[0], np.cumsum(forgiven(guard, lru, length))])
    limit = int(guard.patience * capacity) + capacity
    assert (lost <= pardoned + limit).all()
    owed = lost - pardoned
    most = (owed - np.minimum.accumulate(owed)).max()
    reach = max(
        guard.memory * min(length.max(initial=0), capacity), limit - capacity, 1
    )
    assert most <= limit + reach


@settings(deadline=None)
@given(priced(), st.sampled_from(CAPACITIES), GUARDS)
def test_bound_holds_on_random_traffic(case, capacity, guard):
    trace = case[0]
    hits, _, _, lru = replayed(case, capacity, guard)
    check_bound(guard, hits, lru, trace.stop - trace.start, capacity)


def rows(policy, trace, capacity):
    return replay_rows(trace, policy, [capacity], aged_traffic(trace, policy))


@settings(deadline=None, max_examples=20)
@given(GUARDS, st.sampled_from([1, 2, 7, 30]))
def test_bound_holds_against_an_adversary(guard, capacity):
    trace = punish(guard, capacity=capacity, requests=500)
    hits = rows(guarded(newest_first(), guard), trace, capacity).blocks[0]
    (lru,) = lru_hits(trace, [capacity])
    check_bound(guard, hits, lru, np.ones(500, int), capacity)


@pytest.mark.parametrize(
    "guard", [Guard(share=0, patience=1), Guard(), Guard(share=0.05)]
)
def test_bound_is_nearly_reached(guard):
    capacity, n = 100, 50_000
    trace = punish(guard, capacity=capacity, requests=n)
    found = rows(guarded(newest_first(), guard), trace, capacity)
    (lru,) = lru_hits(trace, [capacity])
    lost = np.cumsum(lru - found.blocks[0])
    limit = guard.share * np.minimum(np.cumsum(lru), np.cumsum(1 - lru))
    room = limit + (guard.patience + 1) * capacity - lost
    assert 0 <= room.min() <= 1 + guard.share * capacity
    assert found.trusted.any() and not found.trusted.all()


def test_a_policy_that_never_leads_leaves_lru_untouched():
    trace = perc.make("zipf", requests=2000)
    policy = guarded(newest_first(), Guard(credit=0.0))
    found = rows(policy, trace, 300)
    np.testing.assert_array_equal(found.blocks, lru_hits(trace, [300]))
    assert not found.trusted.any()
    alone = rows(newest_first(), trace, 300)
    assert alone.trusted.all()  # there is nobody to doubt it
    assert alone.blocks.sum() < 0.5 * found.blocks.sum()


def test_a_guard_without_limits_changes_nothing(small_chat):
    policy = registry["perc"]()
    free = Guard(patience=1e6, memory=1e6, credit=1e6)
    for capacity in (50, 400):
        found = rows(guarded(policy, free), small_chat, capacity)
        expected = perc.replay_online(small_chat, policy, [capacity])
        np.testing.assert_array_equal(found.blocks, expected.blocks)
        np.testing.assert_array_equal(found.evictions, expected.evictions)


def test_keeps_what_a_good_policy_gains():
    trace = perc.make(
        "scan",
        requests=5000,
        hot_chains=300,
        hot_blocks=1,
        hot_order="cyclic",
        scan_requests=0,
    )
    policy = newest_first()
    (gain,) = rows(policy, trace, 250).blocks.sum(1)
    (kept,) = rows(guarded(policy), trace, 250).blocks.sum(1)
    assert lru_hits(trace, [250]).sum() == 0
    assert kept > 0.97 * gain > 3000


def test_trust_is_lost_and_regained_as_traffic_changes():
    loops = [
        perc.make(
            "scan",
            requests=6000,
            hot_chains=n,
            hot_blocks=1,
            hot_order="cyclic",
            scan_requests=0,
        )
        for n in (200, 95)  # the newest first serves one of them, LRU the other
    ]
    trace = take_turns(loops, requests=2000)
    (hits,) = rows(newest_first(), trace, 100).blocks
    found = rows(guarded(newest_first(), Guard(share=0.1)), trace, 100)
    (lru,) = lru_hits(trace, [100])
    other = trace.kind == 1
    lost, lost_alone = ((lru - h)[other].sum() for h in (found.blocks[0], hits))
    assert lost < 0.1 * lost_alone
    assert found.blocks.sum() > lru.sum() > hits.sum()
    changes = np.abs(np.diff(found.trusted[0].astype(int)))
    assert changes.sum() >= 3


def test_the_future_changes_nothing(small_chat):
    policy = guarded(registry["perc"]())
    n = small_chat.n_requests // 2
    whole = perc.replay_online(small_chat, policy, [60, 300]).blocks[:, :n]
    half = perc.replay_online(first_requests(small_chat, n), policy, [60, 300]).blocks
    np.testing.assert_array_equal(whole, half)


def test_compares_like_any_policy(small_chat):
    policy = registry["perc"]()
    found = perc.compare(small_chat, ["lru", policy, guarded(policy)], [100])
    assert [row.policy for row in found.rows] == ["lru", "perc", "perc+guard"]


def test_bad_guards_are_refused():
    for field in ("share", "patience", "memory", "credit"):
        for value in (-0.1, float("nan"), float("inf")):
            with pytest.raises(InputError, match=f"guard: {field} is"):
                Guard(**{field: value})
    with pytest.raises(InputError, match="share is 1.5"):
        Guard(share=1.5)
    with pytest.raises(InputError, match="memory is 0"):
        Guard(memory=0)
    with pytest.raises(InputError, match="policy gdsf: only an Aged rule"):
        guarded(registry["gdsf"]())


def test_updates_in_place(small_chat):
    policy = registry["perc"]()
    segments, reuse, n_blocks = aged_traffic(small_chat, policy)
    zeros = np.zeros(small_chat.n_requests, np.int32)
    program = replay_guarded.lower(
        worth_of(policy, reuse),
        jnp.asarray(pad(reuse.epoch, 0)),
        jax.tree.map(jnp.asarray, segments),
        np.int32(8),
        n_blocks,
        watch_of(Guard(), zeros, zeros, zeros, 8),
    ).compile()
    text = program.as_text()
    assert text is not None
    n_segments, n_requests = len(segments.cls), len(segments.length)
    large = {n_segments, n_segments // 32, n_blocks + 1, n_requests}
    assert state_copies(text, large) == []
    assert re.search("xla_cpu_small_call", text)
