"""vLLM's CPU offload tier under perc: vLLM's own contract, and what it gains."""

import json
import logging

import pytest

pytest.importorskip("vllm")

from hypothesis import settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import (  # noqa: E402
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)
from vllm.v1.kv_offload.base import LookupResult  # noqa: E402
from vllm.v1.kv_offload.config import (  # noqa: E402
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager  # noqa: E402
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory  # noqa: E402
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy  # noqa: E402
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402

from perc.bridges import offload_settings, vllm_offload  # noqa: E402
from perc.bridges.vllm_offload_spec import PercOffloadingManager  # noqa: E402
from tests.vllm.tier import PERC, Tier, agents, chain, context_of, cyclic  # noqa: E402

SIZE = 6  # chunks of the tier in the state machine


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """One tick a request, so that time is the same in every run."""
    for name in ("PERC_POLICY", "PERC_OFFLOAD_POLICY", "PERC_OFFLOAD_ADMIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PERC_CLOCK", "requests")
    monkeypatch.setenv("PERC_STALE_S", "0")
    return monkeypatch.setenv


class Shadowed(vllm_offload.PercCachePolicy):
    """Checks the contract at each eviction; with LRU in charge, against vLLM's LRU."""

    def __init__(self, cache_capacity):
        super().__init__(cache_capacity)
        self.shadow = LRUCachePolicy(cache_capacity)

    def evict(self, n, protected):
        free = {k for k, chunk in self.chunks.items() if chunk.ref_cnt == 0}
        before = dict(self.chunks)
        found = super().evict(n, protected)
        keys = None if found is None else [key for key, _ in found]
        if keys is None:
            assert len(free - protected) < n
            assert self.chunks == before
        else:
            assert len(set(keys)) == len(keys) == n
            assert set(keys) <= free - protected
            assert self.chunks.keys() == before.keys() - set(keys)
        if self.lru is not None:
            expected = self.shadow.evict(n, protected)
            assert keys == (expected and [key for key, _ in expected])
        else:
            for key in keys or ():
                self.shadow.remove(key)
        return found


def _told_to_both(name):
    def method(self, *args):
        getattr(self.shadow, name)(*args)
        return getattr(super(Shadowed, self), name)(*args)

    return method


for _name in (
    *("insert", "remove", "touch", "on_request_finished", "clear"),
    *("mark_evictable", "mark_non_evictable"),
):
    setattr(Shadowed, _name, _told_to_both(_name))


class Requests(RuleBasedStateMachine):
    """Requests that overlap: their transfers and ends come in any order."""

    running, stores, loads = Bundle("running"), Bundle("stores"), Bundle("loads")

    @initialize(policy=st.sampled_from(["lru", "perc", "perc_decay", "lfu"]))
    def build(self, policy):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PERC_POLICY", policy)
            patch.setattr(vllm_offload, "PercCachePolicy", Shadowed)
            self.manager = CPUOffloadingManager(SIZE, **PERC)
        self.policy = self.manager._policy
        assert (self.policy.lru is None) == (policy != "lru")
        self.count = self.faults = 0

    @rule(target=running, parts=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def start(self, parts):
        keys = chain(*parts)
        self.count += 1
        context = context_of(self.count, keys)
        self.manager.on_new_request(context)
        return keys, context

    @rule(target=loads, request=running)
    def load(self, request):
        keys, context = request
        n = 0
        while n < len(keys):
            if self.manager.lookup(keys[n], context) is not LookupResult.HIT:
                break
            n += 1
        self.manager.prepare_load(keys[:n], context)
        return keys[:n], context

    @rule(target=stores, request=running, n=st.integers(1, 5))
    def store(self, request, n):
        keys, context = request
        output = self.manager.prepare_store(keys[:n], context)
        return (output.keys_to_store if output else []), context

    @rule(transfer=consumes(loads))
    def loaded(self, transfer):
        self.manager.complete_load(set(transfer[0]), transfer[1])

    @rule(transfer=consumes(stores), success=st.booleans())
    def written(self, transfer, success):
        self.manager.complete_store(set(transfer[0]), transfer[1], success)

    @rule(request=consumes(running))
    def finish(self, request):
        self.manager.on_request_finished(request[1])

    @rule(parts=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def serve(self, parts):
        request = self.start(parts)
        self.written(self.store(request, 5), True)
        self.finish(request)

    @precondition(lambda self: self.policy.lru is None)
    @rule(where=st.sampled_from(["evict", "stored", "finished", "ready", "busy"]))
    def fail(self, where):
        setattr(self.policy.tier, where, lambda *_: 1 / 0)
        self.faults = 1

    @invariant()
    def nothing_is_lost(self):
        if hasattr(self, "policy"):
            assert len(self.policy.chunks) <= SIZE
            slots = [chunk.chunk_id for chunk in self.policy.chunks.values()]
            assert len(set(slots)) == len(slots)
            assert self.policy.chunks == self.policy.shadow.chunks
            free = sum(chunk.ref_cnt == 0 for chunk in self.policy.chunks.values())
            assert free == self.manager._num_evictable_cache_chunks
            assert self.policy.failures <= self.faults


Requests.TestCase.settings = settings(
    deadline=None, max_examples=150, stateful_step_count=60
)


class TestRequests(Requests.TestCase):
    """150 random runs of up to 60 steps."""

    @pytest.fixture(autouse=True)
    def time(self, environment):
        logging.getLogger("vllm.perc").setLevel(logging.ERROR)
        yield
        logging.getLogger("vllm.perc").setLevel(logging.NOTSET)


@pytest.mark.parametrize("policy", ["perc", "perc_decay"])
@pytest.mark.parametrize("seed", range(3))
def test_no_chunk_outlives_the_one_before_it(environment, policy, seed):
    environment("PERC_POLICY", policy)
    tier = Tier(64)
    for keys in agents(seed, rounds=12):
        tier.serve(keys)
        here = [tier.policy.get(key) is not None for key in keys]
        assert here == sorted(here, reverse=True)
    assert tier.victims and tier.policy.failures == 0


@pytest.mark.parametrize("seed", range(3))
def test_lru_is_vllms_lru_on_longer_traffic(environment, seed):
    environment("PERC_POLICY", "lru")
    ours, theirs = Tier(100), Tier(100, "lru")
    for keys in agents(seed):
        assert ours.serve(keys) == theirs.serve(keys)
    assert ours.victims == theirs.victims and len(ours.victims) > 1000


def hit_ratios(work, environment):
    """Of vLLM's own two policies and perc, in a tier of 128 chunks."""
    environment("PERC_POLICY", "perc")
    tiers = Tier(128, "lru"), Tier(128, "arc"), Tier(128)
    for keys in work:
        for tier in tiers:
            tier.serve(keys)
    assert tiers[-1].policy.lru is None
    return [tier.hit_ratio for tier in tiers]


def test_documents_in_turn(environment):
    lru, arc, perc = hit_ratios(cyclic(), environment)
    assert lru == arc == 0
    assert perc > 0.45


@pytest.mark.parametrize("seed", range(3))
def test_agents_among_chats(environment, seed):
    lru, arc, perc = hit_ratios(agents(seed), environment)
    assert perc > 2 * max(lru, arc)
    assert perc > 0.2


def test_the_same_twice(environment):
    environment("PERC_POLICY", "perc")
    runs = [Tier(96), Tier(96)]
    for tier in runs:
        for keys in agents(5, rounds=10):
            tier.serve(keys)
    assert runs[0].victims == runs[1].victims != []


# Hints.


def test_a_pinned_prompt_stays(environment):
    environment("PERC_POLICY", "perc")
    tier = Tier(64)
    pinned = chain(*"pinned")
    tier.serve(pinned, {"perc_pin": True})
    for keys in cyclic(rounds=2):
        tier.serve(keys)
    assert tier.here(pinned) == len(pinned)
    assert tier.policy.tier.cache.counters.holds_broken == 0


def test_pins_break_rather_than_block(environment):
    environment("PERC_POLICY", "perc")
    tier = Tier(16)
    for name in range(4):
        tier.serve(chain(*((name, i) for i in range(8))), {"perc_pin": True})
    assert tier.stored == 32
    assert tier.policy.tier.cache.counters.holds_broken == 16
    assert tier.policy.failures == 0


def test_priorities_come_through_kv_hints(environment):
    kv_hints = pytest.importorskip("vllm.v1.kv_hints")  # since 0.32
    environment("PERC_POLICY", "priority")
    tier = Tier(16)
    action = kv_hints.KvHintAction("1", "perc", "1", {"perc_priority": 5})
    dear = chain(*range(8))
    tier.serve(dear, kv_hints=kv_hints.KvHintsEnvelope("1", "m", [action]))
    for name in range(4):
        tier.serve(chain(*((name, i) for i in range(8))), {"perc_priority": 1})
    assert tier.here(dear) == 8


def test_facts_are_those_that_clients_give():
    context = context_of("r", [], {"perc_session": "s", "perc_turn": "3"})
    facts = offload_settings.OffloadFacts().facts(context, 64)
    assert (facts.session, facts.turn, facts.input_tokens) == ("s", 3, 64)
    assert not facts.preempted


# What is set, and what goes wrong.


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "PERC_POLICY is set"),
        ({"PERC_POLICY": "nonsense"}, "PERC_POLICY=nonsense"),
        (
            {"PERC_POLICY": "lru", "PERC_OFFLOAD_POLICY": "bad"},
            "PERC_OFFLOAD_POLICY=bad",
        ),
        ({"PERC_POLICY": "belady"}, "reads the future"),
        ({"PERC_POLICY": "perc", "PERC_CLOCK": "moon"}, "PERC_CLOCK=moon"),
    ],
)
def test_without_a_policy_that_does_it_is_lru(environment, caplog, given, said):
    for name, value in given.items():
        environment(name, value)
    logging.getLogger("vllm").propagate = True
    tier = Tier(32)
    (record,) = [r for r in caplog.records if r.name == "vllm.perc"]
    assert said in record.getMessage() and "keeps LRU" in record.getMessage()
    theirs = Tier(32, "lru")
    for keys in agents(0, rounds=3):
        assert tier.serve(keys) == theirs.serve(keys)
    assert tier.victims == theirs.victims != []


def test_the_tiers_own_variable_goes_first(environment):
    environment("PERC_POLICY", "lru")
    environment("PERC_OFFLOAD_POLICY", "lfu")
    assert Tier(8).policy.settings.policy.name == "lfu"


def test_an_untested_vllm_keeps_lru(environment, monkeypatch):
    environment("PERC_POLICY", "perc")
    monkeypatch.setattr(offload_settings, "installed", lambda: "0.99.0")
    assert Tier(8).policy.lru is not None


def test_a_failure_is_told_once(environment, caplog):
    environment("PERC_POLICY", "perc")
    logging.getLogger("vllm").propagate = True
    tier = Tier(32)
    work = list(agents(1, rounds=6))
    for keys in work[:30]:
        tier.serve(keys)
    tier.policy.tier.evict = lambda *_: 1 / 0
    for keys in work[30:]:
        tier.serve(keys)
    assert tier.policy.failures == 1
    warned = [r for r in caplog.records if "goes on in vLLM's own" in r.getMessage()]
    assert len(warned) == 1


def test_resetting_the_cache_forgets_everything(environment):
    environment("PERC_POLICY", "perc")
    tier = Tier(32)
    first = [tier.serve(keys) for keys in agents(2, rounds=3)]
    tier.manager.reset_cache()
    assert not tier.policy.chunks
    assert [tier.serve(keys) for keys in agents(2, rounds=3)] == first


def test_vllm_finds_the_class():
    found = CachePolicyFactory.get_cache_policy_cls(
        PERC["cache_policy"], PERC["cache_policy_module_path"]
    )
    assert found is vllm_offload.PercCachePolicy


# Admission.


def served(environment, admit, seed=0):
    environment("PERC_POLICY", "perc")
    environment("PERC_OFFLOAD_ADMIT", admit)
    tier = Tier(128, manager=PercOffloadingManager)
    for keys in agents(seed, rounds=60):
        tier.serve(keys)
    return tier


@pytest.mark.parametrize("seed", range(2))
def test_fewer_stores_and_as_many_hits(environment, seed):
    every, some = served(environment, "0", seed), served(environment, "0.3", seed)
    assert every.manager.admission is None
    assert some.stored < 0.5 * every.stored
    assert some.hits > 0.9 * every.hits
    assert some.manager.admission.refused > 0 and some.manager.failures == 0


@pytest.mark.parametrize("text", ["2", "-1", "many"])
def test_admission_that_is_no_share_stores_everything(environment, text):
    assert served(environment, text).stored == served(environment, "").stored


def test_admission_that_fails_stores_everything(environment):
    environment("PERC_POLICY", "perc")
    environment("PERC_OFFLOAD_ADMIT", "1")
    tier = Tier(128, manager=PercOffloadingManager)
    tier.manager.admission.stored = lambda *_: 1 / 0
    for keys in cyclic(rounds=2):
        tier.serve(keys)
    assert tier.manager.failures == 1 and tier.stored == 2 * 12 * 16


def test_the_spec_brings_manager_and_policy(environment):
    environment("PERC_POLICY", "perc")
    extra = {
        "cpu_bytes_to_use": 1 << 20,
        "spec_name": "PercOffloadingSpec",
        "spec_module_path": "perc.bridges.vllm_offload_spec",
    }
    config = OffloadingConfig(
        groups=(),
        worker_kv_bytes_per_block=1024,
        enable_kv_cache_events=False,
        extra_config=json.loads(json.dumps(extra)),
        engine_id="0",
        model=OffloadingModelConfig("tiny", "float32"),
        cache=OffloadingCacheConfig(16, 1),
        parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
    )
    manager = OffloadingSpecFactory.create_spec(config).get_manager()
    assert isinstance(manager, PercOffloadingManager)
    assert isinstance(manager._policy, vllm_offload.PercCachePolicy)
    assert manager._policy.settings.policy.name == "perc"
    assert manager._num_chunks > 0
