"""vLLM runs a perc policy: a scheduler class, which sees preemptions too.

    PERC_POLICY=perc VLLM_PLUGINS= vllm serve MODEL \
        --scheduler-cls perc.bridges.vllm_scheduler.PercScheduler

It patches nothing, but vLLM calls this interface not public. Where the plug-in or the
connector has put a policy in, it does nothing.
"""

# pyright: reportMissingImports=false

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from perc.bridges.vllm_release import Listener
from perc.bridges.vllm_requests import Reader
from perc.bridges.vllm_swap import open_door


class PercScheduler(AsyncScheduler):
    """vLLM's own, with the policy's queue in the block pool."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._perc: Listener | None = None
        reader = Reader()
        opened = open_door(self.kv_cache_manager.block_pool, reader)
        if opened is not None:
            self._perc = Listener(opened[1])
            self._perc.reader = reader

    def _free_request_blocks(self, request: Any) -> None:
        """A request that is finished or preempted gives its blocks back."""
        if self._perc is not None:
            self._perc.released(self.kv_cache_manager, request)
        super()._free_request_blocks(request)
