"""The online engines against caches in plain Python, on random prefix trees."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.online import online_traffic, replay_online
from perc.online_listed import replay_listed
from perc.online_scored import replay_scored
from perc.policies.arc import arc, arc_vllm
from perc.policies.gds import gds
from perc.policies.gdsf import gdsf
from perc.policies.landlord import landlord
from perc.policies.lfu_in_cache import lfu_in_cache
from perc.policies.lru_k import lru_k
from perc.policies.marconi import marconi
from perc.policies.mru import mru
from perc.policies.priority import priority
from perc.policies.random import random
from perc.policies.registry import registry
from perc.policies.rlt import rlt
from perc.policies.s3fifo import s3fifo
from perc.policies.sieve import sieve
from perc.policies.slru import slru, slru_threshold
from perc.policies.t_lru import t_lru
from perc.policies.tinylfu import tinylfu
from perc.policies.w_tinylfu import w_tinylfu
from perc.shapes import bucket
from perc.types import Listed, OnlinePolicy, Scored
from tests.oracles import listed, scored
from tests.oracles.arc_vllm import ArcVllm
from tests.oracles.marconi import Marconi
from tests.oracles.rlt import Rlt
from tests.oracles.w_tinylfu import WTinyLfu
from tests.strategies import rows_of, traces
from tests.test_step import trace_of

CAPACITIES = (0, 1, 3, 5, 11)


def _work(trace):
    """What blocks save: 2p + n for n tokens after p others, request by request."""
    work = 2 * trace.depth * trace.block_tokens + trace.tokens
    rows = zip(rows_of(trace, trace.block), rows_of(trace, work), strict=True)
    return [dict(zip(*row, strict=True)) for row in rows]


SCORED = {  # a policy beside the oracle of its key
    "gds": (gds(), scored.gds),
    "gdsf": (gdsf(), scored.gdsf),
    "gdsf evict first": (gdsf(evict_first=True), scored.gdsf),
    "lfu_in_cache": (lfu_in_cache(), scored.lfu_in_cache),
    "slru_threshold": (slru_threshold(uses=3), lambda: scored.slru_threshold(3)),
    "lru_k": (lru_k(), lambda: scored.lru_k(2)),
    "lru_k 3": (lru_k(k=3), lambda: scored.lru_k(3)),
    "lru_k retained": (lru_k(retained=True), lambda: scored.lru_k(2, retained=True)),
    "gdsf retained": (gdsf(retained=True), lambda: scored.gdsf(retained=True)),
    "landlord": (landlord(), lambda: scored.landlord(0.5)),
    "landlord 0": (landlord(refresh=0), lambda: scored.landlord(0)),
    "landlord evict first": (landlord(evict_first=True), lambda: scored.landlord(0.5)),
    "landlord bypass": (landlord(bypass=True), lambda: scored.landlord(0.5)),
    "landlord 1 bypass": (landlord(refresh=1, bypass=True), scored.gds),
    "mru": (mru(), scored.mru),
}
TRACED: dict[str, tuple[Any, Any]] = {  # as both, where the oracle knows the trace
    "t_lru": (
        t_lru(xi_tokens=9, next_tokens=3),
        lambda t: scored.t_lru(t.input_tokens.tolist(), t.block_tokens, 9, 3),
    ),
    "priority override": (
        priority(merge="override"),
        lambda t: scored.override(t.priority.tolist()),
    ),
    "marconi": (marconi(), lambda t: lambda c: Marconi(c, _work(t))),
    "marconi 2": (marconi(alpha=2), lambda t: lambda c: Marconi(c, _work(t), 2)),
    "marconi 0": (marconi(alpha=0), lambda t: lambda c: Marconi(c, _work(t), 0)),
}
LISTED = {  # a policy beside the oracle of its cache, by capacity
    "slru": (slru(), lambda c: listed.Slru(c, 0.5)),
    "slru 80 %": (slru(protected=0.8), lambda c: listed.Slru(c, 0.8)),
    "arc": (arc(), listed.Arc),
    "s3fifo": (s3fifo(), listed.S3Fifo),
    "s3fifo 25 %": (
        s3fifo(small=0.25, ghost=0.75, threshold=1),
        lambda c: listed.S3Fifo(c, 0.25, 0.75, 1),
    ),
    "sieve": (sieve(), listed.Sieve),
    "tinylfu": (tinylfu(), listed.TinyLfu),
    "tinylfu 1": (tinylfu(window=1), lambda c: listed.TinyLfu(c, 1)),
    "random": (random(seed=3), lambda c: listed.RandomLeaf(c, 3)),
    "arc_vllm": (arc_vllm(), ArcVllm),
    "w_tinylfu": (w_tinylfu(), WTinyLfu),
    "w_tinylfu 40 %": (
        w_tinylfu(window=0.4, protected=0.5, halve=1),
        lambda c: WTinyLfu(c, 0.4, 0.5, 1),
    ),
    "rlt": (rlt(seed=3), lambda c: Rlt(c, 3)),
}


def _by_hand(params, f, m):
    """Rises and falls, along a prompt and with time; notes how it was used."""
    own = m.own * 2 + f.depth
    key = (own[0] + 3 * f.step + params + m.resident) % 7 + m.clock * (own[1] % 2)
    return key, jnp.stack([own[0] % 16, own[1] + 1])


def by_hand(salt):
    notes = {}

    def key(use):
        one, other = notes.get(use.block, (0, 0)) if use.resident else (0, 0)
        one, other = one * 2 + use.depth, other * 2 + use.depth
        notes[use.block] = one % 16, other + 1
        return (one + 3 * use.now + salt + use.resident) % 7 + use.clock * (other % 2)

    return key


def assert_equal(found, expected, k=0):
    hits, victims = expected
    assert found.blocks[k].tolist() == hits
    assert int(found.evictions[k]) == sum(map(len, victims))


def traced(kind):
    return [name for name, (policy, _) in TRACED.items() if type(policy.rule) is kind]


@pytest.mark.parametrize("name", [*SCORED, *traced(Scored)])
@settings(deadline=None, max_examples=30)
@given(trace=traces(max_requests=40))
def test_scored_policies_equal_their_oracles(name, trace):
    policy, key = {**SCORED, **TRACED}[name]
    found = replay_online(trace, policy, CAPACITIES)
    for k, capacity in enumerate(CAPACITIES):
        expected = scored.simulate(
            rows_of(trace, trace.block),
            capacity,
            key(trace) if name in TRACED else key(),
            evict_first=policy.rule.evict_first,
            bypass=policy.bypass,
            closed=policy.rule.closed,
        )
        assert_equal(found, expected, k)


@settings(deadline=None, max_examples=150)
@given(
    trace=traces(max_requests=40),
    capacity=st.sampled_from(CAPACITIES),
    salt=st.integers(0, 6),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_any_score_equals_the_oracle(trace, capacity, salt, flags):
    first, bypass, closed = flags
    rule = Scored(_by_hand, width=2, evict_first=first, closed=closed)
    policy = OnlinePolicy(
        jnp.int32(salt), rule, "by hand", ("depth", "step"), bypass=bypass
    )
    expected = scored.simulate(
        rows_of(trace, trace.block),
        capacity,
        by_hand(salt),
        evict_first=first and not bypass,
        bypass=bypass,
        closed=closed,
    )
    assert_equal(replay_online(trace, policy, [capacity]), expected)


@pytest.mark.parametrize("name", [*LISTED, *traced(Listed)])
@settings(deadline=None, max_examples=40)
@given(trace=traces(max_requests=60))
def test_listed_policies_equal_their_oracles(name, trace):
    policy, cache = {**LISTED, **TRACED}[name]
    cache = cache(trace) if name in TRACED else cache
    found = replay_online(trace, policy, CAPACITIES[1:])
    for k, capacity in enumerate(CAPACITIES[1:]):
        expected = listed.simulate(
            rows_of(trace, trace.block),
            cache(capacity),
            root_first=policy.rule.root_first,
        )
        assert_equal(found, expected, k)


def full_bucket():
    """64 blocks, so that arrays have no padding behind the last ones."""
    chains = [
        *([3 * i, 3 * i + 1, 3 * i + 2] for i in range(20)),
        [60],
        [61],
        [62],
        [63],
    ]
    again = np.random.default_rng(0).choice([0, 1, 22, 23], 24)
    return trace_of([*chains, *(chains[i] for i in again)])


@pytest.mark.parametrize("name", [*LISTED, *traced(Listed)])
def test_the_last_block_of_a_full_bucket_is_like_all_others(name):
    trace = full_bucket()
    assert trace.n_blocks == bucket(trace.n_blocks)
    policy, cache = {**LISTED, **TRACED}[name]
    cache = cache(trace) if name in TRACED else cache
    for k, capacity in enumerate((3, 5, 8)):
        expected = listed.simulate(
            rows_of(trace, trace.block),
            cache(capacity),
            root_first=policy.rule.root_first,
        )
        assert_equal(replay_online(trace, policy, (3, 5, 8)), expected, k)


@settings(deadline=None, max_examples=30)
@given(trace=traces(max_requests=40), capacity=st.integers(0, 12))
def test_what_must_be_lru_is_lru(trace, capacity):
    lru = registry["lru"]()
    order = perc.ranks(trace, perc.scores(lru, trace))
    expected = perc.replay(trace, order, [capacity])
    refilled = landlord(refresh=1)
    for policy in (gds(), refilled, lru_k(k=1), slru_threshold(uses=1)):
        found = replay_online(trace, policy, [capacity])
        assert found.blocks.tolist() == expected.blocks.tolist(), policy.name
        assert found.evictions.tolist() == expected.evictions.tolist(), policy.name


@settings(deadline=None, max_examples=40)
@given(trace=traces(max_requests=60), capacity=st.integers(1, 8))
def test_random_leaves_no_prefix_hole_and_no_running_victim(trace, capacity):
    cache = listed.RandomLeaf(capacity, 3)
    for blocks in rows_of(trace, trace.block):
        _, (victims,) = listed.simulate([blocks], cache, root_first=True)
        resident = [b for b in blocks if b in cache]
        assert resident == blocks[: len(resident)]
        assert len(resident) == min(len(blocks), capacity)
        assert set(victims).isdisjoint(resident)
        assert all(p is None or p in cache for p in cache.parent.values())


@pytest.mark.parametrize(
    ("policy", "other"),
    [(slru(), slru(protected=0.8)), (slru_threshold(), slru_threshold(uses=3))],
)
def test_same_shapes_compile_once(policy, other, small_chat):
    """Capacities and parameters are data; a rule is not."""
    engine: Any = replay_listed if isinstance(policy.rule, Listed) else replay_scored
    replay_online(small_chat, policy, [7])
    before = engine._cache_size()
    replay_online(small_chat, policy, [0, 10, 500])
    replay_online(small_chat, other, [10])
    assert engine._cache_size() == before


def test_a_policy_in_a_dozen_lines(small_chat):
    """LFU whose count halves for every 100 requests that a block was idle."""

    def score(params, f, m):
        idle = f.step - m.own[1]
        uses = m.own[0] * 0.5 ** (idle / params["half_life"]) + 1
        return uses, jnp.stack([uses, jnp.float32(f.step)])

    rule = Scored(score, width=2)
    decay = OnlinePolicy({"half_life": jnp.float32(100)}, rule, "decay", ("step",))
    rows = perc.compare(small_chat, ["lru", decay], [200]).rows
    assert [row.policy for row in rows] == ["lru", "decay"]
    assert 0 < rows[1].block_hit_ratio < 1


def test_compare_runs_both_kinds(small_chat):
    names = ["gdsf", "lru", "s3fifo", "belady"]
    rows = perc.compare(small_chat, names, [800]).rows
    assert [row.policy for row in rows] == names
    gaps = [row.gap_closed for row in rows]
    assert gaps[1] == 0 and gaps[3] == 1
    assert all(gap is not None and gap < 1 for gap in (gaps[0], gaps[2]))


def test_an_online_policy_has_no_score_of_its_own(small_chat):
    policy: Any = gdsf()
    with pytest.raises(InputError, match="'gdsf' has no score .* what the cache did"):
        perc.scores(policy, small_chat)


def test_negative_capacity_is_refused(small_chat):
    with pytest.raises(ValueError, match="negative capacity"):
        replay_online(small_chat, gdsf(), [-1])


def test_a_score_that_is_no_number_is_refused():
    rule = Scored(lambda params, f, m: (jnp.float32(jnp.nan), m.own))
    with pytest.raises(ValueError, match="wrong: 3 of its scores are NaN"):
        replay_online(trace_of([[1, 2], [3]]), OnlinePolicy((), rule, "wrong"), [5])


def test_a_victim_that_is_not_resident_is_refused():
    rule = dataclasses.replace(arc().rule, evict=lambda params, s, access: (s, 0))
    trace = trace_of([[1], [2], [3]])
    with pytest.raises(ValueError, match="wrong: 1 of its victims were not resident"):
        replay_online(trace, OnlinePolicy((), rule, "wrong"), [1])


def test_an_empty_trace_has_no_hits():
    hits = replay_online(perc.make("chat", requests=0), gdsf(), [5])
    assert hits.blocks.shape == (1, 0)


def test_infinite_scores_are_allowed():
    rule = Scored(lambda params, f, m: (jnp.float32(jnp.inf), m.own))
    trace = trace_of([[1], [2], [3], [3]])
    found = replay_online(trace, OnlinePolicy((), rule, "all"), [2])
    assert found.blocks[0].tolist() == [0, 0, 0, 1] and found.evictions[0] == 1


def test_traffic_knows_parents():
    traffic = online_traffic(trace_of([[1, 2, 3], [1, 4]]), gdsf())
    nobody = len(traffic.parent)
    assert np.asarray(traffic.parent)[:4].tolist() == [nobody, 0, 1, 0]
