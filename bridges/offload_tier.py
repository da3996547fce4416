"""Chunks of an offload tier that may leave, in a policy's order; knows no engine.

An offload tier differs from a pool of free blocks in three ways. A chunk may leave as
soon as it is written, before its request ends; transfers hold chunks for a moment; and
a victim may be refused because the request that wants the room needs it itself.

So a chunk that no transfer holds is *loose* while the request that wrote it runs, and
*lent* while one that read it does. When the request ends, it enters the policy's order
with the rest of the prompt, deepest chunk first (`perc.bridges.live`). Loose and lent
chunks are victims only when the order has no other, the newest first: without the head
of a prompt, what a running request is about to store would be of no use.
"""

from collections.abc import Collection, Hashable, Iterable

from perc.bridges.live import LiveCache
from perc.bridges.orders import Order
from perc.bridges.uses import Facts

PATIENCE = 1024  # requests that end until a lent chunk is given up as read by nobody


class OffloadTier:
    """Which chunk leaves next; chunks are numbers below `size`, names are their hashes.

    `place` i64[size] orders the chunks by last use, the least recent first, as vLLM's
    own LRU does: at first by insertion, and tail to head once their request has ended.
    """

    def __init__(self, order: Order, size: int):
        self.cache = LiveCache(order, size)
        self.place = [0] * size
        self._order = order
        self._name: list[Hashable] = [None] * size
        self._told: set[int] = set()  # the order has heard of a request with them
        self._ended: set[int] = set()  # of these: the last one has ended
        self._loose: set[int] = set()  # may leave; not told
        self._lent: dict[int, int] = {}  # may leave; told, not ended: since which end
        self._due: set[int] = set()  # may leave; about to enter the order
        self._last = self._ends = 0

    def stored(self, chunk: int, name: Hashable) -> None:
        """A chunk is about to be written."""
        self._name[chunk] = name
        self.used([chunk])

    def dropped(self, chunk: int) -> None:
        """A chunk is lost, otherwise than by eviction."""
        self.busy(chunk)
        self._forget(chunk)

    def ready(self, chunk: int) -> None:
        """No transfer holds the chunk any more: it may leave."""
        if chunk in self.cache:
            return
        if chunk in self._ended:
            self._due.add(chunk)
        elif chunk in self._told:
            self._lent[chunk] = self._ends
        else:
            self._loose.add(chunk)

    def busy(self, chunk: int) -> None:
        """A transfer holds the chunk: it may not leave."""
        if chunk in self.cache:
            self.cache.hit([chunk])
        self._loose.discard(chunk)
        self._lent.pop(chunk, None)
        self._due.discard(chunk)
        self._ended.discard(chunk)

    def used(self, chunks: Iterable[int]) -> None:
        """Chunks are used, the least important first."""
        for chunk in chunks:
            self._last += 1
            self.place[chunk] = self._last

    def finished(self, facts: Facts, chunks: list[int], now_s: float) -> None:
        """A request ends; these are its chunks that are here, root first."""
        self.used(reversed(chunks))
        self._recall(chunks)
        names = [self._name[chunk] for chunk in chunks]
        self.cache.finished(facts, chunks, names, now_s)
        self._ends += 1
        self._told.update(chunks)
        self._ended.update(chunks)
        for chunk in chunks:
            if chunk in self._loose or chunk in self._lent:
                self._loose.discard(chunk)
                self._lent.pop(chunk, None)
                self._due.add(chunk)
        self._settle(now_s)

    def evict(
        self, n: int, kept: Collection[int], now_s: float
    ) -> list[Hashable] | None:
        """Names of the next `n` victims, first victim first, none of them `kept`.

        None if there are fewer; then nothing has changed.
        """
        self._settle(now_s)
        self._recall(kept)
        spare: list[int] = []
        if self.cache.free < n:
            waiting = (self._loose | self._lent.keys()).difference(kept)
            spare = sorted(waiting, key=self.place.__getitem__)
            if self.cache.free + len(spare) < n:
                return None
        found = self.cache.take(min(n, self.cache.free), now_s)
        names = [self._name[chunk] for chunk in found]
        self._told.difference_update(found)
        self._ended.difference_update(found)
        while len(names) < n:
            names.append(self._name[spare[-1]])
            self.dropped(spare.pop())
        return names

    def _forget(self, chunk: int) -> None:
        if chunk in self._told:
            self._told.remove(chunk)
            self._ended.discard(chunk)
            for use, _, ids in self._order.groups([chunk]):
                if use is not None:
                    self._order.left([(use, ids)])
            self._order.victims.let_go(chunk)

    def _recall(self, chunks: Iterable[int]) -> None:
        """Takes chunks out of the order for now; their use is not forgotten."""
        free = [chunk for chunk in chunks if chunk in self.cache]
        self.cache.hit(free)
        self._due.update(free)

    def _settle(self, now_s: float) -> None:
        """Chunks whose request has ended enter the order, the least recent first."""
        while self._lent:
            chunk, since = next(iter(self._lent.items()))
            if self._ends - since <= PATIENCE:
                break
            del self._lent[chunk]
            self._due.add(chunk)
        if self._due:
            due = sorted(self._due, key=self.place.__getitem__)
            self._due.clear()
            self.cache.freed(due, self._name.__getitem__, now_s)
