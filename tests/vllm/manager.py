"""vLLM's KV cache manager without a model: requests in, blocks and victims out."""

from contextlib import contextmanager

import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import block_pool, kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.request import Request, RequestStatus

from perc.bridges.settings import Settings
from perc.bridges.vllm_queue import PolicyQueue
from perc.bridges.vllm_release import Listener

BLOCK = 4  # tokens of a block
STOCK = kv_cache_utils.FreeKVCacheBlockQueue

kv_cache_utils.init_none_hash(sha256)


def set_block_tokens(tokens):
    """Managers made from now on have blocks of so many tokens."""
    global BLOCK, _hasher
    BLOCK = tokens
    _hasher = kv_cache_utils.get_request_block_hasher(tokens, sha256)


set_block_tokens(4)


class Clock:
    """Time as a test sets it."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


class Manager:
    """One `KVCacheManager` of `usable` blocks; `policy` None leaves vLLM as it is."""

    def __init__(self, usable, policy=None, *, stale_s=0.0, record=True):
        self.clock = Clock()
        self.victims = []  # block hashes, in the order in which they left
        self.hits = []  # tokens found by each request
        config = KVCacheConfig(
            num_blocks=usable + 1,  # and the null block
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec(
                    ["layer"],
                    FullAttentionSpec(
                        block_size=BLOCK,
                        num_kv_heads=1,
                        head_size=1,
                        dtype=torch.float32,
                    ),
                )
            ],
        )
        self.listener = None
        with self._queue(policy, stale_s):
            self.kv = KVCacheManager(
                config,
                max_model_len=1 << 20,
                scheduler_block_size=BLOCK,
                hash_block_size=BLOCK,
            )
        self.pool = self.kv.block_pool
        self.queue = self.pool.free_block_queue
        if record:
            self._record_evictions()

    @property
    def failures(self):
        """How often the bridge has given up; 0 without one."""
        return getattr(self.queue, "failures", 0)

    @contextmanager
    def _queue(self, policy, stale_s):
        if policy is None:
            yield
            return
        settings = Settings(policy, self.clock, lambda: None, stale_s, memory=10_000)
        self.listener = Listener(settings)
        block_pool.FreeKVCacheBlockQueue = lambda b: PolicyQueue(b, settings, STOCK)
        try:
            yield
        finally:
            block_pool.FreeKVCacheBlockQueue = STOCK

    def _record_evictions(self):
        evict = self.pool._maybe_evict_cached_block

        def recorded(block):
            if block.block_hash is not None:
                self.victims.append(block.block_hash)
            return evict(block)

        self.pool._maybe_evict_cached_block = recorded

    def request(self, number, tokens, hints=None, priority=0):
        """A request of these prompt tokens."""
        params = SamplingParams(max_tokens=1, extra_args=hints)
        params.update_from_generation_config({}, eos_token_id=None)
        return Request(
            request_id=str(number),
            prompt_token_ids=list(tokens),
            sampling_params=params,
            pooling_params=None,
            priority=priority,
            block_hasher=_hasher,
        )

    def start(self, request):
        """Finds what is cached and takes room for the rest; False if there is none."""
        found, cached, *_ = self.kv.get_computed_blocks(request)
        tokens = request.num_tokens - cached
        if self.kv.allocate_slots(request, tokens, cached, found) is None:
            return False
        request.num_computed_tokens = request.num_tokens
        self.hits.append(cached)
        return True

    def append(self, request, tokens):
        """The request generates tokens; False if there is no room."""
        request.append_output_token_ids(list(tokens))
        if self.kv.allocate_slots(request, len(tokens)) is None:
            return False
        request.num_computed_tokens = request.num_tokens
        return True

    def stop(self, request, *, preempted=False):
        """The request ends, or is preempted, and gives its blocks back."""
        if not preempted:
            request.status = RequestStatus.FINISHED_STOPPED
        if self.listener is not None:
            self.listener.released(self.kv, request)
        self.kv.free(request)
        if preempted:
            request.num_computed_tokens = 0
