"""The in-place contract of the online engines; see `tests/test_replay_hlo.py`."""

import jax.numpy as jnp
import pytest

from perc.features import features
from perc.online_listed import replay_listed
from perc.online_scored import Traffic, replay_scored
from perc.policies.gdsf import gdsf
from perc.policies.registry import registry
from perc.types import Listed, OnlinePolicy
from tests.test_replay_hlo import state_copies
from tests.test_step import trace_of

N, M, R = 4096, 2048, 256
POLICIES = {
    name: policy
    for name in registry
    if isinstance(policy := registry[name](), OnlinePolicy)
}
POLICIES["gdsf closed"] = gdsf(cost_weight=1.0)


def compiled(policy):
    engine = replay_listed if isinstance(policy.rule, Listed) else replay_scored
    access, request = jnp.zeros(N, jnp.int32), jnp.zeros(R, jnp.int32)
    one = features(trace_of([[1]]), policy.uses)
    columns = {
        name: jnp.zeros(N, value.dtype)
        for name in policy.uses
        if (value := getattr(one, name)) is not None
    }
    parent = jnp.zeros(M, jnp.int32)
    values = type(one)(**columns)
    traffic = Traffic(access, access, parent, request, request, values)
    return engine.lower(policy, traffic, jnp.int32(8)).compile().as_text()


@pytest.mark.parametrize("name", POLICIES)
def test_the_state_is_updated_in_place(name):
    text = compiled(POLICIES[name]) or ""
    sizes = {N, R, *range(M, M + 5)}
    assert state_copies(text, sizes) == []
    assert "xla_cpu_small_call" in text
