"""SGLang's strategy in SGLang's own radix cache, where SGLang is installed."""

import importlib.util
import logging
import random
import sys
import types
import warnings
from array import array
from unittest.mock import MagicMock

import pytest

from perc.bridges.sglang_strategy import PercStrategy, register


def without_pictures(monkeypatch):
    """SGLang imports torchvision, which has no build for every torch on a CPU."""
    if importlib.util.find_spec("torchvision") is not None:
        return
    import transformers  # noqa: F401  # pyright: ignore  # asks for it itself

    for name in ("", ".transforms", ".transforms.functional"):
        monkeypatch.setitem(sys.modules, f"torchvision{name}", MagicMock())


@pytest.fixture
def tree(monkeypatch, needs_engine):
    """SGLang's radix cache; time is a number that the test sets."""
    needs_engine("sglang")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        without_pictures(monkeypatch)
        from sglang.srt.mem_cache import radix_cache  # pyright: ignore
    clock = types.SimpleNamespace(now=0.0, perf_counter=lambda: 0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(radix_cache, "time", clock)
    logging.getLogger("sglang.perc").setLevel(logging.NOTSET)
    return Tree(radix_cache, clock)


class Tree:
    """Serves prompts one at a time from a `RadixCache` of 4,096 tokens."""

    device = "cpu"  # as SGLang's allocators have it

    def __init__(self, module, clock):
        self.module, self.clock = module, clock

    def free_segment(self, value, start_pos=0):
        self.victims.append(value.tolist())

    def serve(self, policy, prompts, room=4096):
        from sglang.srt.mem_cache.base_prefix_cache import (  # pyright: ignore
            EvictParams,
            InsertParams,
            MatchPrefixParams,
        )
        from sglang.srt.mem_cache.cache_init_params import (  # pyright: ignore
            CacheInitParams,
        )

        self.victims, hits, asked = [], 0, 0
        self.clock.now = 0.0
        cache = self.module.RadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=None,
                token_to_kv_pool_allocator=self,
                page_size=16,
                eviction_policy=policy,
            )
        )
        for tokens in prompts:
            self.clock.now += 1
            key = self.module.RadixKey(array("q", tokens))
            match = cache.match_prefix(MatchPrefixParams(key=key))
            cache.inc_lock_ref(match.last_device_node)
            need = len(tokens) - match.device_prefix_len
            short = need - (room - cache.total_size())
            if short > 0:
                cache.evict(EvictParams(num_tokens=short))
            cache.dec_lock_ref(match.last_device_node)
            key = self.module.RadixKey(array("q", tokens))
            cache.insert(InsertParams(key=key))
            assert cache.total_size() <= room
            hits += match.device_prefix_len
            asked += len(tokens)
        assert getattr(cache.eviction_strategy, "failures", 0) == 0
        return hits / asked


def documents(rounds=30, docs=12):
    for _ in range(rounds):
        for doc in range(docs):
            yield range(doc * 1000, doc * 1000 + 512)


def agents(seed, rounds=30):
    """Four sessions that grow, end and begin anew, among chats that never return."""
    rng = random.Random(seed)
    length, run, chat = [256] * 4, [0] * 4, 0
    for _ in range(rounds):
        turns = [*range(4), *[None] * 8]
        rng.shuffle(turns)
        for session in turns:
            if session is None:
                chat += 1
                yield range(10**8 + chat * 1000, 10**8 + chat * 1000 + 512)
                continue
            first = 10**6 + (session * 100 + run[session]) * 10_000
            yield range(first, first + length[session])
            length[session] += 64
            if length[session] > 768:
                length[session], run[session] = 256, run[session] + 1


def test_lru_is_sglangs_lru(tree, monkeypatch):
    monkeypatch.setenv("PERC_POLICY", "lru")
    register()
    ours = tree.serve("perc", agents(0)), tree.victims
    assert ours == (tree.serve("lru", agents(0)), tree.victims)
    assert len(tree.victims) > 100


def test_documents_in_sglangs_tree(tree, monkeypatch):
    monkeypatch.setenv("PERC_POLICY", "perc")
    register()
    theirs = [tree.serve(name, documents()) for name in ("lru", "lfu", "slru")]
    assert max(theirs) == 0
    assert tree.serve("perc", documents()) > 0.45


@pytest.mark.parametrize("seed", range(2))
def test_agents_in_sglangs_tree(tree, monkeypatch, seed):
    monkeypatch.setenv("PERC_POLICY", "perc")
    register()
    theirs = [tree.serve(name, agents(seed)) for name in ("lru", "lfu", "slru")]
    assert tree.serve("perc", agents(seed)) > 2 * max(theirs)


@pytest.mark.parametrize("policy", ["perc_decay", "lfu", "priority"])
def test_static_policies_in_sglangs_tree(tree, monkeypatch, policy):
    monkeypatch.setenv("PERC_POLICY", policy)
    register()
    assert 0 <= tree.serve("perc", agents(0, rounds=8)) < 1


def test_sglang_takes_the_name(tree, monkeypatch):
    from sglang.srt.arg_groups import choices  # pyright: ignore
    from sglang.srt.mem_cache.utils import (  # pyright: ignore
        get_eviction_strategy,
    )

    monkeypatch.setenv("PERC_POLICY", "perc")
    register()
    register()
    assert choices.RADIX_EVICTION_POLICY_CHOICES.count("perc") == 1
    assert isinstance(get_eviction_strategy("perc"), PercStrategy)
