"""LRU-K: recency of the K-th last use, which a single scan cannot fake."""

import jax
import jax.numpy as jnp

from perc.errors import check_whole
from perc.types import Features, Memory, OnlinePolicy, Scored


def lru_k(*, k: int = 2, retained: bool = False) -> OnlinePolicy:
    """Evicts the block whose k-th last use is longest ago; fewer uses count as never.

    key = index of the request that made the k-th last use, -inf if there is none

    Ties leave least recent first, so blocks with fewer than k uses are in LRU order.
    With `k=1` this is LRU. Without retained history it freezes as in-cache LFU does,
    and on conversations it makes the same choices. With it, a block that returns after
    its eviction is known again, at the price of a note on every block ever seen: that
    hits about twice as much as LRU on small caches, and less on large ones.

    The paper's correlated reference period is 0 here: a block counts once a request.

    Args:
        k: uses to look back.
        retained: an eviction does not clear the history.

    Raises:
        InputError: unless k is from 1 to 8.

    Example:
        >>> lru_k(k=3).rule.width
        3

    References:
        O'Neil, O'Neil and Weikum 1993, "The LRU-K page replacement algorithm for
        database disk buffering".
    """
    check_whole("lru_k", "k", k, 1, 8)
    rule = Scored(_score, width=int(k), forget=not retained)
    return OnlinePolicy((), rule, "lru_k", uses=("step",))


def _score(params: tuple, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    now = jnp.float32(f.step)[None] + 1  # 0 is no use
    uses = jnp.concatenate([now, m.own[:-1]])
    oldest = uses[-1]
    return jnp.where(oldest > 0, oldest, -jnp.inf), uses
