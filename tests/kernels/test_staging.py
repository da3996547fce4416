"""Pages in host memory: what comes back, what is in flight, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.kernels import staging
from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS
from perc.kernels.pages import gather, scatter
from tests.kernels.common import pool_of, same_bits

SHAPE = (6, 8, 2, 64)
NAMES = (None, "int8_token", "int2_keys")


def form_of(name):
    return FORMATS[name] if name else None


@given(
    table=st.sampled_from([0, 1, 5]).flatmap(
        lambda n: st.lists(st.integers(-1, 6), min_size=n, max_size=n)
    ),
    chunk=st.sampled_from([1, 2, 4]),
    name=st.sampled_from(NAMES),
)
@settings(max_examples=25, deadline=None)
def test_evict_in_chunks_is_evict(table, chunk, name):
    pool, numbers = pool_of(1, SHAPE, "bfloat16"), jnp.array(table, jnp.int32)
    held = staging.evict(pool, numbers, form_of(name), chunk=chunk)
    assert held.count == len(table)
    if not table:
        assert held.chunks == ()
        return
    if name:
        expected = evict(pool, numbers, FORMATS[name])
    else:
        expected = gather(pool, numbers)
    assert same_bits(held.rows(), expected)
    assert all(c.sharding.memory_kind == "pinned_host" for c in held.chunks)
    assert {len(c) for c in held.chunks} == {chunk}


@given(
    targets=st.permutations(range(6)).flatmap(
        lambda p: st.tuples(*(st.sampled_from([x, -1]) for x in p[:5]))
    ),
    chunk=st.sampled_from([1, 2, 4]),
    name=st.sampled_from(NAMES),
)
@settings(max_examples=25, deadline=None)
def test_restore_in_chunks_is_restore(targets, chunk, name):
    pool = pool_of(2, SHAPE, "bfloat16")
    source, numbers = jnp.array([0, 5, -1, 2, 3]), jnp.array(targets)
    held = staging.evict(pool, source, form_of(name), chunk=chunk)
    if name:
        stored = evict(pool, source, FORMATS[name])
        expected = restore(2 * pool, numbers, stored, FORMATS[name])
    else:
        expected = scatter(2 * pool, numbers, gather(pool, source))
    given_pool = 2 * pool
    found = staging.restore(given_pool, numbers, held)
    assert same_bits(found, expected)
    assert found.sharding.memory_kind == pool.sharding.memory_kind
    assert given_pool.is_deleted() == any(t >= 0 for t in targets)


def test_held_pages_outlive_their_pool():
    pool = pool_of(3, SHAPE, "float32")
    expected = np.asarray(pool)
    held = staging.evict(pool, jnp.arange(6), chunk=4)
    pool = staging.restore(pool, jnp.arange(6)[::-1], held)
    assert same_bits(held.rows(), expected)
    assert same_bits(pool, expected[::-1])
    assert held.nbytes == 8 * expected[0].nbytes  # two chunks of four


def test_two_chunks_are_in_flight(monkeypatch):
    """The third chunk waits for the first, and so on."""
    events = []
    put = jax.device_put
    monkeypatch.setattr(staging, "_wait", lambda a: events.append("wait"))
    monkeypatch.setattr(
        staging.jax, "device_put", lambda *a: events.append("copy") or put(*a)
    )
    pool = pool_of(4, SHAPE, "float32")
    held = staging.evict(pool, jnp.arange(5), chunk=1)
    assert events == ["copy"] * 2 + ["wait", "copy"] * 3
    events.clear()
    staging.restore(pool, jnp.array([0, 1, -1, 2, 3]), held)
    assert events == ["copy"] * 2 + ["wait", "copy"] * 2  # the third is not wanted


def test_memory_without_a_kind_for_the_host_is_the_devices_own():
    pool = jnp.zeros(SHAPE)
    assert staging._memory(pool, ("no_such_kind",)).memory_kind == "device"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p, h: staging.evict(p, jnp.arange(2), chunk=0), "chunk is 0"),
        (lambda p, h: staging.evict(p, jnp.ones(2)), "a table is float32"),
        (lambda p, h: staging.restore(p, jnp.arange(3), h), "the table has 3 numbers"),
        (lambda p, h: staging.restore(p[:, :4], jnp.arange(2), h), "stored pages are"),
        (lambda p, h: jax.jit(staging.evict)(p, jnp.arange(2)), "under jit"),
    ],
)
def test_refused(call, message):
    pool = jnp.zeros(SHAPE)
    held = staging.evict(pool, jnp.arange(2), FORMATS["int8_token"])
    with pytest.raises(ValueError, match=message):
        call(pool, held)


def test_several_devices_are_refused():
    class Spread:
        def devices(self):
            return {1, 2}

    with pytest.raises(ValueError, match="2 devices"):
        staging._checked("evict", Spread(), jnp.arange(2), 1)  # type: ignore[arg-type]
