"""The cache of a `Listed` rule: the policy keeps the books, this file serves requests.

    1. Look up:  the hit is the longest run of resident blocks from the root.
    2. Access:   the blocks of the request one after the other. A resident one is a hit
                 for the policy, whether it leads or not. Another one is inserted, after
                 the policy has named a victim if the cache is full.

One loop over all accesses does both. A request accesses a block once, so a block was
there when the request came if its access finds it, or finds that this very request has
evicted it.

What is resident is written down here, so that no policy can exceed the capacity.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import peek, write
from perc.lists import when
from perc.online_scored import Traffic
from perc.types import Access, Listed, OnlinePolicy

HERE, NEVER = -1, -2  # no requests


class _Cache(NamedTuple):
    books: Any  # the policy's
    gone: jax.Array  # i32[M + 1], the request that evicted the block last, NEVER, or
    # HERE: it is in the cache. Entry M stands for no victim
    size: jax.Array  # i32[], resident blocks
    evictions: jax.Array  # i32[]


@jax.jit
def replay_listed(
    policy: OnlinePolicy, traffic: Traffic, capacity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One cache of 1 block or more: leading hits i32[R], evictions, bad victims."""
    rule, n_blocks = policy.rule, traffic.parent.shape[0]
    assert isinstance(rule, Listed)

    def serve(position, carry):
        cache, hits, r, hit = carry
        r = lax.while_loop(lambda r: traffic.stop[r] <= position, lambda r: r + 1, r)
        before = position - traffic.start[r]  # accesses of this request
        hit = jnp.where(before == 0, 0, hit)
        cache, led = _access(policy, traffic, capacity, r, position, cache)
        if rule.root_first:
            hit = hit + (led & (hit == before))
        else:
            hit = jnp.where(led, hit + 1, 0)
        return cache, write(hits, r, hit), r, hit

    zero = jnp.int32(0)
    gone = jnp.full(n_blocks + 1, NEVER, jnp.int32)
    books = rule.init(policy.params, capacity, n_blocks)
    carry = (_Cache(books, gone, zero, zero), jnp.zeros_like(traffic.start), zero, zero)
    cache, hits, *_ = lax.fori_loop(0, jnp.max(traffic.stop), serve, carry)
    # A victim that was not there left one block too many.
    bad = jnp.sum(cache.gone == HERE) - cache.size
    return hits, cache.evictions, bad


def _access(
    policy: OnlinePolicy, traffic: Traffic, capacity, r, position, cache: _Cache
) -> tuple[_Cache, jax.Array]:
    """Serves one block; says whether it was there when its request came."""
    rule: Any = policy.rule
    params, nobody = policy.params, traffic.parent.shape[0]
    block, access = _read(rule, traffic, r, position)
    books, gone, size, evictions = cache
    found = peek(gone, block)
    here = found == HERE
    if rule.note:
        books = rule.note(params, books, access)
    full = ~here & (size >= capacity)
    books = when(here, lambda books: rule.hit(params, books, access), books)
    books, victim = when(
        full,
        lambda carry: rule.evict(params, carry[0], access),
        (books, jnp.int32(nobody)),
    )
    stored = ~here & (victim != block)
    books = when(stored, lambda books: rule.insert(params, books, access), books)
    gone = write(gone, victim, r)
    gone = write(gone, block, jnp.where(here | stored, HERE, NEVER))
    cache = _Cache(books, gone, size + (stored & ~full), evictions + full)
    return cache, here | (found == r)


def _read(rule: Listed, traffic: Traffic, r, position) -> tuple[jax.Array, Access]:
    """The access that is served at a position: the requests in order, each by rule."""
    if rule.root_first:
        i, blocks = position, traffic.block
    else:
        i = traffic.start[r] + traffic.stop[r] - 1 - position
        blocks = traffic.leaving
    block = peek(blocks, position)  # once: XLA would fuse a plain read into every use
    features = jax.tree.map(lambda column: column[i], traffic.features)
    return block, Access(block, traffic.parent[block], features)
