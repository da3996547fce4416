"""The lowest of many keys by position, against a dict and a `min`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from perc.bitset import write
from perc.minima import (
    EMPTY,
    announce,
    empty_minima,
    insert,
    pop_lowest,
    ready,
    settle,
)

N = 4096  # three levels of bounds


@jax.jit
def append(minima, keys, begin):
    minima = minima._replace(keys=lax.dynamic_update_slice(minima.keys, keys, (begin,)))
    return announce(minima, keys.min())


@jax.jit
def remove(minima, position):
    return minima._replace(keys=write(minima.keys, position, jnp.int32(EMPTY)))


@jax.jit
def pop(minima, stop, most=1):
    """Where the lowest starts, how many left, and how often it was asked for."""

    def once(carry):
        minima, _, _, turns = carry
        return *lax.cond(
            ready(minima),
            lambda: pop_lowest(minima, stop, most),
            lambda: (settle(minima, stop), jnp.int32(0), jnp.int32(0)),
        ), turns + 1

    zero = jnp.int32(0)
    minima, count, position, turns = lax.while_loop(
        lambda carry: (carry[1] == 0) & (carry[3] < N),
        once,
        (minima, zero, zero, zero),
    )
    return minima, position, count, turns


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 700)),
        st.tuples(st.just("remove"), st.integers(0, N)),
        st.tuples(st.just("insert"), st.integers(0, N)),
        st.tuples(st.just("pop"), st.integers(1, 60)),
    ),
    max_size=25,
)


@pytest.mark.parametrize("spread", [2, 30, 1000])
@settings(deadline=None, max_examples=60)
@given(steps=steps, seed=st.integers(0, 2**16))
def test_the_lowest_key_leaves_first_then_the_first_position(spread, steps, seed):
    draw = np.random.default_rng(seed)
    minima, expected, end = empty_minima(N), {}, 0
    for what, number in steps:
        if what == "append" and end + 700 <= N:
            keys = draw.integers(-spread, spread, 700).astype(np.int32)
            keys[number:] = EMPTY  # positions that are not used yet
            minima = append(minima, keys, end)
            expected |= {end + i: int(key) for i, key in enumerate(keys[:number])}
            end += number
        elif what == "remove" and expected:
            position = list(expected)[number % len(expected)]
            minima = remove(minima, position)
            del expected[position]
        elif what == "insert" and end and number % end not in expected:
            key = int(draw.integers(-spread, spread))
            minima = insert(minima, jnp.int32(number % end), jnp.int32(key))
            expected[number % end] = key
        elif what == "pop":
            left = min(number, len(expected))
            while left:
                minima, position, count, _ = pop(minima, jnp.int32(end), left)
                left -= int(count)
                order = sorted(expected, key=lambda at: (expected[at], at))[:count]
                assert int(position) == order[0]
                assert len({expected[at] for at in order}) == 1
                for at in order:
                    del expected[at]
                    assert minima.keys[at] == EMPTY
                assert (minima.keys != EMPTY).sum() == len(expected)


def test_keys_from_the_stop_on_stay_and_are_found_later():
    minima = append(empty_minima(64), jnp.array([5, 7, 3], jnp.int32), 0)
    minima, position, *_ = pop(minima, 3)
    assert position == 2
    # In the row of the others; lower, but of the running request.
    minima = minima._replace(keys=minima.keys.at[3:5].set(jnp.array([1, 2])))
    minima, position, *_ = pop(minima, 3)
    assert position == 0
    minima = announce(minima, jnp.int32(1))
    found = []
    for _ in range(3):
        minima, position, *_ = pop(minima, 5)
        found.append(int(position))
    assert found == [3, 4, 1]


def test_a_key_inserted_while_another_row_comes_next():
    keys = jnp.full(48, EMPTY, jnp.int32)
    keys = keys.at[jnp.array([0, 1, 16, 32])].set(jnp.array([1, 9, 5, 6]))
    minima, position, *_ = pop(append(empty_minima(64), keys, 0), 48)
    assert position == 0
    minima = insert(minima, jnp.int32(20), jnp.int32(7))
    found = []
    for _ in range(4):
        minima, position, *_ = pop(minima, 48)
        found.append(int(position))
    assert found == [16, 32, 20, 1]


def test_equal_keys_cost_one_turn_each():
    minima = append(empty_minima(64), jnp.zeros(16, jnp.int32), 0)
    minima, position, _, turns = pop(minima, 16)
    assert position == 0 and turns > 1
    for expected in range(1, 11):
        minima, position, _, turns = pop(minima, 16)
        assert (position, turns) == (expected, 1)
    minima, position, count, turns = pop(minima, 16, 3)
    assert (position, count, turns) == (11, 3, 1)
    minima, position, count, turns = pop(minima, 16, 3)
    assert (position, count, turns) == (14, 2, 1)


def test_the_scratch_row_takes_what_is_not_wanted():
    minima = append(empty_minima(64), jnp.array([4, 6], jnp.int32), 0)
    minima, position, *_ = pop(minima, 2)
    minima = insert(minima, jnp.int32(64), jnp.int32(EMPTY))
    minima, position, *_ = pop(minima, 2)
    assert position == 1
