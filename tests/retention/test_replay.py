"""The engine under random rules against a cache in plain Python."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.features import features
from perc.policies.registry import registry
from perc.retention import Rules, parse_rules, replay_rules
from perc.retention.account import upkeep
from perc.retention.engine import STAYS
from perc.types import Policy
from tests.oracles import retention as oracle
from tests.retention.given import asks_of, busy_traces, in_blocks, tables
from tests.strategies import rows_of


def _mixed(params, f):
    return (f.step * 7 + f.depth * 3) % 5


def _aged(params, f):
    return jnp.asarray(f.time_s + 10 * (f.frequency % 3), jnp.float32)


# Of each: the score of a use in plain Python, from (access, time, request).
BASES = {
    "lru": (registry["lru"](), lambda f, i, time, r: r),
    "lfu": (registry["lfu"](), lambda f, i, time, r: int(f.frequency[i])),
    "fifo": (registry["fifo"](), lambda f, i, time, r: r),
    "mixed": (
        Policy((), _mixed, "mixed", ("step", "depth")),
        lambda f, i, time, r: (r * 7 + int(f.depth[i]) * 3) % 5,
    ),
    "aged": (
        Policy((), _aged, "aged", ("time_s", "frequency"), chain=True),
        lambda f, i, time, r: time + 10 * (int(f.frequency[i]) % 3),
    ),
    "aged, bypass": (
        Policy((), _aged, "aged", ("time_s", "frequency"), chain=True, bypass=True),
        lambda f, i, time, r: time + 10 * (int(f.frequency[i]) % 3),
    ),
}
CASES = [*((name, "max") for name in BASES), ("lru", "override"), ("mixed", "override")]
CLOSED = ["lru", "lfu", "aged", "aged, bypass"]
# Base policies that leave no holes by themselves; with override none does.
SAFE = [case for case in CASES if case[0] in CLOSED or case[1] == "override"]


def by_oracle(table, trace, name, capacity):
    policy, plain = BASES[name]
    values = features(trace, ("frequency", "depth"))

    def score(r, d, time, request):
        return plain(values, trace.start[r] + d, time, request)

    quotas = {
        one["name"]: in_blocks(one["quota"], capacity)
        for one in table["tenants"]
        if "quota" in one
    }
    return oracle.simulate(
        rows_of(trace, trace.block),
        trace.arrival_s.tolist(),
        asks_of(table, trace),
        score,
        capacity=capacity,
        budget=in_blocks(table["pin_budget"], capacity),
        quotas=quotas,
        override=table["merge"] == "override",
        bypass=policy.bypass,
        refresh=policy.refresh,
        chain=policy.chain,
    )


def victims_of(ruled):
    """Blocks that left before each request, in no order."""
    (found,), plan = ruled.found, ruled.plan
    gone = (found.left >= 0) & (found.left < STAYS)
    victims = [[] for _ in range(plan.trace.n_requests)]
    for setting in np.flatnonzero(gone):
        block = plan.trace.block[plan.access[setting]]
        victims[found.left[setting]].append(int(block))
    return victims


def holes(ruled):
    """Resident blocks whose parent is not, after any request."""
    (found,), trace = ruled.found, ruled.plan.trace
    parent = dict(zip(trace.block[1:], trace.block[:-1], strict=True))
    roots = set(trace.block[trace.depth == 0])
    resident, lost = set(), []
    for r, victims in enumerate(victims_of(ruled)):
        own = slice(trace.start[r], trace.stop[r])
        stored = trace.block[own][found.left[own] >= 0]
        resident = (resident - set(trace.block[own]) | set(stored)) - set(victims)
        lost += [b for b in resident - roots if parent[b] not in resident]
    return lost


@pytest.mark.parametrize("name, merge", CASES)
@settings(deadline=None, max_examples=60)
@given(trace=busy_traces(), capacity=st.sampled_from([0, 1, 3, 5, 7]), data=st.data())
def test_engine_equals_oracle(name, merge, trace, capacity, data):
    table = data.draw(tables(merge))
    expected = by_oracle(table, trace, name, capacity)
    found = replay_rules(trace, BASES[name][0], parse_rules(table), [capacity])
    assert found.hits.blocks[0].tolist() == expected.hits
    evicted = sum(map(len, expected.victims)) + expected.unstored
    assert int(found.hits.evictions[0]) == evicted
    (one,) = found.found
    assert [*map(sorted, victims_of(found))] == [*map(sorted, expected.victims)]
    assert one.refused.tolist() == expected.refused
    assert one.charged.tolist() == expected.charged
    rules = upkeep(found, 0, 0)
    assert sum(rule.pins_refused for rule in rules) == sum(expected.refused)
    assert sum(rule.ttl_released_early for rule in rules) == expected.early
    for why, seconds in expected.held.items():
        assert sum(getattr(rule, f"{why}_block_s") for rule in rules) == seconds
    if (name, merge) in SAFE:  # no rule takes a parent before its resident child
        assert holes(found) == []


@pytest.mark.parametrize("name", registry)
def test_without_rules_it_is_replay(name, small_chat):
    policy = registry[name]()
    if not isinstance(policy, Policy):
        with pytest.raises(InputError, match="looks at the cache"):
            replay_rules(small_chat, policy, Rules(), [100])
        return
    sizes = [0, 50, 300, 1200]
    order = perc.ranks(small_chat, perc.scores(policy, small_chat))
    plain = perc.replay(
        small_chat, order, sizes, bypass=policy.bypass, refresh=policy.refresh
    )
    ruled = replay_rules(small_chat, policy, Rules(), sizes)
    assert np.array_equal(ruled.hits.blocks, plain.blocks)
    assert np.array_equal(ruled.hits.evictions, plain.evictions)


@settings(deadline=None, max_examples=15)
@given(busy_traces(), st.sampled_from([1, 4, 9]))
def test_the_priority_column_over_lru_is_the_priority_policy(trace, capacity):
    policy = registry["priority"]()
    order = perc.ranks(trace, perc.scores(policy, trace))
    plain = perc.replay(trace, order, [capacity])
    ruled = replay_rules(trace, registry["lru"](), Rules(), [capacity])
    assert np.array_equal(ruled.hits.blocks, plain.blocks)
