"""What a running server remembers of its blocks: the last use of each, by run.

The blocks of a request that one and the same earlier request used last are a *run*.
They share one `Use`, so that a request costs a few records and list slices, not one
record a block. Blocks leave the cache from the deep end of a run; those that have left
stay known by their hashes, in a memory of bounded size, as the tail of their use.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from perc.bridges.live_history import Past


class Facts(NamedTuple):
    """What is known of a request when it gives its blocks back."""

    session: Hashable = None  # the client's name of the conversation, None = unsaid
    turn: int | None = None  # 1 = first request of its session, None = unsaid
    kind: int = 0  # why it stopped or what it is for, a small number
    kind_name: str = ""  # in the client's words, "" = unsaid
    priority: int = 0  # higher is more important
    input_tokens: int = 0
    output_tokens: int = 0
    hold_s: float = 0.0  # keep its blocks so long if it can be done, inf = pinned
    preempted: bool = False  # it goes on later: no use of its own yet


class Use:
    """The last use of a run of blocks."""

    __slots__ = (
        "before",
        "cls",
        "ends",
        "frequency",
        "gone_from",
        "held_until_s",
        "ids",
        "key",
        "names",
        "own_from",
        "past",
        "time_s",
        "turn",
        "waiting",
    )

    def __init__(self, ids, names, before: int, time_s: float, turn: int):
        self.ids: list[int] = ids  # root first
        self.names: list[Hashable] = names  # their hashes
        self.own_from = 0  # later uses have taken over those before
        self.gone_from = len(ids)  # those from here on have left the cache
        self.before = before  # blocks of the request before them
        self.time_s = time_s  # when they were given back
        self.turn = turn
        self.key = 0.0  # of an order that does not change with time
        self.cls = -1  # of an order that does
        self.frequency = 0  # requests that have used the blocks
        self.waiting = 0  # blocks of which this is still the last use
        self.ends = False  # they are the last full blocks of their request
        self.held_until_s = 0.0
        self.past: Past | None = None  # where a policy asks for the history


class Run(NamedTuple):
    """Neighbours in a request's chain of blocks, and how they were used last."""

    start: int
    stop: int
    old: Use | None


Lost = Callable[[Use, int], None]  # a use, and how many of its blocks


class Uses:
    """The last use of every block, cached or not long gone.

    `lost` hears of blocks that are waited for no more, though they have not returned.
    """

    def __init__(self, size: int, memory: int, lost: Lost | None = None):
        self._lost = lost
        self._of: list[Use | None] = [None] * size
        self._gone: dict[Hashable, Use] = {}  # by the hash of the first block gone
        self._queue: deque[Use] = deque()  # of uses with blocks gone, oldest first
        self._n_gone = 0
        self._room = 1024  # of the queue, until it is swept
        self._memory = memory

    def of(self, block: int) -> Use | None:
        """The last use of a cached block."""
        return self._of[block]

    def leading(self, ids: list[int]) -> int:
        """How many cached blocks, root first, have been used before."""
        of = self._of
        return bisect_left(ids, True, key=lambda block: of[block] is None)

    def runs(self, ids: list[int], names: list[Hashable]) -> list[Run]:
        """Cuts a chain, root first, into runs; what was gone and came back is known.

        Where a block is known, so are all before it; after an unknown one all is new.
        """
        of, found, start = self._of, [], 0
        while start < len(ids):
            use = of[ids[start]]
            if use is not None:
                place = _place(use, ids[start], start)
                n = _equal(ids, start, use.ids, place, use.gone_from)
                use.own_from, stop = place + n, start + n
            else:
                use = self._gone.get(names[start])
                if use is None:
                    found.append(Run(start, len(ids), None))
                    break
                stop = start + self._recall(use, names, start)
            found.append(Run(start, stop, use))
            start = stop
        return found

    def _recall(self, use: Use, names: list[Hashable], start: int) -> int:
        """How many gone blocks of a use are back, the first one at `start`."""
        back = _equal(names, start, use.names, use.gone_from, len(use.names))
        del self._gone[names[start]]
        self._n_gone -= back
        use.gone_from += back
        self._remember(use)
        return back

    def _line_up(self, use: Use) -> None:
        if len(self._queue) >= self._room:
            some_gone = (u for u in self._queue if u.gone_from < len(u.ids))
            self._queue = deque(some_gone)
            self._room = 2 * len(self._queue) + 1024
        self._queue.append(use)

    def _remember(self, use: Use) -> None:
        """Files a use under the first of its blocks that are gone."""
        if use.gone_from == len(use.ids):
            return
        name = use.names[use.gone_from]
        other = self._gone.get(name)
        if other is not None:  # a second copy of the block
            self._forget(other)
        self._gone[name] = use

    def _forget(self, use: Use) -> None:
        """The gone blocks of a use wait no more."""
        n = len(use.ids) - use.gone_from
        if n and self._gone.get(use.names[use.gone_from]) is use:
            del self._gone[use.names[use.gone_from]]
            self._n_gone -= n
            self._lose(use, n)
            use.gone_from = len(use.ids)

    def _lose(self, use: Use, n: int) -> None:
        use.waiting -= n
        if self._lost is not None:
            self._lost(use, n)

    def by_use(self, ids: list[int]) -> list[tuple[Use | None, list[int]]]:
        """Cuts cached blocks, deepest first, where their last use changes."""
        of, found, start = self._of, [], 0
        while start < len(ids):
            use = of[ids[start]]
            if use is None:
                stop = start + 1
                while stop < len(ids) and of[ids[stop]] is None:
                    stop += 1
                part = ids[start:stop]
            else:
                part = _upwards(use, ids, start)
            found.append((use, part))
            start += len(part)
        return found

    def note(self, use: Use) -> None:
        """The blocks of this use were used last by it."""
        of = self._of
        for block in use.ids:
            of[block] = use
        use.waiting += len(use.ids)

    def leave(self, use: Use, ids: list[int]) -> None:
        """Blocks of one use leave the cache, the deepest first."""
        of = self._of
        for block in ids:
            of[block] = None
        if use.ids[use.gone_from - 1] != ids[0]:  # out of order: deeper ones are there
            self._lose(use, len(ids))
            return
        if use.gone_from == len(use.ids):
            self._line_up(use)
        else:
            del self._gone[use.names[use.gone_from]]
        use.gone_from -= len(ids)
        self._n_gone += len(ids)
        self._remember(use)
        while self._n_gone > self._memory:
            self._forget(self._queue.popleft())


def _place(use: Use, block: int, depth: int) -> int:
    """Where a block stands among those of its use."""
    place = depth - use.before
    if 0 <= place < len(use.ids) and use.ids[place] == block:
        return place
    return use.ids.index(block)


def _equal(a: Sequence, start: int, b: Sequence, place: int, end: int) -> int:
    """How long `a` from `start` equals `b` from `place` to `end`; at least 1."""
    n = min(len(a) - start, end - place)
    if a[start : start + n] == b[place : place + n]:
        return n
    return next(i for i in range(1, n) if a[start + i] != b[place + i])


def _upwards(use: Use, ids: list[int], start: int) -> list[int]:
    """Those of `ids` from `start` on that are a use's own, one before the other."""
    last = use.gone_from - 1
    if last < 0 or use.ids[last] != ids[start]:
        last = use.ids.index(ids[start])
    up = use.ids[use.own_from : last + 1]
    up.reverse()
    part = ids[start : start + (len(up) or 1)]
    if part != up:
        n = next((i for i in range(1, len(part)) if part[i] != up[i]), len(part))
        del part[n:]
    return part
