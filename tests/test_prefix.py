"""The radix tree against a dict of prefixes, step by step, and its rules one by one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import perc
from perc.errors import InputError
from perc.policies.registry import registry
from perc.prefix import RadixTree, Served
from perc.prefix_keys import Use
from perc.prefix_traces import trace_of_tokens
from tests.oracles.prefixes import Prefixes
from tests.strategies import chains

CAPACITY = 9
PROMPTS = st.lists(st.integers(0, 2), max_size=7).map(tuple)


def policy_of(kind):
    return None if kind == "lru" else registry[kind]()


class TreeMachine(RuleBasedStateMachine):
    """Both hear the same; locks are held across splits, uses and evictions."""

    @initialize(kind=st.sampled_from(["lru", "lfu", "fifo", "priority"]))
    def begin(self, kind):
        self.tree = RadixTree(CAPACITY, policy_of(kind))
        self.plain = Prefixes(kind)
        self.held = []

    @rule(prompt=PROMPTS, priority=st.integers(0, 2))
    def serve(self, prompt, priority):
        found = self.tree.serve(prompt, Use(priority=priority))
        assert found == self.plain.serve(prompt, priority, CAPACITY)

    @rule(prompt=PROMPTS, priority=st.integers(0, 2))
    def insert(self, prompt, priority):
        new = self.tree.insert(prompt, Use(priority=priority))
        assert new == self.plain.insert(prompt, priority)

    @rule(prompt=PROMPTS)
    def match(self, prompt):
        assert self.tree.match(prompt) == self.plain.match(prompt)

    @rule(prompt=PROMPTS)
    def lock(self, prompt):
        self.held.append(self.tree.lock(prompt))
        self.plain.lock(prompt)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unlock(self, data):
        at = data.draw(st.integers(0, len(self.held) - 1))
        self.tree.unlock(self.held.pop(at))
        self.plain.unlock(at)

    @rule(tokens=st.integers(0, 6))
    def evict(self, tokens):
        assert self.tree.evict(tokens) == self.plain.evict(tokens)

    @invariant()
    def same_prefixes(self):
        assert self.tree.prefixes() == self.plain.longest()
        assert self.tree.tokens == len(self.plain.known)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(deadline=None, max_examples=150, stateful_step_count=25)


def test_a_match_is_the_longest_common_prefix():
    draw = random.Random(14)
    for _ in range(1000):
        stored = [
            [draw.randrange(3) for _ in range(draw.randrange(9))] for _ in range(6)
        ]
        prompt = [draw.randrange(3) for _ in range(draw.randrange(9))]
        tree = RadixTree()
        for other in stored:
            tree.insert(other)
        longest = max(
            next(
                (i for i, (a, b) in enumerate(zip(p, prompt, strict=False)) if a != b),
                min(len(p), len(prompt)),
            )
            for p in stored
        )
        assert tree.match(prompt) == longest


@pytest.mark.parametrize("kind", ["lfu_in_cache", "lru_k", "mru"])
@settings(deadline=None, max_examples=15)
@given(chains(), st.integers(1, 12))
def test_online_scores_hit_what_the_online_engine_hits(kind, rows, capacity):
    tree = RadixTree(capacity, registry[kind]())
    matched = [tree.serve(row).matched for row in rows]
    trace = trace_of_tokens(rows, block_tokens=1)
    found = perc.replay_online(trace, registry[kind](), [capacity])
    assert found.blocks[0].tolist() == matched


@settings(deadline=None, max_examples=40)
@given(chains(), st.integers(0, 12))
def test_it_hits_what_the_block_cache_hits_with_blocks_of_one_token(rows, capacity):
    tree = RadixTree(capacity)
    matched = [tree.serve(row).matched for row in rows]
    trace = trace_of_tokens(rows, block_tokens=1)
    order = perc.ranks(trace, perc.scores(registry["lru"](), trace))
    assert perc.replay(trace, order, [capacity]).blocks[0].tolist() == matched
    assert tree.tally.asked == trace.n_accesses and tree.tally.matched == sum(matched)


def test_a_locked_path_never_leaves_and_its_tail_is_free_again_after():
    tree = RadixTree(5)
    tree.insert([1, 2, 3])
    first, second = tree.lock([1, 2]), tree.lock([1, 2, 3])
    assert tree.serve([7, 8, 9, 10]) == Served(matched=0, added=2, evicted=0)
    tree.unlock(second)
    assert tree.evict(99) == 3 and tree.prefixes() == [(1, 2)]
    tree.unlock(first)
    with pytest.raises(ValueError, match="not locked"):
        tree.unlock(first)
    assert tree.evict(99) == 2 and tree.tokens == 0 == tree.match([1])


def test_descendants_leave_before_ancestors():
    tree = RadixTree(policy=registry["filo"]())  # the newest use leaves first
    tree.insert([1, 2, 3, 4])
    tree.insert([1, 2])
    assert tree.evict(1) == 1
    assert tree.prefixes() == [(1, 2, 3)]


def test_a_prefix_is_used_whole_when_nothing_more_fits():
    tree = RadixTree(2)
    tree.insert([1, 2, 3])  # beyond the capacity, which binds `serve` alone
    tree.insert([9])
    held = [tree.lock([1, 2, 3]), tree.lock([9])]
    assert tree.serve([1, 2, 3, 4]) == Served(matched=3, added=0, evicted=0)
    for node in held:
        tree.unlock(node)
    tree.evict(1)
    assert tree.prefixes() == [(1, 2, 3)]  # all of it was used after 9


def test_along_a_chain_the_key_is_that_of_the_best_descendant():
    """As in `perc.step`: what leads to a valuable block is as valuable."""
    tree = RadixTree(policy=perc.Policy((), _depth, "deep", ("depth",), chain=True))
    for prompt in ([1, 2], [1, 2, 3], [5], [5, 6]):
        tree.insert(prompt)
    held = tree.lock([5, 6])  # worth 1
    tree.evict(1)  # 3, worth 2
    tree.unlock(held)
    tree.evict(1)
    assert tree.prefixes() == [(1, 2), (5,)]


def test_the_hit_ratio_is_matched_of_all_tokens():
    tree = RadixTree()
    assert tree.tally.hit_ratio == 0
    for prompt in ([1, 2, 3, 4], [1, 2, 3, 9], [1, 2, 3, 4]):
        tree.serve(prompt)
    assert tree.tally.hit_ratio == 7 / 12


def test_every_policy_that_scores_a_use_orders_a_tree():
    """And the rest is refused, with the way by which it runs."""
    served = []
    for name in registry:
        policy = registry[name]()
        rule = getattr(policy, "rule", None)
        live = rule is None or isinstance(rule, perc.Scored)
        live = live and not policy.clairvoyant
        if not live:
            with pytest.raises(InputError, match=r"trace_of_tokens"):
                RadixTree(4, policy)
            continue
        tree = RadixTree(4, policy)
        for i, prompt in enumerate([[1, 2, 3], [1, 4], [5], [1, 2, 6]]):
            tree.serve(prompt, Use(time_s=float(i), mean_gap_s=1.0))
            assert tree.tokens <= 4
        served.append(name)
    assert {"lfu", "fifo", "priority", "perc_decay", "gdsf", "lru_k"} <= set(served)
    assert len(served) >= 16
    with pytest.raises(InputError, match="remembers what has left"):
        RadixTree(4, registry["lru_k"](retained=True))


def test_the_clock_of_a_rule_is_the_highest_key_that_left():
    """GreedyDual ages by it: what was used three times leaves in the end."""
    tree = RadixTree(2, registry["gdsf"]())
    for token in (1, 1, 1, 2, 3, 4, 5):
        tree.serve([token])
    assert tree.prefixes() == [(4,), (5,)]


def test_a_score_that_is_no_number_is_refused():
    bad = perc.Policy((), _nan, "bad", ("priority",))
    with pytest.raises(InputError, match="bad: a score is not a number"):
        RadixTree(4, bad).insert([1])
    with pytest.raises(InputError, match="give 0 or more"):
        RadixTree(-1)


def _nan(params, features):
    return features.priority * float("nan")


def _depth(params, features):
    return features.depth
