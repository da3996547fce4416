"""The in-place contract of the online engines; see `tests/test_replay_hlo.py`."""

import dataclasses

import jax.numpy as jnp
import pytest

from perc.features import features
from perc.minima import ROW
from perc.online_listed import replay_listed
from perc.online_scored import Traffic, replay_scored
from perc.policies.gdsf import gdsf
from perc.policies.marconi import CHUNK
from perc.policies.registry import registry
from perc.types import Listed, OnlinePolicy, Scored
from tests.test_replay_hlo import state_copies
from tests.test_step import trace_of

N, M, R = 4096, 2048, 256
POLICIES = {
    name: policy
    for name in registry
    if isinstance(policy := registry[name](), OnlinePolicy)
    and isinstance(policy.rule, Scored | Listed)
}
POLICIES["gdsf closed"] = gdsf(cost_weight=1.0)
POLICIES["gdsf closed, evict first"] = gdsf(cost_weight=1.0, evict_first=True)
POLICIES["gdsf bypass"] = dataclasses.replace(gdsf(), bypass=True)


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
    traffic = Traffic(access, access, parent, request, request, values, access)
    return engine.lower(policy, traffic, jnp.int32(8)).compile().as_text()


@pytest.mark.parametrize("name", POLICIES)
def test_the_state_is_updated_in_place(name):
    text = compiled(POLICIES[name]) or ""
    sizes = {N, N + 1, N + ROW, 2 * N // ROW, R, *range(M, M + 5), M + CHUNK}
    assert state_copies(text, sizes) == []
    assert "xla_cpu_small_call" in text
