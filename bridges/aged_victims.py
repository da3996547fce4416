"""Free blocks whose worth depends on class and age: the live twin of `online_aged`.

Of each class only the oldest and the newest group that may leave can be worth least,
since worth has one peak by age (`perc.online_aged.one_peak`). So the two ends of every
class are priced, and the cheapest group leaves, deepest block first.

All prices are renewed together, at most once a `stale_s`; in between a class is priced
again only when its ends change, as of the last renewal.

A block whose child is cached is no victim: a group that comes to such a block waits
there until the last child has left. Where nothing else is free, as when an engine frees
the head of a prompt that still runs, the longest waiting gives way.
"""

import copy
import heapq
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from perc.bridges.victims import NOT_WAITING, Group, Part, Victims, Waiting

# What a block of a class is worth at an age in seconds.
Worth = Callable[[int, float], float]


class AgedVictims(Victims):
    """The free blocks of an engine under an `Aged` rule."""

    def __init__(self, size: int, worth: Worth, *, stale_s: float = 0.0):
        super().__init__(size)
        self.forced = 0  # blocks that left before a child of theirs
        self._worth = worth
        self._stale_s = stale_s
        self._lines: dict[int, _Line] = {}  # by class
        # Of the tree of cached blocks only the branches: the blocks of one use follow
        # each other anyway, and leave from the deep end.
        self._children: dict[int, set[int]] = {}
        self._parent: dict[int, int] = {}
        self._waiting: dict[int, Group] = {}  # by the block that has children
        self._offers: list[tuple[float, int, Group]] = []
        self._changed: set[_Line] = set()  # whose ends may be others now
        self._priced_s = float("-inf")
        self._renewals = 0

    def hang(self, block: int, parent: int) -> None:
        """A cached block comes after another one, which must not leave before it."""
        self._parent[block] = parent
        self._children.setdefault(parent, set()).add(block)

    def let_go(self, block: int) -> None:
        """A block has lost its content."""
        for child in self._children.pop(block, ()):  # it left before them
            del self._parent[child]
        parent = self._parent.pop(block, None)
        if parent is None:
            return
        siblings = self._children[parent]
        siblings.remove(block)
        if not siblings:
            del self._children[parent]
            if parent in self._waiting:
                self._wake(parent)

    def renew(self) -> None:
        """What blocks are worth has changed: the next victim asks again."""
        self._priced_s = float("-inf")

    def add(self, ids: list[int], key: float, use: Any = None) -> None:
        """Blocks of one use, deepest first; `use` has `cls` and `time_s`."""
        self._enter(self._group(ids, key, use))

    def take(self, n: int) -> list[Part]:
        """See `Victims.take`."""
        found: list[Part] = []
        self.free -= n
        if self.now_s - self._priced_s > self._stale_s or self.now_s < self._priced_s:
            self._priced_s = self.now_s
            self._offers.clear()
            self._changed.update(self._lines.values())
            self._renewals += 1
        while n:
            if self._changed:
                self._offer_changed()
            group = self._cheapest()
            if group is None:
                use, ids = self._force()
            else:
                use, ids = group.use, self._take_from(group, n)
            if ids:
                found.append((use, ids))
                n -= len(ids)
        return found

    def _emptied(self, group: Group) -> None:
        super()._emptied(group)
        if group.use is not None:
            self._changed.add(self._lines[group.use.cls])
        if group.waits_for != NOT_WAITING:
            del self._waiting[group.waits_for]
            group.waits_for = NOT_WAITING

    def _enter(self, group: Group) -> None:
        line = self._lines.get(group.use.cls)
        if line is None:
            line = self._lines[group.use.cls] = _Line(group.use.cls)
        line.add(group)
        self._changed.add(line)

    def _wake(self, block: int) -> None:
        group = self._waiting.pop(block)
        group.waits_for = NOT_WAITING
        if group.live:
            self._enter(group)

    def _offer_changed(self) -> None:
        renewal = self._renewals
        for line in self._changed:
            line.find_ends()
            for group in (line.oldest, line.newest):
                if group is not None and group.offered != renewal:
                    group.offered = renewal
                    worth = self._worth(line.cls, self._priced_s - group.use.time_s)
                    heapq.heappush(self._offers, (worth, group.tick, group))
        self._changed.clear()

    def _cheapest(self) -> Group | None:
        """The end that is worth least; what is no end any more is passed over."""
        offers = self._offers
        while offers:
            group = offers[0][2]
            line = self._lines[group.use.cls]
            if group is line.oldest or group is line.newest:
                return group
            heapq.heappop(offers)
            group.offered = 0
        return None

    def _take_from(self, group: Group, n: int) -> list[int]:
        part = group.ids[group.at : group.at + n]
        whole = group.live == len(group.ids) - group.at
        if whole and self._children.keys().isdisjoint(part):
            found = self._drain(group, n)
            if found[-1] in self._parent:  # only the first of a run hangs on another
                self.let_go(found[-1])
        else:
            found = self._take_singly(group, n)
        if not group.live or group.waits_for != NOT_WAITING:
            self._changed.add(self._lines[group.use.cls])
        return found

    def _take_singly(self, group: Group, n: int) -> list[int]:
        stands, found = self.stands, []
        while group.at < len(group.ids) and len(found) < n:
            block = group.ids[group.at]
            if stands[block] is group:
                if block in self._children:
                    group.waits_for = block
                    self._waiting[block] = group
                    break
                stands[block] = None
                group.live -= 1
                found.append(block)
                self.let_go(block)
            group.at += 1
        return found

    def _force(self) -> Part:
        block, group = next(iter(self._waiting.items()))
        self.forced += 1
        self.stands[block] = None
        group.live -= 1
        self._wake(block)
        self.let_go(block)
        return group.use, [block]

    def _kept_order(self, more: Sequence[Waiting]) -> Iterable[int]:
        """Plays all victims through, on a copy."""
        found = {
            id(g): g
            for g in self.stands
            if g is not None and g.home is self and g.use is not None
        }
        kept = {number: copy.copy(group) for number, group in found.items()}
        twin = copy.copy(self)
        twin.stands = [None if g is None else kept.get(id(g)) for g in self.stands]
        twin._children = {block: set(c) for block, c in self._children.items()}
        twin._parent = dict(self._parent)
        twin._waiting = {b: kept[id(g)] for b, g in self._waiting.items()}
        twin._lines, twin._offers, twin._changed = {}, [], set()
        twin.renew()
        for group in sorted(kept.values(), key=lambda g: g.tick):
            if group.waits_for == NOT_WAITING:
                twin._enter(group)
        for key, use, ids in more:
            twin.add(ids, key, use)
        parts = twin.take(sum(group.live for group in kept.values()) + _blocks(more))
        return (block for _, ids in parts for block in ids)


class _Line:
    """The groups of one class that may leave, the oldest first."""

    __slots__ = ("_from", "_groups", "_room", "cls", "newest", "oldest")

    def __init__(self, cls: int) -> None:
        self.cls = cls
        self.oldest: Group | None = None  # as of the last `find_ends`
        self.newest: Group | None = None
        self._groups: list[Group] = []  # by tick; emptied ones are passed over
        self._from = 0
        self._room = 64

    def add(self, group: Group) -> None:
        groups = self._groups
        if len(groups) >= self._room:
            groups[:] = [g for g in groups[self._from :] if _stands(g)]
            self._from, self._room = 0, 2 * len(groups) + 64
        if groups and groups[-1].tick > group.tick:  # it has waited
            insort(groups, group, lo=self._from, key=_tick)
            self.oldest = None  # it may be now
        else:
            groups.append(group)
            self.newest = group

    def find_ends(self) -> None:
        groups = self._groups
        if self.newest is None or not _stands(self.newest):
            while len(groups) > self._from and not _stands(groups[-1]):
                groups.pop()
            self.newest = groups[-1] if len(groups) > self._from else None
        if self.oldest is None or not _stands(self.oldest):
            while self._from < len(groups) and not _stands(groups[self._from]):
                self._from += 1
            self.oldest = groups[self._from] if self._from < len(groups) else None


def _stands(group: Group) -> bool:
    return bool(group.live) and group.waits_for == NOT_WAITING


def _blocks(groups: Sequence[Waiting]) -> int:
    return sum(len(ids) for _, _, ids in groups)


_tick = attrgetter("tick")
