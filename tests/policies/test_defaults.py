"""Default parameters: results that are quoted without parameters rest on them."""

import inspect

import pytest

from perc.errors import INT32_MAX, STEEPEST, UINT32_MAX, InputError
from perc.policies.gds import gds
from perc.policies.gdsf import gdsf
from perc.policies.landlord import landlord
from perc.policies.priority import priority
from perc.policies.registry import registry

DEFAULTS = {
    "lru_k": {"k": 2, "retained": False},
    "slru": {"protected": 0.5},
    "slru_threshold": {"uses": 2},
    "gds": {"cost_weight": 0.0, "evict_first": False},
    "gdsf": {"cost_weight": 0.0, "evict_first": False, "retained": False},
    "landlord": {
        "refresh": 0.5,
        "cost_weight": 0.0,
        "bypass": False,
        "evict_first": False,
    },
    "s3fifo": {"small": 0.1, "ghost": 0.9, "threshold": 2},
    "tinylfu": {"window": 10.0},
    "w_tinylfu": {"window": 0.01, "protected": 0.8, "halve": 10.0},
    "hazard": {"horizon_s": 200.0, "cost_weight": 0.0, "closed": True},
    "workload_aware": {"life_s": 60.0, "censored": False, "closed": True},
    "ttl": {
        "queue_s": 60.0,
        "eta": 1.0,
        "least": 100,
        "cold_s": 0.0,
        "history": 1000,
    },
    "t_lru": {"xi_tokens": 1024, "next_tokens": 512},
    "marconi": {"alpha": 1.0},
    "priority": {"merge": "max"},
    "random": {"seed": 0},
    "rlt": {"seed": 0},
    "perc": {"smoothing": 200.0, "horizon_s": 86_400.0, "cost_weight": 0.0},
    "perc_decay": {"tau_s": 200.0, "cost_weight": 0.0},
    "perc_published": {
        "horizon_s": 5.0,
        "recompute_s_per_token": 0.002,
        "default_rate_per_s": 0.05,
        "shortest_gap_s": 0.01,
    },
}
TINY = 1e-9
SHARE = ((TINY, 1.0), (0.0, 1.001))
ABOVE = ((TINY,), (0.0, -TINY))
WEIGHT = ((0.0, STEEPEST), (-TINY, STEEPEST + TINY))
SEED = ((0, UINT32_MAX), (-1, UINT32_MAX + 1))
COUNT = ((1, INT32_MAX), (0, INT32_MAX + 1))
ZERO = ((0,), (-1,))
RANGES = {  # of every number: ends that are taken, and what lies beyond
    "lru_k": {"k": ((1, 8), (0, 9))},
    "slru": {"protected": SHARE},
    "slru_threshold": {"uses": COUNT},
    "gds": {"cost_weight": WEIGHT},
    "gdsf": {"cost_weight": WEIGHT},
    "landlord": {"refresh": ((0.0, 1.0), (-TINY, 1.001)), "cost_weight": WEIGHT},
    "s3fifo": {
        "small": ((TINY, 0.999), (0.0, 1.0)),
        "ghost": ((0.0,), (-TINY,)),
        "threshold": COUNT,
    },
    "tinylfu": {"window": ABOVE},
    "w_tinylfu": {"window": SHARE, "protected": SHARE, "halve": ABOVE},
    "hazard": {"horizon_s": ABOVE, "cost_weight": WEIGHT},
    "workload_aware": {"life_s": ABOVE},
    "ttl": {
        "queue_s": ZERO,
        "eta": ((-1, 1), (-1.001, 1.001)),
        "least": ((0, INT32_MAX), (-1, INT32_MAX + 1)),
        "cold_s": ZERO,
        "history": ((1, 10**6), (0, 10**6 + 1)),
    },
    "t_lru": {"xi_tokens": ZERO, "next_tokens": ZERO},
    "marconi": {"alpha": ZERO},
    "random": {"seed": SEED},
    "rlt": {"seed": SEED},
    "perc": {"smoothing": ZERO, "cost_weight": WEIGHT, "horizon_s": ABOVE},
    "perc_decay": {"tau_s": ZERO, "cost_weight": ZERO},
    "perc_published": {
        "horizon_s": ABOVE,
        "recompute_s_per_token": ABOVE,
        "default_rate_per_s": ABOVE,
        "shortest_gap_s": ABOVE,
    },
}
BARE = (
    "lru fifo lfu lfu_in_cache arc arc_vllm sieve mru filo shortest largest belady "
    "belady_bypass"
).split()


@pytest.mark.parametrize("name", [*DEFAULTS, *BARE])
def test_defaults(name):
    given = inspect.signature(registry[name]).parameters.values()
    assert {p.name: p.default for p in given} == DEFAULTS.get(name, {})


@pytest.mark.parametrize("name", DEFAULTS)
def test_params_hold_what_was_given(name):
    """Numbers that the policy carries for its score, by the name they were given."""
    params = registry[name]().params
    if isinstance(params, dict):
        numbers = {k: v for k, v in params.items() if k in DEFAULTS[name]}
        for key, value in numbers.items():
            assert float(value) == pytest.approx(DEFAULTS[name][key])


@pytest.mark.parametrize("name", RANGES)
def test_ranges_end_where_they_are_said_to(name):
    for number, (taken, refused) in RANGES[name].items():
        for value in taken:
            assert registry[name](**{number: value}).name == name
        for value in refused:
            with pytest.raises(InputError, match=f"{name}: {number} is .* must be"):
                registry[name](**{number: value})


def test_who_may_refuse_a_block():
    bypass = {name for name in [*DEFAULTS, *BARE] if registry[name]().bypass}
    assert bypass == {
        *("slru", "arc", "arc_vllm", "s3fifo", "sieve", "tinylfu", "w_tinylfu"),
        "belady_bypass",
    }
    assert landlord(bypass=True).bypass


def test_who_needs_the_leaf_test():
    """Keys that may rank a parent below its child, of rules that a cache scores."""
    closed = [
        *(make(cost_weight=1.0) for make in (gds, gdsf, landlord)),
        *(landlord(refresh=0.9), priority(merge="override"), registry["mru"]()),
    ]
    assert all(policy.rule.closed for policy in closed)
    free = [gds(), gdsf(), landlord(refresh=1), registry["t_lru"]()]
    assert not any(policy.rule.closed for policy in free)
