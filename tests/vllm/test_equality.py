"""The victims of vLLM with the bridge are those of `perc.step`; with lru, its own."""

from dataclasses import replace

import numpy as np
import pytest

from perc.policies.learned import HEADS, learned
from perc.policies.learned_key import lease_key
from perc.policies.registry import registry
from tests.bridges.traffic import (
    MOST_BLOCKS,
    differs_from_aged,
    random_trace,
    requests,
    simulated,
)
from tests.policies.test_learned import network
from tests.vllm.manager import BLOCK, Manager

WORKLOADS = 250  # of each policy
LEARNED = 25  # of each learned policy and head
CAPACITY = 20
STATIC = ["lru", "priority", "perc_decay"]


def served(policy, trace, capacity):
    """Victims as blocks of the trace, and hits in blocks, by vLLM's own manager.

    Every prompt has one token more than its blocks, as vLLM always computes the last
    one: so one block of the pool is in use for it, and has no content.
    """
    manager = Manager(capacity + 1, policy)
    block_of, hits = {}, []
    for r, (chain, facts, now_s) in enumerate(requests(trace)):
        hints = {
            "perc_session": facts.session,
            "perc_turn": facts.turn,
            "perc_kind": str(facts.kind),
            "perc_priority": facts.priority,
        }
        tokens = [block for block in chain for _ in range(BLOCK)] + [1_000_000 + r]
        request = manager.request(r, tokens, hints)
        manager.clock.now_s = now_s
        assert manager.start(request)
        hits.append(manager.hits[-1] // BLOCK)
        block_of |= dict(zip(request.block_hashes, chain, strict=True))
        manager.stop(request)
    assert manager.failures == 0
    return [block_of[name[:-4]] for name in manager.victims], hits


@pytest.mark.parametrize("name", STATIC)
def test_static_policies_take_the_victims_of_step(name):
    policy = registry[name]()
    for seed in range(WORKLOADS):
        trace = random_trace(seed, n=40)
        assert served(policy, trace, CAPACITY) == simulated(policy, trace, CAPACITY)


def as_sent(trace):
    """With the tokens that `served` has: one more of each prompt, and no answers."""
    none = np.zeros_like(trace.output_tokens)
    return replace(trace, input_tokens=trace.input_tokens + 1, output_tokens=none)


@pytest.mark.parametrize("head", HEADS)
def test_a_lease_key_takes_the_victims_of_step(head):
    policy = lease_key(network(head), 0.02)
    for seed in range(LEARNED):
        trace = as_sent(random_trace(seed, n=40))
        assert served(policy, trace, CAPACITY) == simulated(policy, trace, CAPACITY)


@pytest.mark.parametrize("head", HEADS)
def test_a_learned_policy_takes_the_victims_of_the_replay(head):
    policy, found = learned(network(head), guard=None), []
    for seed in range(LEARNED):
        trace = as_sent(random_trace(seed, n=60))
        victims, _ = served(policy, trace, CAPACITY)
        found.append(differs_from_aged(policy, trace, CAPACITY, victims))
    assert set(found) <= {None, "tie"}
    assert found.count("tie") <= LEARNED // 20


def test_perc_takes_the_victims_of_the_replay():
    """Past the first epochs, so that what was learned decides."""
    policy, found = registry["perc"](), []
    for seed in range(WORKLOADS):
        trace = random_trace(seed, n=100)
        victims, _ = served(policy, trace, CAPACITY)
        found.append(differs_from_aged(policy, trace, CAPACITY, victims))
    assert set(found) <= {None, "tie"}
    assert found.count("tie") <= WORKLOADS // 20


def test_lru_takes_the_victims_of_vllm():
    """Also with requests side by side, output, preemptions and prompts too large."""
    evicted = 0
    for seed in range(WORKLOADS):
        own, ours = concurrent(None, seed), concurrent(registry["lru"](), seed)
        assert (own.victims, own.hits) == (ours.victims, ours.hits)
        evicted += len(own.victims)
    assert evicted > 100 * WORKLOADS


def concurrent(policy, seed, n=80):
    """Up to four requests at a time that share prefixes, write, and are preempted."""
    rng = np.random.default_rng(seed)
    manager, running = Manager(24, policy), []
    for r in range(n):
        chain = rng.integers(0, 3, rng.integers(1, 2 * MOST_BLOCKS))
        tokens = [int(edge) for edge in chain for _ in range(BLOCK)]
        request = manager.request(r, tokens[: rng.integers(1, len(tokens) + 1)])
        while not manager.start(request) and running:
            manager.stop(running.pop(), preempted=True)
        running.append(request)
        if not manager.append(running[0], rng.integers(0, 9, 3).tolist()):
            manager.stop(running.pop(0), preempted=True)
        while len(running) > 3 or (running and rng.random() < 0.3):
            manager.stop(running.pop(int(rng.integers(len(running)))))
    assert manager.failures == 0
    return manager
