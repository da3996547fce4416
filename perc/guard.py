"""Never much worse than LRU: a guard chooses between a policy's order and LRU's.

Beside the cache two others are simulated, which hold names of blocks only: one under
LRU, and one under the policy alone. Before each request two sums are known:

    behind  hits of LRU - hits of the cache - what is forgiven, at least -memory
    lead    hits of the policy alone - hits of LRU, within -memory and memory

Forgiven is a `share` of LRU's hits or misses so far, the fewer. Victims are chosen in
the policy's order while lead > 0 and behind <= patience, otherwise in LRU's. So the
policy must earn its trust on recent traffic, and the cache itself must not have
suffered while it was trusted.

**Bound.** Whatever the policy and the traffic, after every request, in blocks:

    hits of LRU - hits of the cache
        <= share * min(hits of LRU, misses of LRU) + (patience + 1) * capacity

The proof, and traffic that comes within a block of it, are in docs/safety.md.

All is counted in whole numbers, and looks back only. A guarded replay takes three: of
LRU, of the policy, and its own.

References:
    Following the better of two simulated policies: Fiat et al. 1991, "Competitive
    paging algorithms" (J. Algorithms 12), on combining algorithms. For learned advice:
    Lykouris and Vassilvitskii 2018, "Competitive caching with machine learned advice"
    (ICML). By recent misses, in hardware: Qureshi et al. 2007, "Adaptive insertion
    policies for high performance caching" (ISCA), set dueling.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from perc.errors import InputError
from perc.online_aged import Watch
from perc.ranks import lru_ranks
from perc.replay import replay
from perc.shapes import pad
from perc.types import Aged, Guard, OnlinePolicy, Trace

DEFAULT = Guard()
MOST = 1 << 29  # hits; sums of four such numbers fit into 32 bits


def guarded(policy: OnlinePolicy, guard: Guard = DEFAULT) -> OnlinePolicy:
    """The policy with a guard, named after it.

    Args:
        policy: its rule is `Aged`.
        guard: how far it may fall behind LRU.

    Raises:
        InputError: if the rule is of another kind, whose order the engine cannot
            exchange.

    Example:
        >>> from perc.policies.registry import registry
        >>> guarded(registry["perc"]()).name
        'perc+guard'
    """
    if not isinstance(policy.rule, Aged):
        raise InputError(
            f"policy {policy.name}: only an Aged rule can be guarded, such as that of "
            "perc."
        )
    rule = replace(policy.rule, guard=guard)
    return replace(policy, rule=rule, name=f"{policy.name}+guard")


def lru_hits(trace: Trace, capacities: Sequence[int]) -> np.ndarray:
    """Leading resident blocks i32[K, R] under LRU, at K sizes in blocks."""
    return np.asarray(replay(trace, lru_ranks(trace), capacities).blocks)


def watch_of(
    guard: Guard,
    lru: np.ndarray,
    alone: np.ndarray,
    length: np.ndarray,
    capacity: int,
) -> Watch:
    """What the guard must know of the two caches beside the guarded one.

    Args:
        guard: its limits.
        lru: i32[R], hits under LRU.
        alone: i32[R], hits of the policy without a guard.
        length: i32[R], blocks of each request.
        capacity: blocks, of all three.
    """
    owed = (lru - forgiven(guard, lru, length)).astype(np.int32)
    return Watch(
        owed=jnp.asarray(pad(owed, 0)),
        gain=jnp.asarray(pad(alone - lru, 0)),
        slack=jnp.int32(_hits(guard.patience, capacity)),
        reach=jnp.asarray(pad(reach_of(guard, length, capacity), 0)),
        credit=jnp.int32(_hits(guard.credit, capacity)),
    )


def reach_of(guard: Guard, length: np.ndarray, capacity: int) -> np.ndarray:
    """Hits i32[R] that past gains and losses may count by now, 1 or more.

    On traffic as good for both orders, hits drift apart and back by whole requests.
    """
    longest = np.minimum(np.maximum.accumulate(length), capacity)
    least = max(_hits(guard.patience, capacity), 1)
    return np.clip(guard.memory * longest, least, MOST).astype(np.int32)


def forgiven(guard: Guard, lru: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Hits i64[R] that may be lost for good, given LRU's hits and blocks i32[R].

    In sum the guard's share of LRU's hits or misses so far, the fewer, rounded down.
    """
    hits = np.cumsum(lru, dtype=np.int64)
    fewer = np.minimum(hits, np.cumsum(length, dtype=np.int64) - hits)
    return np.diff(np.floor(guard.share * fewer).astype(np.int64), prepend=0)


def _hits(capacities: float, capacity: int) -> int:
    return min(int(capacities * capacity), MOST)
