"""vLLM's CPU offload tier runs a perc policy, through vLLM's own `CachePolicy`.

    PERC_POLICY=perc vllm serve MODEL --kv-transfer-config '{
      "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"cpu_bytes_to_use": 8589934592,
        "eviction_policy": "PercCachePolicy",
        "cache_policy_module_path": "perc.bridges.vllm_offload"}}'

The environment is that of `perc.bridges.offload_settings`. With policy `lru` this is
vLLM's own LRU. So it is, with one warning, without a policy, with one that does not do,
and after anything has gone wrong inside; no request fails.
"""

import functools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.kv_offload.base import (  # pyright: ignore[reportMissingImports]
    OffloadKey,
    ReqContext,
)
from vllm.v1.kv_offload.cpu.policies.base import (  # pyright: ignore[reportMissingImports]
    CachePolicy,
    ChunkStatus,
    order_request_keys,
)
from vllm.v1.kv_offload.cpu.policies.lru import (  # pyright: ignore[reportMissingImports]
    LRUCachePolicy,
)

if TYPE_CHECKING:
    from perc.bridges.offload_tier import OffloadTier

logger = logging.getLogger("vllm.perc")  # below vLLM's own, so that it is shown
CHUNK_TOKENS = 16  # vLLM tells its cache policies no sizes


def _safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, or that of vLLM's LRU: in its place, or once it has failed."""
    name = method.__name__

    @functools.wraps(method)
    def wrapper(self: "PercCachePolicy", *args: Any, **kwargs: Any) -> Any:
        if self.lru is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self._fall_back(error)
        return getattr(self.lru, name)(*args, **kwargs)

    return wrapper


class PercCachePolicy(CachePolicy):
    """Which chunks leave vLLM's CPU tier.

    Methods change `chunks` last, so that vLLM's LRU can take over in the middle of one.
    """

    def __init__(self, cache_capacity: int):
        super().__init__(cache_capacity)
        self.chunks: dict[OffloadKey, ChunkStatus] = {}
        self.lru: LRUCachePolicy | None = None  # vLLM's own, where it decides
        self.failures = 0
        try:
            reason = self._start()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is not None:
            logger.warning("perc: %s. The CPU offload tier keeps LRU.", reason)
            self._hand_over([])

    def _start(self) -> str | None:
        """Sets the policy up; says why that cannot be, if it cannot."""
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is vLLM's
        from perc.bridges import offload_settings
        from perc.bridges.orders import LruOrder

        settings = offload_settings.offload_settings(os.environ)
        if settings is None:
            return "neither PERC_OFFLOAD_POLICY nor PERC_POLICY is set"
        reason = offload_settings.untested()
        if reason is not None:
            return reason
        self.settings = settings
        self._facts = offload_settings.OffloadFacts()
        self.tier = self._new_tier()
        if isinstance(self.tier.cache.order, LruOrder):
            self._hand_over([])
        logger.info("perc: chunks leave the CPU tier by %s.", settings.policy.name)
        return None

    def _new_tier(self) -> "OffloadTier":
        from perc.bridges.offload_tier import OffloadTier
        from perc.bridges.orders import order_of

        size, settings = self.cache_capacity, self.settings
        order = order_of(settings.policy, size, CHUNK_TOKENS, stale_s=settings.stale_s)
        return OffloadTier(order, size)

    # What vLLM's manager asks.

    def get(self, key: OffloadKey) -> ChunkStatus | None:
        """See `CachePolicy.get`."""
        return self.chunks.get(key)

    @_safely
    def insert(self, key: OffloadKey, chunk: ChunkStatus) -> None:
        """See `CachePolicy.insert`."""
        self.tier.stored(chunk.chunk_id, key)
        if chunk.ref_cnt == 0:
            self.tier.ready(chunk.chunk_id)
        self.chunks[key] = chunk

    @_safely
    def remove(self, key: OffloadKey) -> None:
        """See `CachePolicy.remove`."""
        self.tier.dropped(self.chunks[key].chunk_id)
        del self.chunks[key]

    @_safely
    def mark_evictable(self, key: OffloadKey) -> None:
        """See `CachePolicy.mark_evictable`."""
        self.tier.ready(self.chunks[key].chunk_id)

    @_safely
    def mark_non_evictable(self, key: OffloadKey) -> None:
        """See `CachePolicy.mark_non_evictable`."""
        self.tier.busy(self.chunks[key].chunk_id)

    @_safely
    def touch(self, keys: Iterable[OffloadKey], req_context: ReqContext) -> None:
        """Uses outside of requests: LRU would count them, a policy does not."""
        self.tier.used(reversed(self._present(keys)))

    @_safely
    def on_store_miss(
        self, keys: Iterable[OffloadKey], req_context: ReqContext
    ) -> None:
        """See `CachePolicy.on_store_miss`; the policy hears of them at the end."""

    @_safely
    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[OffloadKey]],
        insertion_only_keys: set[OffloadKey],
        reused_keys: set[OffloadKey],
        req_context: ReqContext,
    ) -> None:
        """See `CachePolicy.on_request_finished`; groups of layers become one chain."""
        keys = order_request_keys(key_groups, req_context)
        position = req_context.get_offload_key_position
        tokens = max((position(key) or 0 for key in keys), default=0)
        facts = self._facts.facts(req_context, tokens)
        self.settings.tick()
        self.tier.finished(facts, self._present(keys), self.settings.clock())

    @_safely
    def evict(
        self, n: int, protected: set[OffloadKey]
    ) -> list[tuple[OffloadKey, ChunkStatus]] | None:
        """See `CachePolicy.evict`."""
        if n == 0:
            return []
        kept = self._present(protected)
        keys = self.tier.evict(n, kept, self.settings.clock())
        return None if keys is None else [(key, self.chunks.pop(key)) for key in keys]

    @_safely
    def clear(self) -> None:
        """See `CachePolicy.clear`."""
        self.tier = self._new_tier()
        self.chunks.clear()

    def _present(self, keys: Iterable[OffloadKey]) -> list[int]:
        """Numbers of those chunks that are here."""
        chunks = self.chunks
        return [chunks[key].chunk_id for key in keys if key in chunks]

    # The safety net.

    def _fall_back(self, error: Exception) -> None:
        self.failures += 1
        logger.warning(
            "perc: policy %s failed (%s: %s). The CPU offload tier goes on in vLLM's "
            "own order (LRU); requests are not affected. Please report this.",
            self.settings.policy.name,
            type(error).__name__,
            error,
            exc_info=error,
        )
        place = self.tier.place
        self._hand_over(
            sorted(self.chunks, key=lambda k: place[self.chunks[k].chunk_id])
        )

    def _hand_over(self, keys: Sequence[OffloadKey]) -> None:
        """vLLM's LRU goes on with these chunks, the least recent first."""
        lru = LRUCachePolicy(self.cache_capacity)
        for key in keys:
            lru.insert(key, self.chunks[key])
        self.lru, self.chunks = lru, lru.chunks
