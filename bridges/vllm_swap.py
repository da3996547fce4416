"""Puts a policy's queue into a block pool of vLLM that exists already.

The plug-in (`perc.bridges.vllm_plugin`) is there before the pool is made. The connector
and the scheduler class come after it, and find it through this door.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

from perc.bridges import vllm_metrics, vllm_versions
from perc.bridges.settings import Settings, settings_of
from perc.bridges.vllm_queue import PolicyQueue
from perc.bridges.vllm_requests import Reader

logger = logging.getLogger("vllm.perc")


def open_door(
    pool: Any, reader: Reader, given: Mapping[str, str] | None = None
) -> tuple[PolicyQueue, Settings] | None:
    """Swaps the queue of a `vllm.v1.core.block_pool.BlockPool`; None if it stays.

    It stays without a policy, where a policy's queue is there already, and, with one
    warning, where anything is not as it must be.

    Args:
        pool: whose free blocks are to leave in the policy's order.
        reader: of the requests that will be told to the queue.
        given: settings by the environment's names, before those of the environment.
    """
    if isinstance(pool.free_block_queue, PolicyQueue):
        return None
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is vLLM's
    try:
        settings = settings_of({**os.environ, **(given or {})})
        if settings is None:
            return None
        reason = vllm_versions.unfit()
        if reason is None:
            queue = _swapped(pool, settings, reader)
            logger.info("perc: blocks leave by policy %s.", settings.policy.name)
            return queue, settings
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    logger.warning("perc: %s. vLLM goes on unchanged, with LRU.", reason)
    return None


def _swapped(pool: Any, settings: Settings, reader: Reader) -> PolicyQueue:
    """The new queue, with the blocks that are free now, in the order of the old one."""
    old = pool.free_block_queue
    make = vllm_metrics.queue_maker(reader)
    free = old.popleft_n(old.num_free_blocks)  # as vLLM does it: no links are left
    try:
        queue = make(pool.blocks, settings, type(old), free=[])
        queue.prepend_n([block for block in free if block.block_hash is None])
        queue.append_n([block for block in free if block.block_hash is not None])
    except Exception:
        old.append_n(free)
        raise
    pool.free_block_queue = queue
    return queue
