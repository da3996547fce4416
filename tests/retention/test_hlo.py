"""The in-place contract of the engine; see `tests/test_replay_hlo.py`."""

import jax.numpy as jnp
import pytest

from perc.retention.engine import Columns, replay_columns
from tests.test_replay_hlo import state_copies

S, R, M, T = 4096, 256, 2048, 8192


@pytest.mark.parametrize(
    "groups, bypass, closed",
    [(1, True, False), (3, False, False), (3, False, True)],
)
def test_the_state_is_updated_in_place(groups, bypass, closed):
    def zeros(*shape):
        return jnp.zeros(shape, jnp.int32)

    columns = Columns(
        *(zeros(S) for _ in range(5)),
        start=zeros(R),
        stop=zeros(R),
        due=zeros(R + 1),
        pins=zeros(R),
        common=zeros(R),
        payer=zeros(R),
        parent=zeros(M),
        node=zeros(M, 2),
        base=zeros(groups),
        rows=zeros(T, 0),
    )
    one = jnp.int32(8)
    program = replay_columns.lower(
        columns, one, one, zeros(groups), bypass=bypass, refresh=True, closed=closed
    )
    text = program.compile().as_text() or ""
    assert state_copies(text, {S + 1, R, M + 1, T}) == []
    assert "xla_cpu_small_call" in text
