"""Live sessions, what evicting one is said to cost, and the orders of victims.

    rate = 1 / max(mean of the last 20 gaps between tokens, 0.01 s)   [1/s]
    p    = 1 - exp(-rate * 5 s)
    cost = tokens * 0.002 s * p
    perc: least cost / blocks first

The rate is that of decoding, so p is 1 for whoever has decoded, and a default for
whoever has not: see docs/cachepilot.md.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from perc.errors import InputError

HISTORY = 20
SHORTEST_GAP_S, DEFAULT_RATE_PER_S = 0.01, 0.05
HORIZON_S, TOKEN_S = 5.0, 0.002
BLOCK_BYTES = 16 * 2**20
TOKEN_ELEMENTS = 2 * 32 * 32 * 128  # K and V, layers, heads, their size
FORMAT_BYTES = {"fp16": 2, "int8": 1, "fp8": 1}


@dataclass
class Session:
    """What CachePilot knows of a session whose blocks are in memory."""

    id: int
    tokens: int
    blocks: int
    last_active: float
    gaps_s: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    rate_per_s: float = DEFAULT_RATE_PER_S

    def record(self, gaps_s: Iterable[float]) -> None:
        """Adds gaps and follows the rate."""
        self.gaps_s.extend(gaps_s)
        if self.gaps_s:
            mean = sum(self.gaps_s) / len(self.gaps_s)
            self.rate_per_s = 1 / max(mean, SHORTEST_GAP_S)

    def touch(self, now: float, gap_s: float) -> None:
        """A token was made, so much after the last one."""
        self.last_active = now
        self.record((gap_s,))

    @property
    def cost_s(self) -> float:
        """The estimated cost of its eviction."""
        p = 1 - math.exp(-self.rate_per_s * HORIZON_S)
        return self.tokens * TOKEN_S * p


Key = Callable[[Session], float]
ORDERS: dict[str, Key] = {
    "perc": lambda s: s.cost_s / max(s.blocks, 1),
    "lru": lambda s: s.last_active,
    "shortest": lambda s: s.tokens,
    "mru": lambda s: -s.last_active,
    "largest": lambda s: -s.tokens,
}
ALIASES = {"priority": "shortest"}  # its name for it; requests have no priorities


def order_of(name: str, *others: str) -> Key:
    """The key whose least leaves first; ties leave in the order of admission.

    Args:
        name: of `ORDERS` or `ALIASES`.
        others: names that the caller knows besides, to be told if this one is unknown.

    Raises:
        InputError: for an unknown name. CachePilot takes PERC then.
    """
    known = ALIASES.get(name, name)
    if known not in ORDERS:
        names = ", ".join([*ORDERS, *ALIASES, *others])
        raise InputError(f"no session policy {name!r}; there are {names}.")
    return ORDERS[known]


def victims(sessions: Iterable[Session], key: Key, need: int) -> list[Session]:
    """The shortest prefix of the order with `need` blocks; all if that is not enough.

    >>> three = [Session(i, i * 32, i, 0.0) for i in (1, 2, 3)]
    >>> [s.id for s in victims(three, ORDERS["shortest"], 2)]
    [1, 2]
    """
    found, blocks = [], 0
    for session in sorted(sessions, key=key):
        if blocks >= need:
            break
        found.append(session)
        blocks += session.blocks
    return found


def blocks_of(tokens: int, kv: str = "fp16") -> int:
    """Blocks of 16 MiB that a session of so many tokens takes, at least one.

    >>> [blocks_of(n) for n in (1, 32, 33, 256, 512, 1024, 8192)]
    [1, 1, 2, 8, 16, 32, 256]
    """
    return max(1, -(-tokens * TOKEN_ELEMENTS * FORMAT_BYTES[kv] // BLOCK_BYTES))


def usable_blocks(vram_gib: float, pinned_share: float) -> int:
    """Blocks that are left beside the weights' share of the memory.

    >>> usable_blocks(16, 0.35), usable_blocks(24, 0.35)
    (666, 999)
    """
    total = int(vram_gib * 2**30 // BLOCK_BYTES)
    return total - int(vram_gib * pinned_share * 2**30 // BLOCK_BYTES)
