"""Least frequently used, with counts that an eviction clears: cheap to keep."""

import jax

from perc.types import Features, Memory, OnlinePolicy, Scored


def lfu_in_cache() -> OnlinePolicy:
    """Keeps what was used by most requests since it entered.

    key = requests that have used the block since it entered

    Needs no memory of what is gone. Resists scans: what was used once leaves before
    what came back. Freezes: once all blocks in the cache have been used twice, every
    newcomer leaves before any of them, however old they are. On conversations it beats
    LRU on small caches only. `lfu` keeps its counts for ever; `gdsf` ages them.

    Example:
        >>> lfu_in_cache().rule.width
        1

    References:
        Breslau et al. 1999, "Web caching and Zipf-like distributions", "In-Cache-LFU".
    """
    return OnlinePolicy((), Scored(_score, width=1), "lfu_in_cache")


def _score(params: tuple, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    uses = m.own + 1
    return uses[0], uses
