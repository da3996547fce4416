"""Caches of whole entries: what is kept, and who leaves when there is no room.

An entry larger than the cache is not stored and makes nobody leave. To ask whether a
key is there changes nothing.
"""

from collections.abc import Hashable, Iterable

Entry = tuple[Hashable, int]  # a key, and what it takes


class Future:
    """When each key will be accessed next, for those who may know.

    Example:
        >>> future = Future("aba")
        >>> future.advance()
        >>> future.next_use("b"), future.next_use("c")
        (1, inf)
    """

    def __init__(self, keys: Iterable[Hashable]):
        self._now, self._uses = 0, {}
        for at, key in enumerate(keys):
            self._uses.setdefault(key, []).append(at)

    def advance(self) -> None:
        """The access at hand is over: it no longer counts as the next."""
        self._now += 1

    def next_use(self, key: Hashable) -> float:
        """Its place in the sequence, inf = never again."""
        later = (at for at in self._uses.get(key, ()) if at >= self._now)
        return next(later, float("inf"))


class LRUCache:
    """Keeps what was used last.

    Example:
        >>> cache = LRUCache(10)
        >>> [cache.access(key, 4) for key in "abac"], cache.keys()
        ([False, False, True, False], ['a', 'c'])
    """

    def __init__(self, capacity: int, future: Future | None = None):
        self.capacity, self.used, self._future = capacity, 0, future
        self._sizes: dict[Hashable, int] = {}  # the first to leave stands first

    def __contains__(self, key: Hashable) -> bool:
        return key in self._sizes

    def keys(self) -> list:
        """Oldest first."""
        return list(self._sizes)

    def access(self, key: Hashable, size: int) -> bool:
        """Whether it was there; from now on it is, if it fits."""
        if key in self:
            self.touch(key)
            return True
        self.insert(key, size)
        return False

    def touch(self, key: Hashable) -> None:
        """An entry that is there was used."""
        self._sizes[key] = self._sizes.pop(key)

    def insert(self, key: Hashable, size: int) -> list[Entry]:
        """Stores an entry that is not there, if it fits.

        Returns:
            Entries that left for it, in this order.
        """
        if size > self.capacity or not self.welcomes(key, size):
            return []
        gone = []
        while self.used + size > self.capacity:
            victim = self.victim()
            gone.append((victim, self.remove(victim)))
        self._sizes[key] = size
        self.used += size
        return gone

    def remove(self, key: Hashable) -> int:
        """Takes an entry out; its size."""
        size = self._sizes.pop(key)
        self.used -= size
        return size

    def victim(self) -> Hashable:
        """Who leaves next."""
        return next(iter(self._sizes))

    def welcomes(self, key: Hashable, size: int) -> bool:
        """Whether an entry that would fit is stored at all."""
        return True


class FIFOCache(LRUCache):
    """Keeps what came last; uses count for nothing."""

    def touch(self, key: Hashable) -> None:
        """Changes nothing."""


class MRUCache(LRUCache):
    """Drops what was used last: right for cycles, and for little else."""

    def victim(self) -> Hashable:
        """What was used last."""
        return next(reversed(self._sizes))


class BeladyCache(LRUCache):
    """Drops what is used again last; among equals the oldest. It knows the future."""

    def victim(self) -> Hashable:
        """What is used again last."""
        return max(self._sizes, key=self._next_use)

    def _next_use(self, key: Hashable) -> float:
        assert self._future is not None, "Belady's cache needs a Future"
        return self._future.next_use(key)


class BeladyBypassCache(BeladyCache):
    """The same, and what would itself be the victim is not stored."""

    def welcomes(self, key: Hashable, size: int) -> bool:
        """Unless it would be the next victim itself."""
        if self.used + size <= self.capacity:
            return True
        return self._next_use(key) < self._next_use(self.victim())


CACHES: dict[str, type[LRUCache]] = {
    "lru": LRUCache,
    "fifo": FIFOCache,
    "mru": MRUCache,
    "belady": BeladyCache,
    "belady-bypass": BeladyBypassCache,
}
