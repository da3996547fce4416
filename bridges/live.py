"""The free blocks of a running engine, in a policy's order: what every bridge drives.

    finished   a request gives its blocks back: the policy learns of it
    freed      blocks that nobody uses any more
    hit        one of them is used again
    take       the engine needs room: victims, first victim first

Blocks are numbers, names are their hashes. Time is seconds of any clock, and handed in.

Hints of clients are soft: a block that is to be held leaves only when nothing else is
free, the earliest deadline first, and `broken` counts it. So they can never deadlock.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from perc.bridges.orders import Order
from perc.bridges.remembering import Batch
from perc.bridges.uses import Facts
from perc.bridges.victims import Part, Victims

NOBODY = Facts(preempted=True)  # gives back blocks of which no request has told
NameOf = Callable[[int], Hashable]  # the hash of a block, None if it has none


@dataclass
class Counters:
    """What has happened since the start."""

    requests: int = 0
    preemptions: int = 0
    evictions: int = 0  # blocks that were taken and had content
    hits: int = 0  # blocks that were used again before they left
    holds_broken: int = 0  # blocks that left before their hint allowed it


class LiveCache:
    """Free blocks in the order of a policy.

    Args:
        order: of the policy, from `perc.bridges.orders.order_of`.
        size: block numbers are below it.
    """

    def __init__(self, order: Order, size: int):
        self.counters = Counters()
        self.order = order
        self._victims = order.victims
        # Where each block stands, None = somebody uses it.
        self.stands = self._victims.stands
        self._held = Victims(size, self.stands)

    def __contains__(self, block: int) -> bool:
        """Whether nobody uses the block."""
        return self.stands[block] is not None

    @property
    def free(self) -> int:
        """Blocks that nobody uses."""
        return self._victims.free + self._held.free

    def finished(
        self, facts: Facts, ids: list[int], names: list[Hashable], now_s: float
    ) -> None:
        """A request is about to give back its blocks: those with content, root first.

        Say it before `freed`, and name all of them, also those that others still use.
        """
        if facts.preempted:
            self.counters.preemptions += 1
        else:
            self.counters.requests += 1
        self.order.finished(facts, ids, names, now_s)

    def blank(self, ids: Sequence[int]) -> None:
        """Free blocks without content: they are taken first, in the order given."""
        self._victims.add_blank(ids)

    def freed(self, ids: list[int], name_of: NameOf, now_s: float) -> None:
        """Blocks with content that nobody uses any more, deepest first.

        `name_of` is asked for blocks that no request has named.
        """
        batches = self.order.groups(ids)
        if any(use is None for use, _, _ in batches):
            self._introduce(batches, name_of, now_s)
            batches = self.order.groups(ids)
        # First what was held until now: among equals what was freed first leaves first,
        # and what comes after these blocks in a prompt was.
        if self._held.free:
            self._let_expire(now_s)
        for use, key, part in batches:
            if use.held_until_s > now_s:
                self._held.add(part, use.held_until_s, (key, use))
            else:
                self._victims.add(part, key, use)

    def _introduce(self, batches: list[Batch], name_of: NameOf, now_s: float) -> None:
        strange = [block for use, _, ids in batches if use is None for block in ids]
        strange.reverse()
        names = [name_of(block) for block in strange]
        self.order.finished(NOBODY, strange, names, now_s)

    def hit(self, ids: Sequence[int]) -> None:
        """Free blocks are used again.

        Raises:
            ValueError: if one is not free.
        """
        self.counters.hits += len(ids)
        if self._held.free:
            ids = self._held.remove_own(ids)
        self._victims.remove(ids)

    def take(self, n: int, now_s: float) -> list[int]:
        """The next `n` victims, first victim first.

        Raises:
            ValueError: if fewer are free.
        """
        if n > self.free:
            raise ValueError(f"{n} blocks wanted, {self.free} are free")
        victims = self._victims
        found = victims.take_blank(n)
        if len(found) == n:
            return found
        victims.now_s = now_s
        if self._held.free:
            self._let_expire(now_s)
        parts = victims.take(min(n - len(found), victims.free))
        for _, ids in parts:
            found += ids
        if len(found) < n:
            broken = self._break_holds(n - len(found))
            found += [block for _, ids in broken for block in ids]
            parts += broken
        self.counters.evictions += sum(len(ids) for _, ids in parts)
        self.order.left(parts)
        return found

    def in_order(self, now_s: float) -> Iterator[int]:
        """All free blocks, first victim first; changes nothing."""
        self._victims.now_s = now_s
        due = self._held.due(now_s)
        yield from self._victims.order(due)
        over = {block for _, _, ids in due for block in ids}
        yield from (block for block in self._held.order() if block not in over)

    def _let_expire(self, now_s: float) -> None:
        """Blocks whose time is over wait like all others."""
        for group in self._held.withdraw(now_s):
            if group.ids:
                key, use = group.use
                self._victims.add(group.ids, key, use)

    def _break_holds(self, n: int) -> list[Part]:
        """Nothing else is free: the earliest deadline gives way."""
        parts = [(use, ids) for (_, use), ids in self._held.take(n)]
        self.counters.holds_broken += n
        for _, ids in parts:
            for block in ids:
                self._victims.let_go(block)
        return parts
