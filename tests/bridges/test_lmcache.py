"""LMCache's policy: driven as its CPU backend drives it, beside its own policies."""

import sys
import types
import warnings
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.bridges import lmcache_policy
from perc.bridges.lmcache_policy import PercPolicy, register


class Chunk:
    """What a policy sees of a stored chunk."""

    can_evict = True


class Backend:
    """The calls of LMCache's `LocalCPUBackend`, chunk by chunk."""

    def __init__(self, policy, room):
        self.policy, self.room = policy, room
        self.chunks = policy.init_mutable_mapping()
        self.victims, self.hits, self.asked = [], 0, 0

    def serve(self, keys):
        found = []
        for key in keys:
            if key not in self.chunks:
                break
            found.append(key)
        for key in reversed(found):
            self.policy.update_on_hit(key, self.chunks)
        for key in keys[len(found) :]:
            if key in self.chunks:
                continue
            if len(self.chunks) == self.room:
                (victim,) = self.policy.get_evict_candidates(self.chunks, 1)
                del self.chunks[victim]
                self.victims.append(victim)
            self.chunks[key] = Chunk()
            self.policy.update_on_put(key)
        self.hits += len(found)
        self.asked += len(keys)


def documents(rounds=30, docs=12):
    return [[(doc, i) for i in range(8)] for _ in range(rounds) for doc in range(docs)]


@pytest.fixture
def policy(monkeypatch):
    """Policies by name, with time in accesses."""
    monkeypatch.setenv("PERC_CLOCK", "requests")

    def make(name):
        monkeypatch.setenv("PERC_POLICY", name)
        return PercPolicy()

    return make


def served(policy, work, room=64):
    backend = Backend(policy, room)
    for keys in work:
        backend.serve(keys)
    return backend


def test_documents_in_turn(policy):
    assert served(policy("lru"), documents()).hits == 0
    perc = policy("perc")
    backend = served(perc, documents())
    assert backend.hits > 0.2 * backend.asked
    assert perc.failures == 0


@pytest.mark.parametrize("name", ["lfu", "perc_decay", "perc"])
def test_the_same_twice(policy, name):
    runs = [served(policy(name), documents(5)).victims for _ in range(2)]
    assert runs[0] == runs[1] != []


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(["lru", "perc", "perc_decay", "lfu"]),
    steps=st.lists(
        st.tuples(st.sampled_from("phe"), st.integers(0, 12), st.integers(1, 4))
    ),
    pinned=st.sets(st.integers(0, 12)),
)
def test_victims_are_stored_free_and_distinct(name, steps, pinned):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERC_POLICY", name)
        patch.setenv("PERC_CLOCK", "requests")
        policy = PercPolicy()
    chunks = policy.init_mutable_mapping()
    for what, key, n in steps:
        if what == "p" and key not in chunks:
            chunks[key] = Chunk()
            chunks[key].can_evict = key not in pinned
            policy.update_on_put(key)
        elif what == "h" and key in chunks:
            policy.update_on_hit(key, chunks)
        elif what == "e":
            found = policy.get_evict_candidates(chunks, n)
            free = [k for k in chunks if k not in pinned]
            assert len(found) == len(set(found)) == min(n, len(free))
            assert set(found) <= set(free)
            if name == "lru":
                assert found == free[:n]
            for victim in found:
                del chunks[victim]
                policy.update_on_force_evict(victim)
    assert policy.failures == 0


def test_a_failure_leaves_lru(policy, caplog):
    perc = policy("perc")
    backend = served(perc, documents(3))
    perc._scores.score = lambda *_: 1 / 0
    perc._next.clear()
    expected = list(backend.chunks)[:5]
    assert perc.get_evict_candidates(backend.chunks, 5) == expected
    for keys in documents(2):
        backend.serve(keys)
    assert perc.failures == 1
    assert caplog.text.count("goes on with LRU") == 1


@pytest.mark.parametrize("name", ["", "nonsense", "belady"])
def test_without_a_policy_that_does_it_is_lru(policy, caplog, name):
    chunks = OrderedDict((key, Chunk()) for key in "abc")
    chosen = policy(name)
    chosen.update_on_hit("a", chunks)
    assert chosen.get_evict_candidates(chunks, 2) == ["b", "c"]
    assert "keeps LRU" in caplog.text


@pytest.mark.parametrize(
    "name, version, there",
    [("perc", "0.5.6", True), ("", "0.5.6", False), ("perc", "0.6.0", False)],
)
def test_registering(monkeypatch, name, version, there):
    mapping = {"LRU": object}
    base = type("BaseCachePolicy", (), {"register": classmethod(lambda *_: None)})
    module = types.SimpleNamespace(POLICY_MAPPING=mapping, BaseCachePolicy=base)
    backend = types.SimpleNamespace(cache_policy=module)
    for module in ("lmcache", "lmcache.v1"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    monkeypatch.setitem(sys.modules, "lmcache.v1.storage_backend", backend)
    monkeypatch.setattr(lmcache_policy, "version", lambda _: version)
    monkeypatch.setenv("PERC_POLICY", name)
    register()
    register()
    assert mapping == {"LRU": object, **({"PERC": PercPolicy} if there else {})}


@pytest.fixture
def lmcache(needs_engine):
    """LMCache's own factory of policies."""
    needs_engine("lmcache")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lmcache.v1.storage_backend import (  # pyright: ignore
            cache_policy,
        )
    return cache_policy


def test_lmcache_takes_the_name(policy, lmcache):
    policy("perc")
    register()
    register()
    perc = lmcache.get_cache_policy("perc")
    assert isinstance(perc, PercPolicy)
    assert isinstance(perc, lmcache.BaseCachePolicy)


def test_against_lmcaches_own(policy, lmcache):
    theirs = [
        served(lmcache.get_cache_policy(name), documents()).hits
        for name in ("LRU", "LFU", "FIFO")
    ]
    backend = served(policy("perc"), documents())
    assert max(theirs) == 0 < backend.hits


def test_lru_is_lmcaches_lru(policy, lmcache):
    work = documents(3, docs=7) + documents(4, docs=11)
    ours = served(policy("lru"), work)
    assert ours.victims == served(lmcache.get_cache_policy("LRU"), work).victims
    assert ours.victims
