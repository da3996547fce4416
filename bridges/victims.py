"""Blocks that may leave, in the order in which they do: one heap entry a release.

An engine frees blocks by the request, takes them by the handful, and pulls single ones
back when they are hit. So a *group*, the blocks of one release that share a key, is one
entry of a heap, deepest block first. Pulling a block back only forgets where it stood;
the group passes over it later (lazy deletion). Work per block is a list access.

Blocks without content are taken before all others, the last one freed first.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

NOT_WAITING = -1
Part = tuple[Any, list[int]]  # the use of a group, and blocks of it, deepest first
Waiting = tuple[float, Any, list[int]]  # key and use of a group, and its blocks


class Group:
    """Blocks that were freed together and leave one after the other."""

    __slots__ = (
        "at",
        "home",
        "ids",
        "key",
        "live",
        "offered",
        "tick",
        "use",
        "waits_for",
    )

    def __init__(
        self, home: "Victims", ids: list[int], key: float, tick: int, use: Any = None
    ):
        self.home = home
        self.ids = ids  # deepest first
        self.at = 0  # all before it have gone
        self.live = len(ids)  # of them, those that still stand here
        self.key = key
        self.tick = tick  # its place among equals: older releases leave first
        self.use = use  # what an order that changes with time knows of it
        self.waits_for = NOT_WAITING  # a block that others hang on
        self.offered = 0  # the renewal of prices in which it was priced


class Victims:
    """The free blocks of an engine, by static key: the lowest leaves first.

    Equal keys leave in the order of release. Block numbers are 0 <= id < `size`.
    Several share the list `stands`: a block stands in one of them.
    """

    def __init__(self, size: int, stands: "list[Group | None] | None" = None):
        self.now_s = 0.0  # of the next `take`; matters where worth changes with age
        self.free = 0  # blocks here
        self.stands: list[Group | None] = [None] * size if stands is None else stands
        self._blank: list[Group] = []  # a stack
        self._heap: list[tuple[float, int, Group]] = []
        self._tick = 0
        self._empty = 0  # groups that `remove` has emptied since the last sweep

    def add_blank(self, ids: Sequence[int]) -> None:
        """Blocks without content: they leave first, in the order given."""
        self._blank.append(self._group(list(ids), 0.0, None))

    def add(self, ids: list[int], key: float, use: Any = None) -> None:
        """Blocks of one release, deepest first."""
        group = self._group(ids, key, use)
        heapq.heappush(self._heap, (key, group.tick, group))

    def remove(self, ids: Sequence[int]) -> None:
        """Blocks are in use again.

        Raises:
            ValueError: if one is not free.
        """
        stands = self.stands
        for block in ids:
            group = stands[block]
            if group is None:
                raise ValueError(f"block {block} is not free")
            stands[block] = None
            group.live -= 1
            if not group.live:
                self._emptied(group)
            elif len(group.ids) > 4 * group.live + 32:  # a prefix that others took over
                group.ids, group.at = list(self._standing(group)), 0
        self.free -= len(ids)

    def remove_own(self, ids: Sequence[int]) -> list[int]:
        """Blocks are in use again; those that do not stand here are given back."""
        own, others = [], []
        for block in ids:
            group = self.stands[block]
            mine = group is not None and group.home is self
            (own if mine else others).append(block)
        self.remove(own)
        return others

    def take_blank(self, n: int) -> list[int]:
        """Up to `n` blocks without content, first victim first."""
        found: list[int] = []
        while self._blank and len(found) < n:
            group = self._blank[-1]
            found += self._drain(group, n - len(found))
            if not group.live:
                self._blank.pop()
        self.free -= len(found)
        return found

    def take(self, n: int) -> list[Part]:
        """The next `n` victims with content; there are as many, and none without.

        In parts, first victim first: blocks of one group, and its use.
        """
        found: list[Part] = []
        self.free -= n
        while n:
            group = self._heap[0][2]
            ids = self._drain(group, n)
            if ids:
                found.append((group.use, ids))
                n -= len(ids)
            if not group.live:
                heapq.heappop(self._heap)
        return found

    def withdraw(self, key: float) -> list[Group]:
        """Takes out all groups with keys up to this; `ids` are blocks that stood."""
        found = []
        while self._heap and self._heap[0][0] <= key:
            group = heapq.heappop(self._heap)[2]
            group.ids, group.at = list(self._standing(group)), 0
            for block in group.ids:
                self.stands[block] = None
            self.free -= len(group.ids)
            found.append(group)
        return found

    def let_go(self, block: int) -> None:
        """A block was taken elsewhere; matters where parents wait for children."""

    def due(self, key: float) -> list[Waiting]:
        """What `withdraw` would take out; changes nothing."""
        due = sorted(entry for entry in self._heap if entry[0] <= key)
        return [(*group.use, list(self._standing(group))) for _, _, group in due]

    def order(self, more: Sequence[Waiting] = ()) -> Iterator[int]:
        """All free blocks, first victim first, as if `more` had been added as well;
        changes nothing.
        """
        for group in reversed(self._blank):
            yield from self._standing(group)
        yield from self._kept_order(more)

    def _kept_order(self, more: Sequence[Waiting]) -> Iterable[int]:
        found = [(key, tick, self._standing(g)) for key, tick, g in self._heap]
        last = self._tick + 1
        found += [(key, last + i, iter(ids)) for i, (key, _, ids) in enumerate(more)]
        for _, _, ids in sorted(found, key=itemgetter(0, 1)):
            yield from ids

    def _group(self, ids: list[int], key: float, use: Any) -> Group:
        self._tick += 1
        group = Group(self, ids, key, self._tick, use)
        stands = self.stands
        for block in ids:
            stands[block] = group
        self.free += len(ids)
        return group

    def _drain(self, group: Group, n: int) -> list[int]:
        """The next blocks of a group, up to `n`."""
        stands, ids, at = self.stands, group.ids, group.at
        found = ids[at : at + n]
        if group.live == len(ids) - at:  # all that is left of it stands
            at += len(found)
        else:
            found = []
            while at < len(ids) and len(found) < n:
                if stands[ids[at]] is group:
                    found.append(ids[at])
                at += 1
        for block in found:
            stands[block] = None
        group.live -= len(found)
        group.at = at
        return found

    def _standing(self, group: Group) -> Iterator[int]:
        stands = self.stands
        return (block for block in group.ids[group.at :] if stands[block] is group)

    def _emptied(self, group: Group) -> None:
        """Sweeps when more than half of the entries are empty."""
        self._empty += 1
        if 2 * self._empty > len(self._heap) + len(self._blank) + 64:
            self._blank = [g for g in self._blank if g.live]
            self._heap = [entry for entry in self._heap if entry[2].live]
            heapq.heapify(self._heap)
            self._empty = 0
