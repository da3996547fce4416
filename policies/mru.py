"""Most recently used first: a diagnostic, optimal where LRU is worst."""

import jax
import jax.numpy as jnp

from perc.types import Features, Memory, OnlinePolicy, Scored


def mru() -> OnlinePolicy:
    """Evicts what was used last, of the blocks without a resident child.

    key = -(index of the last request that used the block)

    A diagnostic. On requests that go round a loop one block larger than the cache LRU
    hits nothing and this rule all that can be hit; if it beats LRU on your traffic, the
    traffic scans. On conversations it keeps what came first, and hits next to nothing.

    Example:
        >>> mru().rule.closed
        True

    References:
        Chou and DeWitt 1985, "An evaluation of buffer management strategies for
        relational database systems"; SGLang, `evict_policy.py`, "mru".
    """
    return OnlinePolicy((), Scored(_score, closed=True), "mru", uses=("step",))


def _score(params: tuple, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    return -jnp.float32(f.step), m.own
