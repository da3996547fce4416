"""Which chunks an offload tier stores: those of which enough have returned before.

A new chunk has a *class*: what is known of its request when it is offered. Of each
class it is counted how many new chunks were offered, and how many of them were asked
for again by another request, stored or not:

    share = returned / offered

New chunks are stored while the share of their class is at least the threshold, or too
little is known; and a chunk that comes back is stored whatever its class. So nothing is
lost for good: what was refused goes on being counted, by its hash.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

KNOWN = 256  # offered chunks of a class from which on its share counts
OFTEN = 1 << 16  # offered chunks at which counts are halved, so that shares can change


class _Seen(NamedTuple):
    """Who asked for a chunk last, and the class in which it was new; None = counted."""

    request: Hashable
    cls: Hashable


class Admission:
    """Counts returns by class, and says which of a request's chunks to store.

    Args:
        least: share of returns from which on a class is stored, 0 to 1.
        memory: chunks that are remembered, the least recently asked for left out.
    """

    def __init__(self, least: float, memory: int):
        self.refused = 0  # chunks
        self._least = least
        self._memory = memory
        self._seen: dict[Hashable, _Seen] = {}
        self._offered: dict[Hashable, int] = {}
        self._returned: dict[Hashable, int] = {}

    def used(self, request: Hashable, chunks: Iterable[Hashable]) -> None:
        """A request finds these chunks stored and uses them."""
        for chunk in chunks:
            self._returns(request, chunk)

    def stored(
        self, request: Hashable, cls: Hashable, chunks: Sequence[Hashable]
    ) -> int:
        """How many of the chunks that a request offers, root first, are to be stored.

        What comes after a refused chunk is refused too, for it could not be used.
        """
        wanted = 0
        likely = self.share(cls) >= self._least
        for place, chunk in enumerate(chunks):
            came_back = self._returns(request, chunk)
            if not came_back:
                self._offer(request, cls, chunk)
            if (came_back or likely) and wanted == place:
                wanted += 1
        self.refused += len(chunks) - wanted
        return wanted

    def share(self, cls: Hashable) -> float:
        """Share of a class's new chunks that returned; 1 while too little is known."""
        offered = self._offered.get(cls, 0)
        return self._returned.get(cls, 0) / offered if offered >= KNOWN else 1.0

    def _returns(self, request: Hashable, chunk: Hashable) -> bool:
        """Notes that a request asks for a chunk; says if another one has before."""
        seen = self._seen.pop(chunk, None)
        if seen is None:
            return False
        if seen.request == request:
            self._seen[chunk] = seen
            return seen.cls is None
        if seen.cls is not None:
            self._returned[seen.cls] = self._returned.get(seen.cls, 0) + 1
        self._seen[chunk] = _Seen(request, None)
        return True

    def _offer(self, request: Hashable, cls: Hashable, chunk: Hashable) -> None:
        if chunk in self._seen:  # the same request offers it again
            return
        self._seen[chunk] = _Seen(request, cls)
        if len(self._seen) > self._memory:
            del self._seen[next(iter(self._seen))]
        self._offered[cls] = self._offered.get(cls, 0) + 1
        if self._offered[cls] >= OFTEN:
            self._offered[cls] //= 2
            self._returned[cls] = self._returned.get(cls, 0) // 2
