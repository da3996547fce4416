"""SGLang's strategy on nodes of our own; test_sglang_tree.py has SGLang's."""

import sys
import types
from array import array

import pytest

from perc.bridges import sglang_strategy
from perc.bridges.sglang_strategy import PercStrategy, _place, register
from perc.policies.registry import registry


class Key:
    def __init__(self, tokens):
        self.extra_key: str | None = None
        self.cache_salt: str | None = None
        self.token_ids = array("q", tokens)

    def __len__(self):
        return len(self.token_ids)


class Node:
    """What a strategy sees of a node of SGLang's tree."""

    def __init__(self, parent, tokens, last_access_time=0.0, priority=0):
        self.parent = parent
        self.key = Key(tokens)
        self.last_access_time = last_access_time
        self.priority = priority


def root():
    return Node(None, [])


def served_documents(strategy, rounds=30, docs=12, room=8):
    """Hits when documents are read in turn, in a cache with room for fewer."""
    top, cached, hits, now = root(), {}, 0, 0.0
    for _ in range(rounds):
        for doc in range(docs):
            now += 1
            if doc in cached:
                hits += 1
            else:
                if len(cached) == room:
                    victim = min(cached, key=lambda d: strategy.get_priority(cached[d]))
                    del cached[victim]
                cached[doc] = Node(top, range(1000 * doc, 1000 * doc + 256))
            cached[doc].last_access_time = now
    return hits


def test_documents_in_turn():
    assert served_documents(PercStrategy(registry["lru"]())) == 0
    perc = PercStrategy(registry["perc"]())
    assert served_documents(perc) > 100  # of 360, 232 at best
    assert perc.failures == 0


def test_static_policies_use_what_the_node_says():
    strategy = PercStrategy(registry["priority"]())
    low, high = (Node(root(), [p], priority=p) for p in (1, 2))
    assert strategy.get_priority(low) < strategy.get_priority(high)
    assert strategy.failures == 0


def test_a_node_is_named_by_tokens_not_by_splits():
    whole = Node(root(), range(100))
    leaf = Node(whole, range(100, 140))
    upper = Node(root(), range(60))
    lower = Node(upper, range(60, 100))
    same = Node(lower, range(100, 140))
    assert _place(leaf)[:2] == _place(same)[:2] == (_place(leaf)[0], 100)
    assert _place(whole)[0] == _place(upper)[0] != _place(lower)[0]
    assert (_place(leaf)[2], _place(same)[2]) == (2, 3)
    leaf.parent = Node(upper, range(60, 99))  # as after a split: not taken for the same
    assert _place(leaf)[0] != _place(same)[0]


def test_namespaces_are_apart():
    a, b = Node(root(), range(20)), Node(root(), range(20))
    b.key.cache_salt = "b"
    assert _place(a)[0] != _place(b)[0]


def test_a_failure_leaves_lru(caplog):
    strategy = PercStrategy(registry["perc"]())
    nodes = [Node(root(), [i], last_access_time=float(i)) for i in range(5)]
    for node in nodes[:3]:
        strategy.get_priority(node)
    strategy._scores.score = lambda *_: 1 / 0
    keys = [strategy.get_priority(node) for node in nodes]
    assert keys == sorted(keys) and keys[0][1] == 0.0
    assert strategy.failures == 1
    warned = [r for r in caplog.records if "goes on with LRU" in r.getMessage()]
    assert len(warned) == 1


@pytest.mark.parametrize("text", ["", "nonsense", "belady"])
def test_without_a_policy_that_does_it_is_lru(monkeypatch, caplog, text):
    monkeypatch.setenv("PERC_POLICY", text)
    strategy = PercStrategy()
    assert strategy.get_priority(Node(root(), [1], 7.0)) == (0.0, 7.0)
    assert "keeps LRU" in caplog.text


@pytest.fixture
def stub(monkeypatch):
    """The two modules of SGLang that `register` changes."""
    utils = types.SimpleNamespace(_EVICTION_POLICY_FACTORIES={"lru": object})
    choices = types.SimpleNamespace(RADIX_EVICTION_POLICY_CHOICES=["lru"])
    choices.add_radix_eviction_policy_choices = (
        choices.RADIX_EVICTION_POLICY_CHOICES.extend
    )
    packages = {
        "sglang": types.ModuleType("sglang"),
        "sglang.srt": types.ModuleType("sglang.srt"),
        "sglang.srt.arg_groups": types.SimpleNamespace(choices=choices),
        "sglang.srt.mem_cache": types.SimpleNamespace(utils=utils),
    }
    for name, module in packages.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sglang_strategy, "version", lambda _: "0.5.23")
    return utils._EVICTION_POLICY_FACTORIES, choices.RADIX_EVICTION_POLICY_CHOICES


def test_registering_twice_is_registering_once(stub, monkeypatch):
    monkeypatch.setenv("PERC_POLICY", "perc")
    register()
    register()
    assert stub == ({"lru": object, "perc": PercStrategy}, ["lru", "perc"])


@pytest.mark.parametrize("policy, version", [("", "0.5.23"), ("perc", "0.6.0")])
def test_nothing_changes_unasked_or_untested(stub, monkeypatch, policy, version):
    monkeypatch.setenv("PERC_POLICY", policy)
    monkeypatch.setattr(sglang_strategy, "version", lambda _: version)
    register()
    assert stub == ({"lru": object}, ["lru"])
