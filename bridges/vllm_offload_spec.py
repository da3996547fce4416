"""vLLM's CPU offload tier stores only what is likely to return.

vLLM asks a cache policy what leaves, not what enters: `on_store_miss` only tells, and a
chunk that `insert` refused would never be freed. So admission is a manager of its own,
in an `OffloadingSpec` of its own, both vLLM's with one question put before them:

    PERC_POLICY=perc PERC_OFFLOAD_ADMIT=0.05 vllm serve MODEL --kv-transfer-config '{
      "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"cpu_bytes_to_use": 8589934592,
        "spec_name": "PercOffloadingSpec",
        "spec_module_path": "perc.bridges.vllm_offload_spec"}}'

The spec sets `PercCachePolicy` as the eviction policy where none is named. Without
`PERC_OFFLOAD_ADMIT`, and after anything has gone wrong, all chunks are stored.
"""

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.kv_offload.base import (  # pyright: ignore[reportMissingImports]
    LoadStoreSpec,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    get_offload_group_idx,
)
from vllm.v1.kv_offload.cpu.manager import (  # pyright: ignore[reportMissingImports]
    CPUOffloadingManager,
)
from vllm.v1.kv_offload.cpu.spec import (  # pyright: ignore[reportMissingImports]
    CPUOffloadingSpec,
)

logger = logging.getLogger("vllm.perc")
MEMORY = 8  # chunks that admission remembers, in sizes of the tier
POLICY, MODULE = "PercCachePolicy", "perc.bridges.vllm_offload"


@dataclass
class _Class:
    """What admission knows of a request, kept in its `ReqContext`."""

    turn: int
    kind: int
    continues: bool = False  # it has used something that was stored


class PercOffloadingManager(CPUOffloadingManager):
    """vLLM's manager, offered only the chunks that admission lets through."""

    def __init__(self, num_chunks: int, *args: Any, **kwargs: Any):
        super().__init__(num_chunks, *args, **kwargs)
        self.failures = 0
        self.admission: Any = None  # perc.bridges.offload_admission.Admission
        try:
            self._start(num_chunks)
        except Exception as error:
            logger.warning("perc: %s. The CPU offload tier stores everything.", error)

    def _start(self, num_chunks: int) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is vLLM's
        from perc.bridges import offload_settings
        from perc.bridges.offload_admission import Admission

        least = offload_settings.least_return(os.environ)
        self._facts = offload_settings.OffloadFacts()
        if least:
            self.admission = Admission(least, MEMORY * num_chunks)

    def prepare_load(
        self, keys: Collection[OffloadKey], req_context: ReqContext
    ) -> LoadStoreSpec:
        """See `OffloadingManager.prepare_load`."""
        if self.admission is not None:
            try:
                self._class_of(req_context).continues = True
                self.admission.used(req_context.req_id, keys)
            except Exception as error:
                self._fall_back(error)
        return super().prepare_load(keys, req_context)

    def prepare_store(
        self, keys: Collection[OffloadKey], req_context: ReqContext
    ) -> PrepareStoreOutput | None:
        """See `OffloadingManager.prepare_store`."""
        offered: Sequence[OffloadKey] = list(keys)
        if self.admission is not None:
            try:
                offered = self._admitted(offered, req_context)
            except Exception as error:
                self._fall_back(error)
        return super().prepare_store(offered, req_context)

    def _admitted(
        self, keys: Sequence[OffloadKey], req_context: ReqContext
    ) -> Sequence[OffloadKey]:
        """Those that are stored already, and the new ones that are let through."""
        here = [key for key in keys if self._policy.get(key) is not None]
        known = self._class_of(req_context)
        if here:
            known.continues = True
            self.admission.used(req_context.req_id, here)
        stored = set(here)
        groups: dict[int, list[OffloadKey]] = {}  # of layers: each has its own chain
        for key in keys:
            if key not in stored:
                groups.setdefault(get_offload_group_idx(key), []).append(key)
        cls = (known.turn, known.kind, known.continues)
        for fresh in groups.values():
            n = self.admission.stored(req_context.req_id, cls, fresh)
            stored.update(fresh[:n])
        return [key for key in keys if key in stored]

    def _class_of(self, req_context: ReqContext) -> _Class:
        known = req_context.get_state(_Class)
        if known is None:
            facts = self._facts.facts(req_context, 0)
            known = _Class(min(facts.turn or 0, 6), facts.kind)
            req_context.set_state(known)
        return known

    def _fall_back(self, error: Exception) -> None:
        self.failures += 1
        self.admission = None
        logger.warning(
            "perc: admission failed (%s: %s). The CPU offload tier stores everything; "
            "requests are not affected. Please report this.",
            type(error).__name__,
            error,
            exc_info=error,
        )


class PercOffloadingSpec(CPUOffloadingSpec):
    """vLLM's CPU offload tier with perc's manager."""

    def __init__(self, config: Any):
        super().__init__(config)
        if "eviction_policy" not in self.extra_config:
            self.eviction_policy, self.cache_policy_module_path = POLICY, MODULE

    def get_manager(self) -> CPUOffloadingManager:
        """See `CPUOffloadingSpec.get_manager`."""
        if not self._manager:
            self._manager = PercOffloadingManager(
                num_chunks=self.num_chunks,
                cache_policy=self.eviction_policy,
                cache_policy_module_path=self.cache_policy_module_path,
                enable_events=self.kv_events_config.enable_kv_cache_events,
                store_threshold=int(self.extra_config.get("store_threshold", 0)),
                max_tracker_size=int(self.extra_config.get("max_tracker_size", 64_000)),
            )
        return self._manager
