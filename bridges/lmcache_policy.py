"""LMCache evicts by a perc policy: an entry `PERC` of its `POLICY_MAPPING`.

    from perc.bridges.lmcache_policy import register
    register()  # then start the engine, with LMCACHE_CACHE_POLICY=PERC

LMCache has no plug-ins: `register` must have run in the engine's process before its
storage backends are built. It does nothing without `PERC_POLICY`. LMCache tells a
policy keys, no requests: a chunk is judged by how often and how lately it was used.
"""

import heapq
import logging
import os
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from importlib.metadata import version
from typing import Any

logger = logging.getLogger("lmcache.perc")
NAME = "PERC"
FROM, BELOW = "0.5.6", "0.5.7"
AHEAD = 32  # victims are ranked for this share of the cache at a time


class PercPolicy:
    """LMCache's `BaseCachePolicy` by the policy of `PERC_POLICY`.

    Its mapping is that of LMCache's LRU, and after a failure, or with policy `lru`, the
    chunks leave by it.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._scores: Any = None  # perc.bridges.item_scores.ItemScores
        self._settings: Any = None
        self._next: list[tuple[float, Hashable]] = []  # ranked, the last leaves first
        try:
            self._start()
        except Exception as error:
            logger.warning("perc: %s. LMCache keeps LRU.", error)

    def _start(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is LMCache's
        from perc.bridges.item_scores import ItemScores
        from perc.bridges.settings import from_environment

        self._settings = from_environment()
        if self._settings is None:
            raise ValueError("PERC_POLICY is not set")
        scores = ItemScores(self._settings.policy)
        self._scores = None if scores.is_lru else scores

    def init_mutable_mapping(self) -> OrderedDict[Hashable, Any]:
        """The store of chunks, the least recently used first."""
        return OrderedDict()

    def update_on_hit(self, key: Hashable, cache_dict: OrderedDict) -> None:
        """A chunk is used."""
        cache_dict.move_to_end(key)
        self._used(key)

    def update_on_put(self, key: Hashable) -> None:
        """A chunk is stored."""
        self._used(key)

    def update_on_force_evict(self, key: Hashable) -> None:
        """A chunk has left; that it may return is remembered."""

    def get_evict_candidates(
        self, cache_dict: OrderedDict, num_candidates: int = 1
    ) -> list[Hashable]:
        """Up to so many chunks to leave now, first victim first."""
        if self._scores is not None:
            try:
                return self._victims(cache_dict, num_candidates)
            except Exception as error:
                self._fall_back(error)
        free = (key for key, chunk in cache_dict.items() if chunk.can_evict)
        return [key for key, _ in zip(free, range(num_candidates), strict=False)]

    def _used(self, key: Hashable) -> None:
        if self._scores is None:
            return
        try:
            self._settings.tick()
            self._scores.used(key, self._settings.clock())
        except Exception as error:
            self._fall_back(error)

    def _victims(self, chunks: OrderedDict, n: int) -> list[Hashable]:
        """From the last ranking, while it lasts; then all chunks are ranked again."""
        found: dict[Hashable, None] = {}
        self._pick(chunks, n, found)
        if len(found) < n:
            self._rank(chunks, max(n, len(chunks) // AHEAD), found)
            self._pick(chunks, n, found)
        return list(found)

    def _pick(self, chunks: OrderedDict, n: int, found: dict[Hashable, None]) -> None:
        while self._next and len(found) < n:
            time_s, key = self._next.pop()
            chunk = chunks.get(key)
            if chunk is None or not chunk.can_evict:
                continue
            if self._scores.known_s(key) == time_s:  # not used since
                found[key] = None

    def _rank(self, chunks: OrderedDict, n: int, without: Iterable[Hashable]) -> None:
        now_s, scores = self._settings.clock(), self._scores
        taken = set(without)
        ranked = []
        for place, (key, chunk) in enumerate(chunks.items()):
            if chunk.can_evict and key not in taken:
                if scores.known_s(key) is None:  # forgotten, or stored before us
                    scores.used(key, now_s)
                ranked.append((scores.score(key, now_s), place, key))
        lowest = heapq.nsmallest(n, ranked)
        self._next = [(scores.known_s(key), key) for _, _, key in reversed(lowest)]

    def _fall_back(self, error: Exception) -> None:
        self.failures += 1
        self._scores = None
        logger.warning(
            "perc: the policy failed (%s: %s). LMCache goes on with LRU; requests are "
            "not affected. Please report this.",
            type(error).__name__,
            error,
            exc_info=error,
        )


def register() -> None:
    """Adds `PERC` to LMCache's cache policies, if `PERC_POLICY` is set."""
    if not os.environ.get("PERC_POLICY", "").strip():
        return
    try:
        from lmcache.v1.storage_backend import cache_policy  # pyright: ignore
        from packaging.version import Version

        found = version("lmcache")
        if not Version(FROM) <= Version(found) < Version(BELOW):
            raise RuntimeError(
                f"LMCache {found} is not one that perc was tested with ({FROM} <= "
                f"version < {BELOW})"
            )
        cache_policy.BaseCachePolicy.register(PercPolicy)
        cache_policy.POLICY_MAPPING[NAME] = PercPolicy
    except Exception as error:
        logger.warning("perc: %s. LMCache goes on unchanged.", error)
