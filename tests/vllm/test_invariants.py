"""Whatever requests do, the pool stays sound: vLLM under random operations."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from vllm.v1.request import RequestStatus

from perc.policies.registry import registry
from tests.vllm import laws
from tests.vllm.manager import BLOCK, Manager

USABLE = 14
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)
hints = st.sampled_from(
    [None, {"perc_priority": 3}, {"perc_hold_s": 5}, {"perc_pin": True, "perc_turn": 2}]
)


class Pool(RuleBasedStateMachine):
    """Requests come, write, are preempted, end late, and the cache is reset."""

    policy = "perc"

    def __init__(self):
        super().__init__()
        self.manager = Manager(USABLE, registry[self.policy]())
        self.running, self.late, self.parent = [], [], {}
        self.number = 0
        self.emptied = set()  # free blocks that a reset has left without a hash

    def _learn(self, request):
        hashes = request.block_hashes
        self.parent |= dict(zip(hashes[1:], hashes, strict=False))

    @rule(chain=prompts, cut=st.integers(0, BLOCK - 1), hint=hints)
    def start(self, chain, cut, hint):
        tokens = [edge for edge in chain for _ in range(BLOCK)]
        request = self.manager.request(
            self.number, tokens[: len(tokens) - cut] + [7], hint
        )
        self.number += 1
        self._learn(request)
        order = self.manager.queue.get_all_free_blocks()
        if self.manager.start(request):
            self.running.append(request)
            (ids,) = self.manager.kv.get_block_ids(request.request_id)
            found = self.manager.hits[-1] // BLOCK
            laws.the_listed_leave(order, ids[found:], set(ids[:found]))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 2), min_size=1, max_size=6))
    def write(self, data, tokens):
        request = data.draw(st.sampled_from(self.running))
        if not self.manager.append(request, tokens):
            self.running.remove(request)
            self.manager.stop(request, preempted=True)
        self._learn(request)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), preempted=st.booleans())
    def stop(self, data, preempted):
        request = data.draw(st.sampled_from(self.running))
        self.running.remove(request)
        self.manager.stop(request, preempted=preempted)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def stop_late(self, data):
        """As under asynchronous scheduling: the blocks come back some steps later."""
        request = data.draw(st.sampled_from(self.running))
        self.running.remove(request)
        request.status = RequestStatus.FINISHED_STOPPED
        self.manager.listener.released(self.manager.kv, request)
        self.late.append(self.manager.kv.pop_blocks_for_free(request))

    @precondition(lambda self: self.late)
    @rule()
    def come_back(self):
        self.manager.pool.free_blocks(reversed(self.late.pop(0)))

    @rule(seconds=st.sampled_from([0.0, 1.0, 30.0]))
    def wait(self, seconds):
        self.manager.clock.now_s += seconds

    @rule()
    def reset(self):
        if self.manager.kv.reset_prefix_cache():
            self.emptied = {b.block_id for b in self.manager.pool.blocks}

    @invariant()
    def the_pool_is_sound(self):
        self.emptied -= {b.block_id for b in self.manager.pool.blocks if b.ref_cnt}
        order = self.manager.queue.get_all_free_blocks()
        laws.free_is_what_nobody_uses(self.manager, order)
        laws.blocks_without_a_hash_leave_first(order, self.emptied)
        laws.no_cached_block_has_lost_its_parent(self.manager, self.parent)
        laws.the_list_reads_as_vllm_sets_it(self.manager.queue, order)


@pytest.mark.parametrize("name", ["lru", "perc", "perc_decay", "priority"])
def test_the_pool_stays_sound(name):
    machine = type("Pool", (Pool,), {"policy": name})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=40, stateful_step_count=40, deadline=None),
    )
