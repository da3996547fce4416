"""vLLM's CPU offload tier without an engine: its manager, driven as vLLM drives it."""

import hashlib
import random

from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

CHUNK_TOKENS = 32
PERC = {
    "cache_policy": "PercCachePolicy",
    "cache_policy_module_path": "perc.bridges.vllm_offload",
}


def chain(*parts):
    """Keys of the chunks of a prompt, root first; each stands for all before it too."""
    digest, keys = b"", []
    for part in parts:
        digest = hashlib.sha256(digest + repr(part).encode()).digest()
        keys.append(make_offload_key(digest, 0))
    return keys


def context_of(name, keys, hints=None, kv_hints=None):
    """A request as vLLM's scheduler describes it to the manager."""
    given = {} if kv_hints is None else {"kv_hints": kv_hints}  # since vLLM 0.32
    context = ReqContext(str(name), kv_transfer_params=hints, **given)
    for place, key in enumerate(keys, 1):
        context.set_offload_key_position(key, place * CHUNK_TOKENS)
    return context


class Tier:
    """Serves requests one at a time, and counts chunks."""

    def __init__(self, size, policy="PercCachePolicy", manager=CPUOffloadingManager):
        names = PERC if policy == "PercCachePolicy" else {"cache_policy": policy}
        self.manager = manager(size, **names)
        self.requests = self.asked = self.hits = self.stored = 0
        self.victims = []

    @property
    def policy(self):
        return self.manager._policy

    def serve(self, keys, hints=None, kv_hints=None):
        """A request comes, runs and ends; returns how many leading chunks were here."""
        manager = self.manager
        self.requests += 1
        context = context_of(self.requests, keys, hints, kv_hints)
        manager.on_new_request(context)
        n = 0
        while n < len(keys) and manager.lookup(keys[n], context) is LookupResult.HIT:
            n += 1
        if n:
            manager.prepare_load(keys[:n], context)
            manager.complete_load(set(keys[:n]), context)
        output = manager.prepare_store(keys[n:], context)
        if output is not None:
            self.victims += output.evicted_keys
            self.stored += len(output.keys_to_store)
            manager.complete_store(set(output.keys_to_store), context)
        manager.on_request_finished(context)
        self.hits += n
        self.asked += len(keys)
        return n

    def here(self, keys):
        """How many leading chunks are stored."""
        n = 0
        while n < len(keys) and self.policy.get(keys[n]) is not None:
            n += 1
        return n

    @property
    def hit_ratio(self):
        return self.hits / self.asked


def cyclic(rounds=30, docs=12, chunks=16):
    """Documents read in turn: more than fit, so that LRU never hits."""
    for _ in range(rounds):
        for doc in range(docs):
            yield chain(*((doc, i) for i in range(chunks)))


def agents(seed, rounds=30, sessions=4, chats=8):
    """Sessions that grow, end and begin anew, among chats that never come back."""
    rng = random.Random(seed)
    length, run, chat = [8] * sessions, [0] * sessions, 0
    for _ in range(rounds):
        turns = [*range(sessions), *[None] * chats]
        rng.shuffle(turns)
        for session in turns:
            if session is None:
                chat += 1
                yield chain(*(("chat", chat, i) for i in range(16)))
                continue
            name = (session, run[session])
            yield chain(*((name, i) for i in range(length[session])))
            length[session] += 2
            if length[session] > 24:
                length[session], run[session] = 8, run[session] + 1
