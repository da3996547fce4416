"""Tells the queues of vLLM's block pools which request gives its blocks back."""

import functools
import logging
from typing import Any

from perc.bridges.settings import Settings
from perc.bridges.vllm_queue import PolicyQueue
from perc.bridges.vllm_requests import Reader

logger = logging.getLogger("vllm.perc")


class Listener:
    """Hears of requests, once each time that they give their blocks back."""

    def __init__(self, settings: Settings):
        self.reader = Reader()
        self._settings = settings

    def released(self, manager: Any, request: Any) -> None:
        """`request` is about to give back all its blocks to a `KVCacheManager`."""
        try:
            self._settings.tick()
            self._tell(manager, request)
        except Exception as error:
            queue = manager.block_pool.free_block_queue
            if isinstance(queue, PolicyQueue):
                queue.fall_back(error)

    def _tell(self, manager: Any, request: Any) -> None:
        facts = None
        for group in manager.coordinator.single_type_managers:
            queue = group.block_pool.free_block_queue
            if not isinstance(queue, PolicyQueue) or not queue.wants_requests:
                continue
            blocks = group.req_to_blocks.get(request.request_id)
            if blocks:
                facts = facts or self.reader.facts(request)
                queue.finished(facts, blocks)


def heard(method: Any, listener: Any) -> Any:
    """A method that gives back a request's blocks, told to a listener before it runs.

    `listener` has `released(manager, request)`: a `Listener`, or a recorder.
    """

    @functools.wraps(method)
    def wrapper(manager: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        listener.released(manager, request)
        return method(manager, request, *args, **kwargs)

    return wrapper
