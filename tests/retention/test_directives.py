"""Each directive on cases small enough to check by hand; some are in cases.md."""

import jax.numpy as jnp
import numpy as np
import pytest

import perc
from perc.metrics import ratio
from perc.policies.registry import registry
from perc.retention import parse_rules, replay_rules
from perc.retention.account import quota_use, upkeep
from perc.retention.report import class_rows
from perc.types import Policy
from tests.test_step import trace_of

LRU = registry["lru"]()


def replayed(requests, capacity, table, **columns):
    """Requests a second apart, of blocks of one token each, under LRU."""
    trace = trace_of(requests, **columns)
    return replay_rules(trace, LRU, parse_rules(table), [capacity])


def hits(requests, capacity, table, **columns):
    return replayed(requests, capacity, table, **columns).hits.blocks[0].tolist()


def only(ruled):
    """What the one rule did."""
    (one,) = upkeep(ruled, 0, 0)
    return one


HOT, FRESH = [0, 1], [[10, 11], [20, 21], [30, 31]]


@pytest.mark.parametrize(
    "budget, kept, refused",
    [(0, 0, 4), (1, 1, 2), (2, 2, 0), (0.25, 1, 2), (1.0, 2, 0)],
)
def test_a_pin_keeps_what_its_budget_allows_root_first(budget, kept, refused):
    table = {"pin_budget": budget, "rules": [{"session": 0, "pin": True}]}
    ruled = replayed([HOT, *FRESH, HOT], 4, table, session=[0, 1, 2, 3, 0])
    assert ruled.hits.blocks[0, -1] == kept
    assert only(ruled).pinned_blocks == kept
    assert only(ruled).pins_refused == refused  # both times, never queued


def test_a_pin_of_a_range_pins_what_stands_before_it():
    table = {"pin_budget": 9, "rules": [{"tokens": {"from": 1, "to": 2}, "pin": True}]}
    assert only(replayed([[0, 1, 2]], 4, table)).pinned_blocks == 2


def test_a_cache_full_of_pins_serves_the_rest_uncached():
    table = {"pin_budget": 1.0, "rules": [{"pin": True}]}
    ruled = replayed([HOT, [2, 3], *FRESH, *FRESH, HOT, [2, 3]], 4, table)
    assert ruled.hits.blocks[0].tolist() == [0] * 8 + [2, 2]
    assert ruled.hits.evictions[0] == 12  # nothing left; six requests were not stored


def test_a_request_larger_than_what_the_pins_leave_keeps_its_first_blocks():
    table = {"pin_budget": 2, "rules": [{"session": 0, "pin": True}]}
    giant = list(range(10, 30))
    found = hits([HOT, giant, giant, HOT], 5, table, session=[0, 1, 1, 0])
    assert found == [0, 0, 3, 2]


@pytest.mark.parametrize("capacity", [0, 1, 3])
@pytest.mark.parametrize("merge", ["max", "override"])
def test_everything_at_once_on_too_little_ends(capacity, merge):
    rules = [{"pin": True, "ttl_s": 9, "priority": 100}]
    tenants = [{"name": "all", "quota": 0}]
    table = {"merge": merge, "pin_budget": 0, "tenants": tenants, "rules": rules}
    ruled = replayed([HOT, list(range(40, 80)), *FRESH, HOT], capacity, table)
    assert ruled.hits.blocks[0].tolist() == [0] * 6
    assert only(ruled).pins_refused == 2 + 40 + 6 + 2


def test_protection_ends_at_the_deadline():
    requests, sessions = [[0], [1], [2], [3], [4], [0]], [0, 1, 2, 3, 4, 0]
    for ttl_s, kept in ((4.0, 0), (4.5, 1)):  # [4] comes at 4 s
        table = {"rules": [{"session": 0, "ttl_s": ttl_s}]}
        assert hits(requests, 2, table, session=sessions)[-1] == kept


def test_under_pressure_the_earliest_deadline_is_released_first():
    rules = [{"session": 0, "ttl_s": 100}, {"session": 1, "ttl_s": 50}]
    requests, sessions = [[0], [1], [2], [0], [1]], [0, 1, 2, 0, 1]
    ruled = replayed(requests, 2, {"rules": rules}, session=sessions)
    assert ruled.hits.blocks[0].tolist() == [0, 0, 0, 1, 0]
    first, second = upkeep(ruled, 0, 0)
    assert (first.ttl_released_early, second.ttl_released_early) == (0, 1)
    # [0] from 0 to 4 s, [1] from 1 s until [2] took its place at 2 s.
    assert (first.ttl_block_s, second.ttl_block_s) == (4.0, 1.0)
    first, second = upkeep(ruled, 0, 3)  # counted from the arrival at 3 s on
    assert (first.ttl_block_s, second.ttl_block_s) == (1.0, 0.0)
    assert second.ttl_released_early == 0


def test_a_deadline_goes_before_a_priority():
    """[2] takes the place of the earlier deadline, [3] of what has none."""
    rules = [
        {"session": 0, "ttl_s": 100, "priority": 20},
        {"session": 1, "ttl_s": 50, "priority": 80},
        {"session": 2, "priority": 90},
    ]
    requests, sessions = [[0], [1], [2], [3], [0]], [0, 1, 2, 3, 0]
    ruled = replayed(requests, 2, {"rules": rules}, session=sessions)
    assert ruled.hits.blocks[0, -1] == 1
    assert [one.ttl_released_early for one in upkeep(ruled, 0, 0)] == [0, 1, 0]


def test_a_lower_class_is_emptied_before_a_higher_one_is_touched():
    rules = [{"session": 0, "priority": 36}, {"session": 2, "priority": 20}]
    requests = [[0], [9], [2], [8], [7], [6], [9], [2], [0]]
    sessions = [0, 1, 2, 3, 4, 5, 1, 2, 0]
    found = hits(requests, 3, {"rules": rules}, session=sessions)
    assert found == [0] * 8 + [1]


def test_an_ended_priority_counts_as_used_at_that_moment():
    """[0] falls at 2.5 s, after [1] and [2] were used: they leave before it."""
    rules = [{"session": 0, "priority": 80, "duration_s": 2.5}]
    requests, sessions = [[0], [1], [2], [3], [4], [0]], [0, 1, 2, 3, 4, 0]
    ruled = replayed(requests, 3, {"rules": rules}, session=sessions)
    assert ruled.hits.blocks[0, -1] == 1
    assert only(ruled).priority_block_s == 2.5
    requests, sessions = [*requests[:-1], [5], [0]], [*sessions[:-1], 5, 0]
    ruled = replayed(requests, 3, {"rules": rules}, session=sessions)
    assert ruled.hits.blocks[0, -1] == 0  # [5] found it the least recent


def test_an_ended_priority_is_older_than_the_request_that_finds_it_ended():
    rules = [{"session": 0, "priority": 80, "duration_s": 0.5}]
    found = hits([[0], [1], [2], [1]], 2, {"rules": rules}, session=[0, 1, 2, 1])
    assert found[-1] == 1


def _tails_only(params, f):
    return jnp.where(f.depth == 0, 0.0, f.time_s)


def test_where_priorities_end_a_parent_is_worth_what_its_child_is():
    """At 1.5 s [0, 1] fall; [1] is then worth more than [5, 6], so [0] must be."""
    policy = Policy((), _tails_only, "tails", ("depth", "time_s"), chain=True)
    table = {"rules": [{"session": 0, "priority": 80, "duration_s": 1.5}]}
    trace = trace_of([[0, 1], [5, 6], [7], [0, 1]], session=[0, 1, 2, 0])
    ruled = replay_rules(trace, policy, parse_rules(table), [4])
    assert ruled.hits.blocks[0, -1] == 2


def test_a_lowered_priority_that_ends_is_the_default():
    """While lowered, [1] is the victim of [2]; afterwards [0], which is older, is."""
    for duration_s, kept in ((1.5, 0), (0.5, 1)):
        rules = [{"session": 1, "priority": 10, "duration_s": duration_s}]
        found = hits([[0], [1], [2], [1]], 2, {"rules": rules}, session=[0, 1, 2, 1])
        assert found[-1] == kept


HI = [0, 1, 2, 3]
COLD = [[10 * k + i for i in range(4)] for k in range(1, 6)]


@pytest.mark.parametrize("merge, last", [("max", 4), ("override", 0)])
def test_a_reuse_at_the_default_strips_a_priority_only_by_override(merge, last):
    """Case 10, the variant; the priorities are the trace's."""
    found = hits(
        [HI, HI, *COLD, HI],
        12,
        {"merge": merge},
        priority=np.array([5, 0, 0, 0, 0, 0, 0, 5]),
    )
    assert found == [0, 4, 0, 0, 0, 0, 0, last]


def test_under_override_a_parent_waits_for_its_child():
    """The second request lowers the root, not the branch: [0] stays as long as [1]."""
    rules = [{"session": 0, "priority": 80}, {"session": 1, "priority": 5}]
    requests = [[0, 1], [0], [7], [8], [9], [0, 1]]
    table = {"merge": "override", "rules": rules}
    found = hits(requests, 3, table, session=[0, 1, 7, 8, 9, 0])
    assert found[-1] == 2


def test_a_tenant_over_its_quota_loses_its_own_blocks_first():
    tenants = [{"name": "a", "session": 1, "quota": 2}, {"name": "b", "session": 0}]
    requests = [[50], [0], [1], [2], [3], [50]]
    sessions = [0, 1, 1, 1, 1, 0]
    assert hits(requests, 4, {}, session=sessions)[-1] == 0
    ruled = replayed(requests, 4, {"tenants": tenants}, session=sessions)
    assert ruled.hits.blocks[0, -1] == 1
    (use,) = quota_use(ruled, 0, 0)
    # 3 blocks when [2] came into a cache with room, 3 again when [3] took one's place.
    assert (use.quota_blocks, use.peak_blocks, use.requests_over) == (2, 3, 2)


@pytest.mark.parametrize("quota, kept", [(2, 1), (3, 0)])
def test_a_tenant_at_its_quota_is_not_over_it(quota, kept):
    tenants = [{"name": "a", "session": 1, "quota": quota}]
    requests, sessions = [[50], [0], [1], [2], [60], [50]], [0, 1, 1, 1, 0, 0]
    found = hits(requests, 4, {"tenants": tenants}, session=sessions)
    assert found[-1] == kept


def test_a_block_that_two_tenants_use_counts_against_none():
    tenants = [{"name": "a", "session": 0, "quota": 1}, {"name": "b", "session": 1}]
    sessions = [0, 1, 0, 2, 2, 0]
    requests = [[0], [0], [0, 1], [5], [6], [0, 1]]
    ruled = replayed(requests, 4, {"tenants": tenants}, session=sessions)
    assert ruled.found[0].charged.tolist() == [1, 0, 1, 0, 0, 1]


def test_classes_count_what_a_rule_covers():
    trace = trace_of([HI, HI, [9]], session=[0, 0, 1])
    table = {"rules": [{"name": "tail", "session": 0, "tokens": {"from": 1, "to": 3}}]}
    table["rules"][0]["ttl_s"] = 1
    before, after = np.array([0, 2, 0]), np.array([0, 4, 0])
    rows = {r.name: r for r in class_rows(trace, parse_rules(table), before, after, 1)}
    tail, everything = rows["tail"], rows["all requests"]
    assert (tail.requests, tail.blocks) == (1, 2)
    assert (tail.without, tail.with_rules) == (ratio(1, 2), 1.0)
    assert (everything.blocks, everything.with_rules) == (5, 0.8)


def test_comparison_names_gains_and_losses():
    trace = perc.make("agent", requests=150)
    rules = parse_rules(
        {
            "pin_budget": 0.5,
            "rules": [{"name": "system", "tokens": {"to": 9000}, "pin": True}],
        }
    )
    result = perc.compare_rules(
        trace, rules, "lru,lfu", [400, 800], warmup=0.5, bytes_per_token=131072
    )
    plain = perc.compare(trace, "lru,lfu", [400, 800], warmup=0.5).rows
    assert [row.without.block_hit_ratio for row in result.rows] == [
        row.block_hit_ratio for row in plain
    ]
    answer = result.as_dict()
    assert [(r["policy"], r["capacity_blocks"]) for r in answer["rows"]] == [
        ("lru", 400),
        ("lfu", 400),
        ("lru", 800),
        ("lfu", 800),
    ]
    (rule,) = answer["rows"][0]["rules"]
    assert rule["pin_gib_s"] == rule["pin_block_s"] * 512 * 131072 / 2**30 > 0


@pytest.mark.parametrize("requests", [[], [[]], [[], []]])
def test_without_blocks_there_is_nothing_and_no_error(requests):
    ruled = replayed(requests, 3, {"rules": [{"ttl_s": 1}]})
    assert ruled.hits.blocks.sum() == 0 and ruled.hits.evictions.tolist() == [0]
