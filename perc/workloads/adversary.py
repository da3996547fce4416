"""Traffic made to hurt a guarded policy, and the policy that it hurts."""

from collections import OrderedDict
from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from perc.workloads.arguments import at_least

if TYPE_CHECKING:  # types imports jax, which --help need not wait for
    from perc.types import Guard, OnlinePolicy, Trace


def newest_first() -> "OnlinePolicy":
    """Evicts what was used last: the opposite of LRU, and best on a loop.

    Ages that fall into one bin (`perc.reuse`) leave in LRU's order.
    """
    from perc.types import Aged, OnlinePolicy

    return OnlinePolicy((), Aged(_one_class, _rising), "newest_first", uses=("turn",))


def _one_class(f):
    return (np.zeros_like(f.turn),)


def _rising(params, reuse):
    shape = reuse.events[-1].shape
    return np.broadcast_to(np.arange(shape[-1], dtype=np.float32), shape)


def punish(
    guard: "Guard", *, capacity: int = 100, requests: int = 20_000, block_tokens=512
) -> "Trace":
    """Plays against `newest_first` under a guard, one block and second a request.

    The player knows all three caches and the guard's sums. It lets the policy earn
    trust on blocks that the guarded cache has lost, then asks for whatever LRU would
    have kept.

    Args:
        guard: whom to play against.
        capacity: blocks, for which the trace is made.
        requests: of the trace.
        block_tokens: tokens of a block.

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    at_least(1, capacity=capacity, requests=requests, block_tokens=block_tokens)
    game = _Game(guard, capacity)
    blocks = [game.play() for _ in range(requests)]
    ones = np.ones(requests, np.int64)
    columns = Columns(
        arrival_s=np.arange(requests, dtype=float),
        input_tokens=ones * block_tokens,
        output_tokens=ones,
        ids=np.array(blocks),
        lengths=ones,
        session=np.arange(requests),
    )
    source = f"punish(capacity={capacity}, requests={requests})"
    return build_trace(columns, block_tokens=block_tokens, source=source)


@dataclass
class _Game:
    """Three caches of single blocks, oldest first, and the guard's sums."""

    guard: "Guard"
    capacity: int
    lru: OrderedDict = field(default_factory=OrderedDict)
    alone: OrderedDict = field(default_factory=OrderedDict)
    cache: OrderedDict = field(default_factory=OrderedDict)
    fresh: int = 0  # blocks so far
    behind: int = 0
    hits: int = 0  # of LRU
    misses: int = 0
    pardoned: int = 0
    strikes: bool = False  # takes what LRU has and the cache has not

    def __post_init__(self) -> None:
        self.slack = int(self.guard.patience * self.capacity)
        self.reach = max(int(self.guard.memory), self.slack, 1)
        self.lead = int(self.guard.credit * self.capacity)

    def play(self) -> int:
        """Asks for the block that hurts most."""
        trusts = self.lead > 0 and self.behind <= self.slack
        block = self._choose(trusts)
        hit = self._serve(self.cache, block, newest=trusts)
        lru = self._serve(self.lru, block, newest=False)
        alone = self._serve(self.alone, block, newest=True)
        self.hits, self.misses = self.hits + lru, self.misses + 1 - lru
        pardoned = floor(self.guard.share * min(self.hits, self.misses))
        owed, self.pardoned = lru - (pardoned - self.pardoned), pardoned
        self.behind = max(self.behind + owed - hit, -self.reach)
        self.lead = max(-self.reach, min(self.reach, self.lead + alone - lru))
        return block

    def _choose(self, trusts: bool) -> int:
        lost = [block for block in self.lru if block not in self.cache]
        self.strikes = bool(lost) and (
            self.strikes or not trusts or len(lost) >= self.capacity - 1
        )
        if self.strikes:
            return lost[0]
        if trusts:  # a block that nobody has drives the two caches apart
            return self._new()
        if self.lead <= 0:
            praise = (
                b for b in self.alone if b not in self.lru and b not in self.cache
            )
            return next(praise, None) or self._new()
        # Only what LRU hits and misses is forgiven.
        return next(iter(self.lru)) if self.hits < self.misses else self._new()

    def _new(self) -> int:
        self.fresh += 1
        return self.fresh

    def _serve(self, cache: OrderedDict, block: int, *, newest: bool) -> int:
        hit = block in cache
        if not hit and len(cache) == self.capacity:
            cache.popitem(last=newest)
        cache[block] = None
        cache.move_to_end(block)
        return int(hit)
