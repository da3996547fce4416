"""vLLM runs a perc policy: the entry point `vllm.general_plugins`.

Installed, it does nothing. With `PERC_RECORD` set it records traffic
(`perc.bridges.vllm_events`). With `PERC_POLICY` set (`perc.bridges.settings`) it puts
the policy's queue in the place of vLLM's in every block pool, and listens to requests
that give their blocks back, finished or preempted:

    PERC_POLICY=perc vllm serve MODEL

vLLM calls `register` in each of its processes, before a scheduler is built; more than
once does no harm. If anything is not as it must be, vLLM stays as it is, and one
warning says why.
"""

# pyright: reportMissingImports=false

import logging
import os
from typing import Any

logger = logging.getLogger("vllm.perc")
NAMES = ("PERC_POLICY", "PERC_CLOCK", "PERC_STALE_S")
_installed = False
_refused: tuple[str | None, ...] = ()  # settings that have had their warning


def register() -> None:
    """Does what `PERC_POLICY` and `PERC_RECORD` ask for; nothing without them."""
    global _installed, _refused
    if os.environ.get("PERC_RECORD", "").strip():
        from perc.bridges import vllm_events

        vllm_events.register()
    if _installed or not os.environ.get("PERC_POLICY", "").strip():
        return
    asked = tuple(map(os.environ.get, NAMES))
    if asked == _refused:
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is vLLM's
    try:
        from perc.bridges import vllm_versions

        reason = vllm_versions.unfit()
        if reason is None:
            _install()
            _installed = True
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is not None:
        _refused = asked
        logger.warning("perc: %s. vLLM goes on unchanged, with LRU.", reason)


def _install() -> None:
    from vllm.v1.core import block_pool
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    from perc.bridges import vllm_metrics
    from perc.bridges.settings import from_environment
    from perc.bridges.vllm_release import Listener, heard

    settings = from_environment()
    assert settings is not None
    stock = block_pool.FreeKVCacheBlockQueue
    listener = Listener(settings)

    def queue(blocks: list[Any]) -> Any:
        try:
            # Here, in the one process that has a pool: a port is opened only once.
            make = vllm_metrics.queue_maker(listener.reader)
            return make(blocks, settings, stock)
        except Exception as error:
            logger.warning("perc: %s. This block pool keeps LRU.", error)
            return stock(blocks)

    block_pool.FreeKVCacheBlockQueue = queue
    for name in ("free", "pop_blocks_for_free"):
        setattr(KVCacheManager, name, heard(getattr(KVCacheManager, name), listener))
    logger.info("perc: blocks leave by policy %s.", settings.policy.name)
