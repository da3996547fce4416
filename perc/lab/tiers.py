"""A GPU's cache with a larger, slower one in host memory.

inclusive   a miss is stored in both; what is in the GPU is usually in the host too,
            so that the host must hold the whole set
exclusive   an entry is in one tier: a hit in the host moves it up, and what the GPU
            drops moves down. Together they hold the sum of both.
"""

from collections.abc import Hashable
from typing import Literal

from perc.lab.caches import Future, LRUCache

Where = Literal["gpu", "cpu", "miss"]


class TwoTierCache:
    """Inclusive: the host keeps a copy of all that comes by.

    A hit in the GPU leaves the host's copy as it is, its age too. An entry that is too
    large for the GPU is served from the host.

    Example:
        >>> cache = TwoTierCache(4, 8)
        >>> [cache.access(key, 4) for key in "abbac"]
        ['miss', 'miss', 'gpu', 'cpu', 'miss']
    """

    def __init__(
        self,
        gpu_capacity: int,
        cpu_capacity: int,
        *,
        kind: type[LRUCache] = LRUCache,
        future: Future | None = None,
    ):
        self.gpu = kind(gpu_capacity, future)
        self.cpu = kind(cpu_capacity, future)

    def access(self, key: Hashable, size: int) -> Where:
        """Where it was; from now on it is where it fits."""
        if key in self.gpu:
            self.gpu.touch(key)
            return "gpu"
        found = self.cpu.access(key, size)
        self.gpu.insert(key, size)
        return "cpu" if found else "miss"


class ExclusiveCache(TwoTierCache):
    """A victim tier: an entry leaves the host before it enters the GPU.

    What the GPU does not store, because it is too large or not welcome, goes to the
    host, or stays there.

    Example:
        >>> cache = ExclusiveCache(4, 4)
        >>> [cache.access(key, 4) for key in "abab"]
        ['miss', 'miss', 'cpu', 'cpu']
    """

    def access(self, key: Hashable, size: int) -> Where:
        """Where it was; from now on it is in one tier, or in none if it fits none."""
        if key in self.gpu:
            self.gpu.touch(key)
            return "gpu"
        found = key in self.cpu
        if found:
            self.cpu.remove(key)
        for gone, its_size in self.gpu.insert(key, size):
            self.cpu.insert(gone, its_size)
        if key not in self.gpu:
            self.cpu.insert(key, size)
        return "cpu" if found else "miss"
