"""The cache of a `Listed` rule: the policy keeps the books, this file serves requests.

    1. Look up:  the hit is the longest run of resident blocks from the root.
    2. Access:   the blocks of the request one after the other. A resident one is a hit
                 for the policy, whether it leads or not. Another one is inserted, after
                 the policy has named a victim if the cache is full.

What is resident is written down here, so that no policy can exceed the capacity.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek
from perc.lists import read, when
from perc.online_scored import Traffic
from perc.types import Access, Listed, OnlinePolicy


class _Cache(NamedTuple):
    books: Any  # the policy's
    resident: jax.Array  # i32[M + 1], 1 = in the cache; entry M stands for no victim
    size: jax.Array  # i32[], resident blocks
    evictions: jax.Array  # i32[]
    bad: jax.Array  # i32[], victims that were not resident


@jax.jit
def replay_listed(
    policy: OnlinePolicy, traffic: Traffic, capacity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One cache of 1 block or more: leading hits i32[R], evictions, bad victims."""
    rule, n_blocks = policy.rule, traffic.parent.shape[0]
    assert isinstance(rule, Listed)

    def serve(r, carry):
        cache, hits = carry
        first, last = traffic.start[r], traffic.stop[r]
        resident, hit = _look_up(cache.resident, traffic, first, last)

        def access(j, cache):
            i = j if rule.root_first else first + last - 1 - j
            return _access(policy, traffic, capacity, i, cache)

        cache = cache._replace(resident=resident)
        return lax.fori_loop(first, last, access, cache), hits.at[r].set(hit)

    cache = _Cache(
        rule.init(policy.params, capacity, n_blocks),
        jnp.zeros(n_blocks + 1, jnp.int32),
        *(jnp.int32(0),) * 3,
    )
    n_requests = traffic.start.shape[0]
    carry = (cache, jnp.zeros(n_requests, jnp.int32))
    cache, hits = lax.fori_loop(0, n_requests, serve, carry)
    return hits, cache.evictions, cache.bad


def _look_up(resident: jax.Array, traffic: Traffic, first, last):
    """How many blocks of the request lead; and the array, as it was."""

    def look(carry):
        resident, i, _ = carry
        resident, value = read(resident, traffic.block[i])
        return resident, i + value, value > 0

    def leads(carry):
        return (carry[1] < last) & carry[2]

    resident, end, _ = lax.while_loop(leads, look, (resident, first, True))
    return resident, end - first


def _access(policy: OnlinePolicy, traffic: Traffic, capacity, i, cache) -> _Cache:
    rule: Any = policy.rule
    nobody, block = traffic.parent.shape[0], traffic.block[i]
    access = Access(
        block,
        traffic.parent[block],
        jax.tree.map(lambda column: column[i], traffic.features),
    )
    books, resident, params = cache.books, cache.resident, policy.params
    here = peek(resident, block) > 0
    if rule.note:
        books = rule.note(params, books, access)
    full = ~here & (cache.size >= capacity)
    books = when(here, lambda books: rule.hit(params, books, access), books)
    books, victim = when(
        full,
        lambda carry: rule.evict(params, carry[0], access),
        (books, jnp.int32(nobody)),
    )
    stored = ~here & (victim != block)
    books = when(stored, lambda books: rule.insert(params, books, access), books)
    leaves = peek(resident, victim)
    wrong = full & stored & (leaves == 0)
    resident = resident.at[victim].set(jnp.minimum(leaves, 0))  # 0, after the read
    resident = resident.at[block].set(jnp.where(here | stored, 1, 0))
    return _Cache(
        books,
        resident,
        cache.size + (stored & ~full),
        cache.evictions + full,
        cache.bad + wrong,
    )
