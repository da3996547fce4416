"""What a server keeps up of its traffic: `perc.history` of the same trace."""

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.aged import aged_traffic, replay_rows
from perc.bridges import live_history
from perc.bridges.live_history import LiveHistory
from perc.bridges.orders import order_of
from perc.bridges.uses import Facts, Run, Use
from perc.guard import guarded
from perc.history import NAMES, history
from perc.policies.learned import HEADS, learned
from perc.policies.learned_key import lease_key
from perc.policies.registry import registry
from perc.traces.build import Columns, build_trace
from perc.types import Guard
from tests.bridges.engine import Engine
from tests.bridges.traffic import (
    BLOCK_TOKENS,
    MOST_BLOCKS,
    differs_from_aged,
    random_trace,
    requests,
    simulated,
    whole_blocks,
)
from tests.policies.test_learned import network
from tests.strategies import rows_of

KINDS = ("tool_use", "1:end_turn", "stop", "a:b:tool_calls", "tool", "unknown")
POLICIES = [
    *(learned(network(head), guard=None) for head in HEADS),
    *(lease_key(network(head), 0.02) for head in HEADS),
]
each_policy = pytest.mark.parametrize(
    "policy",
    POLICIES,
    ids=[f"{p.name}-{h}" for p, h in zip(POLICIES, 2 * HEADS, strict=True)],
)


class Watched(LiveHistory):
    """Remembers the row of each block, request by request."""

    def __init__(self, block_tokens):
        super().__init__(block_tokens)
        self.rows = []

    def finished(self, facts, runs, names, now_s):
        visit = super().finished(facts, runs, names, now_s)
        if runs and not facts.preempted:
            lengths = [run.stop - run.start for run in runs]
            self.rows.append(visit.rows[np.repeat(visit.row_of, lengths)])
        return visit


def watched(policy, trace, capacity, memory, chains=None):
    """The rows that the live order of a policy has seen, and the engine."""
    order: Any = order_of(policy, capacity, BLOCK_TOKENS, memory=memory)
    order._history = Watched(BLOCK_TOKENS)
    engine = Engine(order, capacity)
    for r, (chain, facts, now_s) in enumerate(requests(trace)):
        facts = facts._replace(kind_name=trace.kinds[trace.kind[r]])
        if trace.sessions_inferred:
            facts = facts._replace(session=None, turn=None)
        engine.serve(chain if chains is None else chains[r], facts, now_s)
    return order._history.rows, engine


def worded(trace):
    """With kinds as servers name them."""
    return replace(trace, kinds=tuple(KINDS[: len(trace.kinds)]))


@settings(deadline=None, max_examples=30)
@given(trace=whole_blocks().map(worded), capacity=st.integers(MOST_BLOCKS, 16))
def test_rows_are_those_of_the_trace(trace, capacity):
    rows, _ = watched(POLICIES[0], trace, capacity, trace.n_blocks)
    found = np.concatenate(rows)
    np.testing.assert_array_equal(found, history(trace), err_msg=str(NAMES))


@settings(deadline=None, max_examples=30)
@given(trace=whole_blocks(), capacity=st.integers(MOST_BLOCKS, 16))
def test_sessions_that_nobody_names_are_inferred_as_of_a_trace(trace, capacity):
    columns = Columns(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        ids=trace.block,
        lengths=trace.stop - trace.start,
    )
    inferred = build_trace(columns, block_tokens=BLOCK_TOKENS, source="unnamed")
    assert inferred.sessions_inferred
    rows, _ = watched(POLICIES[0], inferred, capacity, inferred.n_blocks)
    np.testing.assert_array_equal(np.concatenate(rows), history(inferred))


@settings(deadline=None, max_examples=30)
@given(trace=whole_blocks(), data=st.data())
def test_answers_count_once_a_prompt_contains_them(trace, data):
    """Engines cache them; the trace of a server has prompts only."""
    long = rows_of(trace, trace.block)
    cut = [data.draw(st.integers(0, len(row))) for row in long]
    asked = [row[:n] for row, n in zip(long, cut, strict=True)]
    shorter = build_trace(
        Columns(
            arrival_s=trace.arrival_s,
            input_tokens=np.array(cut) * BLOCK_TOKENS + 1,
            output_tokens=trace.output_tokens,
            ids=np.array([b for row in asked for b in row], np.int64),
            lengths=np.array(cut),
            session=trace.session.tolist(),
        ),
        block_tokens=BLOCK_TOKENS,
        source="prompts",
    )
    names = {b: i for i, b in enumerate(dict.fromkeys(b for r in asked for b in r))}
    chains = [[names.get(b, ~b) for b in row] for row in long]
    rows, _ = watched(POLICIES[0], shorter, 12, trace.n_blocks, chains)
    made = [row[:n] for row, n in zip(rows, cut, strict=True)]
    np.testing.assert_array_equal(np.concatenate(made), history(shorter))


@settings(deadline=None, max_examples=30)
@given(trace=whole_blocks(), data=st.data())
def test_a_preemption_is_no_use(trace, data):
    order: Any = order_of(POLICIES[0], 12, BLOCK_TOKENS, memory=trace.n_blocks)
    order._history = Watched(BLOCK_TOKENS)
    engine = Engine(order, 12)
    for chain, facts, now_s in requests(trace):
        for _ in range(data.draw(st.integers(0, 2))):
            ids = engine.start(chain, now_s)
            engine.stop(ids, facts._replace(preempted=True), now_s)
        engine.serve(chain, facts, now_s)
    np.testing.assert_array_equal(np.concatenate(order._history.rows), history(trace))


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(live_history, "SESSIONS", 7)
    monkeypatch.setattr(live_history, "NAMED", 3)
    server = LiveHistory(BLOCK_TOKENS)
    monkeypatch.setattr(server, "_recent", deque(maxlen=5))
    use = None
    for n in range(100):
        facts = Facts(session=n, input_tokens=BLOCK_TOKENS, output_tokens=1)
        runs = [Run(0, 1, use)]
        visit = server.finished(facts, runs, ["a"], 0.1 * n)
        sessions = visit.rows[0, NAMES.index("sessions")]
        assert sessions == np.float32(np.log2(2 + n))
        use = Use([0], ["a"], 0, 0.1 * n, 1)
        use.past = visit.past(runs[0], ["a"])
    assert use is not None and use.past is not None
    assert len(use.past.sessions) == 3 and use.past.more == 97
    assert len(server._sessions) == 7 and len(server._recent) == 5


@each_policy
def test_victims_are_those_of_the_replay(policy):
    found = []
    for seed in range(10):
        trace = worded(random_trace(seed, n=120))
        _, engine = watched(policy, trace, 20, trace.n_blocks)
        if policy.name == "lease_key":
            same = (engine.victims, engine.hits) == simulated(policy, trace, 20)
            found.append(None if same else "other victims")
        else:
            found.append(differs_from_aged(policy, trace, 20, engine.victims))
    assert set(found) <= {None, "tie"}, found
    assert found.count("tie") <= 2


def guarded_hits(policy, trace, capacity):
    """By `perc.online_aged.replay_guarded`, and which requests the policy served."""
    found = replay_rows(trace, policy, [capacity], aged_traffic(trace, policy))
    return found.blocks[0].tolist(), found.trusted[0].tolist()


GUARDS = [Guard(), Guard(0.3, 0.02, 0.5, 0.3), Guard(share=0, memory=0.1)]


@pytest.mark.parametrize("policy", [POLICIES[0], registry["perc"]()])
def test_a_guard_trusts_the_policy_when_the_replay_does(policy):
    found = set()
    for seed, guard in enumerate(GUARDS):
        trace, policy = random_trace(seed, n=120), guarded(policy, guard)
        order: Any = order_of(policy, 20, BLOCK_TOKENS, memory=trace.n_blocks)
        engine, trusted = Engine(order, 20), []
        for chain, facts, now_s in requests(trace):
            trusted.append(order.guard.trusts)
            engine.serve(chain, facts, now_s)
        assert (engine.hits, trusted) == guarded_hits(policy, trace, 20)
        found |= set(trusted)
    assert found == {True, False}


@pytest.mark.parametrize("head", HEADS)
def test_few_rows_get_the_classes_that_many_get(head):
    chat = history(perc.make("chat", requests=300))
    net = network(head)
    found = [net.classes_of_few(chat[i : i + 5]) for i in range(0, len(chat), 5)]
    np.testing.assert_array_equal(np.concatenate(found), net.classes(chat))


def test_history_is_kept_for_those_who_read_it():
    """One that others never ask would cost time and memory."""
    reader: Any = order_of(lease_key(network(), 0.1), 8, 4)
    other: Any = order_of(registry["perc_decay"](), 8, 4)
    assert reader._history is not None and other._history is None
