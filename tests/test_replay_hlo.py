"""The in-place contract: compiled loops must not copy the state at every step.

A copy costs three orders of magnitude and changes no result, so only the compiled
program can tell. `perc/replay.py` says how to keep it away.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from perc.curves import _distances
from perc.held import _replay_one as _replay_held
from perc.lanes import _Columns, _count
from perc.replay import Columns, replay_one

N, R = 4096, 256
PLAIN_COPY = re.compile(r"= \w+\[([\d,]*)\]\S* copy\(")


def state_copies(text: str, state_sizes: set[int]) -> list[str]:
    """Copies in optimised HLO whose result is as large as an array of the state.

    Not those of a constant: that is how a loop's state begins.
    """
    found = []
    for line in text.splitlines():
        match = PLAIN_COPY.search(line)
        if "broadcast" in line.split(" copy(")[-1]:
            continue
        if match and match[1] and int(match[1].split(",")[0]) in state_sizes:
            found.append(line.strip())
    return found


def laid_out(sized: bool) -> Columns:
    access, request = jnp.zeros(N, jnp.int32), jnp.zeros(R, jnp.int32)
    size = access if sized else jnp.ones(1, jnp.int32)
    return Columns(access, access, access, size, size, *[request] * 4)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_replay_updates_in_place(bypass, refresh, sized):
    columns = laid_out(sized)
    program = replay_one.lower(columns, 8, bypass=bypass, refresh=refresh).compile()
    text = program.as_text()
    assert text is not None
    assert state_copies(text, {N, R, N // 32 + 1, N // 1024 + 1}) == []
    assert "xla_cpu_small_call" in text


def test_lru_distances_update_in_place():
    access = jnp.zeros(N, jnp.int32)
    text = _distances.lower(access, access, N).compile().as_text()
    assert text is not None
    assert state_copies(text, {N, N // 32 + 1}) == []


def test_the_guard_sees_a_copy():
    """Two plain reads before two writes in one loop body: what the rules forbid."""

    def careless(i, state):
        one, other = state[i], state[(i * 7) % N]
        return state.at[(i * 7) % N].set(one + 1).at[i].set(other + one)

    program = jax.jit(lambda state: jax.lax.fori_loop(0, N, careless, state))
    text = program.lower(jnp.zeros(N, jnp.int32)).compile().as_text()
    assert text is not None
    assert len(state_copies(text, {N})) > 1  # one is the argument's


@pytest.mark.parametrize("refresh", [False, True])
def test_replay_held_updates_in_place(refresh):
    request = jnp.zeros(R, jnp.int32)
    program = _replay_held.lower(laid_out(False), request, request, 8, refresh)
    text = program.compile().as_text()
    assert text is not None
    assert state_copies(text, {N, R, N // 32 + 1, N // 1024 + 1}) == []


def test_fifo_lanes_update_in_place():
    width = 8
    columns = _Columns(
        jnp.zeros(N, jnp.int32),
        jnp.zeros(N, bool),
        jnp.zeros(N, bool),
        jnp.zeros((N, 1), jnp.uint32),
    )
    program = _count.lower(columns, jnp.zeros(width, jnp.int32), N, 512)
    text = program.compile().as_text()
    assert text is not None
    assert state_copies(text, {512}) == []
