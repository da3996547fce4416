"""GDS, GDSF and Landlord: scores by hand, and what theory promises (L10, L11)."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.online import replay_online
from perc.policies.gds import gds
from perc.policies.gdsf import gdsf
from perc.policies.landlord import landlord
from perc.types import Features, Memory
from tests.oracles import scored
from tests.strategies import traces
from tests.test_step import trace_of


def key_of(policy, *, own=(0.0,), clock=0.0, resident=False, seconds=1.0, tokens=512):
    """Key and notes of one access."""
    own = jnp.asarray(own[: policy.rule.width], jnp.float32)
    memory = Memory(
        own, jnp.float32(clock), jnp.bool_(resident), jnp.int32(1), jnp.int32(2)
    )
    values = Features(recompute_s=jnp.float32(seconds), tokens=jnp.int32(tokens))
    key, notes = policy.rule.score(policy.params, values, memory)
    return float(key), np.asarray(notes).tolist()


@pytest.mark.parametrize("make", [gds, gdsf, landlord])
def test_the_value_is_seconds_per_token_and_ages_on_a_clock(make):
    policy = make(cost_weight=1.0)
    assert policy.rule.closed
    base, _ = key_of(policy)
    assert base == pytest.approx(1 / 512)
    assert key_of(policy, seconds=3.0)[0] == pytest.approx(3 * base)
    assert key_of(policy, seconds=3.0, tokens=3 * 512)[0] == pytest.approx(base)
    assert key_of(policy, clock=5.0)[0] == pytest.approx(5 + base)
    square = key_of(make(cost_weight=2.0), seconds=3.0)[0]
    assert square == pytest.approx((3 / 512) ** 2)
    assert key_of(make(cost_weight=0.0), seconds=3.0)[0] == 1.0


def test_gdsf_multiplies_by_the_uses():
    assert key_of(gdsf(), own=[2.0], clock=7.0, resident=True) == (10.0, [3.0])


@pytest.mark.parametrize(
    ("refresh", "key"),
    [(0.0, 10.25), (0.25, 10.4375), (0.5, 10.625), (1.0, 11.0)],
)
def test_a_hit_gives_back_a_share_of_what_was_spent(refresh, key):
    """Credit 1/4 of 1 is left: it was set to 10 1/4, and the clock shows 10."""
    policy = landlord(refresh=refresh)
    found = key_of(policy, own=[10.25], clock=10.0, resident=True)
    assert found == (key, [key])
    spared = key_of(policy, own=[3.0], clock=10.0, resident=True)
    assert spared[0] == 10 + refresh  # no debt
    assert key_of(policy, own=[10.25], clock=10.0) == (11.0, [11.0])


@settings(deadline=None, max_examples=15)
@given(trace=traces(max_requests=40), capacity=st.integers(0, 10))
def test_full_refresh_is_gds(trace, capacity):
    policies = (landlord(refresh=1, cost_weight=1), gds(cost_weight=1))
    found, expected = (replay_online(trace, p, [capacity]) for p in policies)
    assert found.blocks.tolist() == expected.blocks.tolist()
    assert found.evictions.tolist() == expected.evictions.tolist()


def test_without_a_repeat_gdsf_is_lru():
    """What it kept of 30 blocks shows on the way back: the last ones."""
    ids = [*range(30), *range(29, -1, -1)]
    found = replay_online(trace_of([[b] for b in ids]), gdsf(), [1, 7, 29])
    for hits, kept in zip(found.blocks.tolist(), (1, 7, 29), strict=True):
        assert hits[: 30 + kept] == [0] * 30 + [1] * kept


def priced(policy):
    """The policy with the request's priority as the cost of its one block."""
    score = policy.rule.score

    def by_priority(params, f, m):
        one = jnp.int32(1)
        return score(params, Features(recompute_s=f.priority, tokens=one), m)

    rule = dataclasses.replace(policy.rule, score=by_priority)
    return dataclasses.replace(policy, rule=rule, uses=("priority",))


GDS_LOADS = priced(gds(cost_weight=1, evict_first=True))
LANDLORDS = [priced(landlord(refresh=r, cost_weight=1, bypass=True)) for r in (0, 0.5)]
LANDLORDS.append(priced(landlord(refresh=1, cost_weight=1, bypass=True)))


def paid(policy, ids, costs, capacity):
    prices = np.array([costs[b] for b in ids])
    trace = trace_of([[b] for b in ids], priority=prices)
    hits = replay_online(trace, policy, [capacity]).blocks[0]
    return int(prices[hits == 0].sum())


def least(ids, costs, slots, *, bypass):
    """What the cheapest schedule pays, over all of them."""
    reach = {frozenset(): 0}
    for block in ids:
        after: dict[frozenset, int] = {}
        for cache, cost in reach.items():
            options = [cache]
            if block not in cache:
                cost += costs[block]
                room = [cache] if len(cache) < slots else []
                options = [c - {b} for c, b in itertools.product([cache], cache)]
                options = [c | {block} for c in (*room, *options)]
                options += [cache] if bypass else []
            for option in options:
                after[option] = min(cost, after.get(option, cost))
        reach = after
    return min(reach.values())


games = st.tuples(
    st.lists(st.integers(0, 3), min_size=12, max_size=12),
    st.lists(st.integers(1, 6), min_size=4, max_size=4),
    st.integers(1, 3),
)


@settings(deadline=None, max_examples=30)
@given(games)
def test_cost_is_bounded_against_caches_that_must_load(game):
    ids, costs, k = game
    own = paid(GDS_LOADS, ids, costs, k)
    for h in range(1, k + 1):
        assert own * (k - h + 1) <= k * least(ids, costs, h, bypass=False)


@settings(deadline=None, max_examples=30)
@given(games)
def test_with_bypass_cost_is_bounded_against_caches_that_may_refuse(game):
    ids, costs, k = game
    for policy in LANDLORDS:
        own = paid(policy, ids, costs, k)
        for h in range(1, k + 1):
            best = least(ids, costs, h, bypass=True)
            assert own * (k - h + 1) <= (k + 1) * best


def test_who_must_load_breaks_the_bound_of_those_who_may_refuse():
    """Both examples of L10, k = h = 1, where the ratio may be 1."""
    ids, costs = [1, 0, 1, 0, 2, 3, 1, 3, 0, 1], [6, 3, 6, 6]
    assert paid(GDS_LOADS, ids, costs, 1) == 48
    assert least(ids, costs, 1, bypass=True) == 36
    ids, costs = [1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0], [1, 1]
    assert paid(GDS_LOADS, ids, costs, 1) == 4
    assert least(ids, costs, 1, bypass=True) == 3


@pytest.mark.parametrize(
    ("uses", "forgotten", "retained"), [(10, 12, 8), (1000, 1002, 65)]
)
def test_frequency_loses_every_guarantee(uses, forgotten, retained):
    """L11: x used often, then y z y z .. with two slots. GDS misses 3 times."""
    ids = [0] * uses + [1, 2] * uses
    trace = trace_of([[b] for b in ids])

    def misses(policy):
        return len(ids) - int(replay_online(trace, policy, [2]).blocks.sum())

    assert misses(gds(evict_first=True)) == 3
    assert misses(gdsf(evict_first=True)) == forgotten
    assert misses(gdsf(evict_first=True, retained=True)) == retained


@pytest.mark.parametrize("make", [gds, gdsf, landlord])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_weight_out_of_range_is_refused(make, value):
    with pytest.raises(
        InputError, match=f"{make.__name__}: cost_weight is .*, must be"
    ):
        make(cost_weight=value)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_refresh_out_of_range_is_refused(value):
    with pytest.raises(InputError, match="landlord: refresh is .*, must be"):
        landlord(refresh=value)


def test_oracles_price_blocks_as_the_policies_do():
    """One more look at the vector of 2.4, through `landlord` and its oracle."""
    ids, costs = [1, 0, 2, 3, 2], {0: 4, 1: 3, 2: 1, 3: 2}
    policy = priced(landlord(refresh=1, cost_weight=1, evict_first=True))
    assert paid(policy, ids, costs, 2) == 10 and paid(policy, ids, costs, 3) == 11
    rows = [[b] for b in ids]
    key = scored.landlord(1, costs.get)
    hits, victims = scored.simulate(rows, 2, key, evict_first=True)
    assert hits == [0, 0, 0, 0, 1] and sum(victims, []) == [1, 0]
