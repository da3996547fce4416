"""Who may leave, class by class: lines of numbers of which the two ends are known.

Members are numbered so that each class is one stretch, the oldest first. A bit says
that a member may leave; `ends` has the first and the last such member of each class.
What is worth least of a class whose worth has one peak by age is one of the two.

The functions take any NamedTuple that has, among others,

    free  u32[N / 32], bit = the member may leave
    ends  i32[2, K], first and last free member of a class; -1 = none
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import WORD, bit_of, lowest_bit, peek


def leave_line(cache: Any, cls, member, wanted) -> Any:
    """A member may leave no more; its class has other ends if it was one."""
    bit = jnp.where(wanted, bit_of(member), jnp.uint32(0))
    word = peek(cache.free, member >> 5)
    free = cache.free.at[member >> 5].set(word & ~bit)
    oldest, newest = cache.ends[0, cls], cache.ends[1, cls]
    free, oldest = _seek(free, oldest, newest, up=True)
    free, newest = _seek(free, newest, oldest, up=False)
    ends = jnp.stack([oldest, newest])
    ends = jnp.where(oldest <= newest, ends, -1)
    return cache._replace(free=free, ends=cache.ends.at[:, cls].set(ends))


def join_line(cache: Any, cls, member, wanted) -> Any:
    """A member may leave from now on."""
    bit = jnp.where(wanted, bit_of(member), jnp.uint32(0))
    word = peek(cache.free, member >> 5)
    free = cache.free.at[member >> 5].set(word | bit)
    oldest, newest = cache.ends[0, cls], cache.ends[1, cls]
    before = jnp.where(oldest < 0, member, jnp.minimum(oldest, member))
    ends = jnp.stack([before, jnp.maximum(newest, member)])
    ends = jnp.where(wanted, ends, cache.ends[:, cls])
    return cache._replace(free=free, ends=cache.ends.at[:, cls].set(ends))


def _seek(free: jax.Array, at, limit, *, up: bool) -> tuple[jax.Array, jax.Array]:
    """The nearest set bit from `at` to `limit`, or a place beyond `limit`."""

    def step(carry):
        free, at, _ = carry
        word = peek(free, at >> 5)
        offset = (at & (WORD - 1)).astype(jnp.uint32)
        if up:
            rest = word >> offset
            hit, miss = at + lowest_bit(rest), (at | (WORD - 1)) + 1
        else:
            rest = word << (WORD - 1 - offset)
            hit, miss = at - lax.clz(rest).astype(jnp.int32), (at >> 5 << 5) - 1
        # Always the value that is there; the write waits for the read.
        free = free.at[at >> 5].set(word)
        return free, jnp.where(rest != 0, hit, miss), rest != 0

    def on_the_way(carry):
        _, at, found = carry
        return ~found & (at >= 0) & ((at <= limit) if up else (at >= limit))

    free, at, _ = lax.while_loop(on_the_way, step, (free, at, jnp.bool_(False)))
    return free, at
