"""The guard of a policy while a server runs: the rule of `perc.guard`, live.

Beside the server's cache two others are played, which hold names of blocks only: one
under LRU and one under the policy alone. Each request that ends is served by both. The
sums that decide are those of `perc.guard`, with the pool's size as the capacity, and so
is the bound where requests come one at a time. Side by side, a request is judged when
it ends, though its victims were chosen when it began.
"""

from bisect import bisect_left
from collections.abc import Hashable
from typing import TYPE_CHECKING

from perc.bridges.uses import Facts
from perc.guard import MOST
from perc.types import Guard

if TYPE_CHECKING:
    from perc.bridges.aged_orders import AgedOrder
    from perc.bridges.orders import LruOrder


class LiveGuard:
    """Says after each request whether the policy may choose victims.

    Args:
        guard: its limits.
        size: blocks of the server, and of both caches beside it.
        lru: an order of its own for the cache under LRU.
        alone: the same for the one under the policy, which has no guard.
    """

    def __init__(self, guard: Guard, size: int, lru: "LruOrder", alone: "AgedOrder"):
        self._guard = guard
        self._size = size
        self._lru = _Shadow(lru, size)
        self._alone = _Shadow(alone, size)
        self._slack = min(int(guard.patience * size), MOST)
        self._behind = 0
        self._lead = min(int(guard.credit * size), MOST)
        self._longest = 0
        self._hits = self._misses = self._forgiven = 0  # of LRU, in sum

    @property
    def trusts(self) -> bool:
        """Whether the next victims are chosen in the policy's order."""
        return self._lead > 0 and self._behind <= self._slack

    def served(
        self,
        facts: Facts,
        names: list[Hashable],
        hits: int,
        now_s: float,
        classes: list[int] | None,
    ) -> None:
        """A request has ended.

        Args:
            facts: what is known of it.
            names: of its blocks, root first.
            hits: leading blocks that the server had.
            now_s: the time.
            classes: of its blocks, None = the policy's own order finds them.
        """
        names = names[: self._size]
        lru = self._lru.serve(facts, names, now_s, None)
        alone = self._alone.serve(facts, names, now_s, classes)
        self._longest = max(self._longest, len(names))
        reach = min(int(self._guard.memory * self._longest), MOST)
        reach = max(reach, self._slack, 1)
        owed = lru - self._forgive(lru, len(names) - lru)
        self._behind = max(self._behind + owed - hits, -reach)
        self._lead = max(-reach, min(self._lead + alone - lru, reach))

    def _forgive(self, hits: int, misses: int) -> int:
        self._hits += hits
        self._misses += misses
        before = self._forgiven
        self._forgiven = int(self._guard.share * min(self._hits, self._misses))
        return self._forgiven - before


class _Shadow:
    """A cache without content: requests one at a time."""

    def __init__(self, order: "LruOrder | AgedOrder", size: int):
        self._order = order
        self._victims = order.victims
        self._victims.add_blank(range(size))
        self._names: list[Hashable] = [None] * size
        self._where: dict[Hashable, int] = {}

    def serve(self, facts: Facts, names: list[Hashable], now_s: float, classes) -> int:
        """How many of its blocks are there; then all are."""
        where = self._where
        hits = bisect_left(names, True, key=lambda name: name not in where)
        ids = [where[name] for name in names[:hits]]
        self._victims.remove(ids)
        taken = self._take(len(names) - hits, now_s)
        for block, name in zip(taken, names[hits:], strict=True):
            self._names[block] = name
            where[name] = block
        ids += taken
        if classes is None:
            self._order.finished(facts, ids, names, now_s)
        else:
            self._order.follow(facts, ids, names, now_s, classes)  # pyright: ignore
        for use, key, part in self._order.groups(ids[::-1]):
            self._victims.add(part, key, use)
        return hits

    def _take(self, n: int, now_s: float) -> list[int]:
        victims = self._victims
        found = victims.take_blank(n)
        if len(found) == n:
            return found
        victims.now_s = now_s
        parts = victims.take(n - len(found))
        for _, ids in parts:
            for block in ids:
                del self._where[self._names[block]]
            found += ids
        self._order.left(parts)
        return found
