"""What does the bridge add to a step of vLLM's scheduler?

vLLM's own `Scheduler` without a model: it schedules, a made-up output says that every
request that could has written a token, the scheduler takes it in. Requests of 1,032
tokens and 16 of answer, half of them the next of one of 64 conversations, 16 at a time,
in a pool under constant eviction. Each policy beside vLLM as it is, in turns, in one
process; medians over rounds of microseconds of CPU a step, and the ratio to vLLM's own.

    PYTHONPATH=. python benchmarks/vllm_step.py --blocks 10000 100000
"""

import argparse
import gc
import os
import random
import statistics
import time

from tests.vllm import tiny

os.environ.update(tiny.ENVIRONMENT)  # before vLLM is imported

from vllm.v1.core import block_pool  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402
from vllm.v1.kv_cache_interface import (  # noqa: E402
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402
from vllm.v1.structured_output import StructuredOutputManager  # noqa: E402

from perc.bridges.settings import Settings  # noqa: E402
from perc.bridges.vllm_queue import PolicyQueue  # noqa: E402
from perc.bridges.vllm_release import Listener, heard  # noqa: E402
from perc.policies.registry import registry  # noqa: E402
from tests.vllm import manager as m  # noqa: E402

BLOCK, TOKENS, ANSWER, SESSIONS, AT_ONCE = 16, 1032, 16, 64, 16


class Server:
    """A scheduler and its traffic; `policy` None leaves vLLM as it is."""

    def __init__(self, config, blocks, policy):
        self.now_s = 0.0
        spec = FullAttentionSpec(
            block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=m.torch.float32
        )
        kv = KVCacheConfig(
            num_blocks=blocks + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        listener = None
        if policy is not None:
            settings = Settings(policy, lambda: self.now_s, lambda: None, 0.5)
            listener = Listener(settings)
            block_pool.FreeKVCacheBlockQueue = lambda b: PolicyQueue(b, settings, STOCK)
        grammars = StructuredOutputManager(config)
        try:
            self.scheduler = Scheduler(config, kv, grammars, BLOCK)
        finally:
            block_pool.FreeKVCacheBlockQueue = STOCK
        manager = self.scheduler.kv_cache_manager
        if listener is not None:
            told = heard(type(manager).free, listener)
            manager.free = lambda request: told(manager, request)
        self.rng = random.Random(0)
        self.sessions = [self._prompt() for _ in range(SESSIONS)]
        self.number = 0
        self.steps_s = []

    def _prompt(self):
        base = self.rng.randrange(1 << 40)
        return [base + i // BLOCK for i in range(TOKENS)]

    def _next(self):
        self.number += 1
        if self.number % 2:
            return self._prompt()
        which = self.rng.randrange(SESSIONS)
        kept = self.sessions[which][: self.rng.randrange(0, TOKENS, BLOCK)]
        self.sessions[which] = kept + self._prompt()[len(kept) :]
        return self.sessions[which]

    def serve(self, n):
        """So many steps; notes what one took."""
        spent = 0.0
        scheduler = self.scheduler
        for _ in range(n):
            while len(scheduler.requests) < AT_ONCE:
                scheduler.add_request(asked(self.number, self._next()))
            self.now_s += 0.02
            start = time.process_time()
            plan = scheduler.schedule()
            spent += time.process_time() - start
            output = written(scheduler, plan)
            start = time.process_time()
            scheduler.update_from_output(plan, output)
            spent += time.process_time() - start
        self.steps_s.append(spent / n)


STOCK = block_pool.FreeKVCacheBlockQueue


def asked(number, tokens):
    """A request that writes `ANSWER` tokens."""
    params = m.SamplingParams(max_tokens=ANSWER, ignore_eos=True)
    params.update_from_generation_config({}, eos_token_id=None)
    return m.Request(
        request_id=str(number),
        prompt_token_ids=list(tokens),
        sampling_params=params,
        pooling_params=None,
        block_hasher=m.kv_cache_utils.get_request_block_hasher(BLOCK, m.sha256),
    )


def written(scheduler, plan):
    """A token of every request whose prompt is computed."""
    ids = list(plan.num_scheduled_tokens)
    done = [
        scheduler.requests[i].num_computed_tokens >= scheduler.requests[i].num_tokens
        for i in ids
    ]
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={name: i for i, name in enumerate(ids)},
        sampled_token_ids=[[7] if ready else [] for ready in done],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--policies", nargs="+", default=["lru", "perc", "perc_decay"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=300, help="a round")
    given = parser.parse_args()
    engine = tiny.engine(64, block_size=BLOCK * 2, max_num_seqs=AT_ONCE)
    config = engine.llm_engine.vllm_config
    print(f"{'blocks':>8} {'policy':<12} {'step us':>9} {'ratio':>6}")
    for blocks in given.blocks:
        names = ["vLLM's own", *given.policies]
        made = [None, *(registry[name]() for name in given.policies)]
        servers = [Server(config, blocks, policy) for policy in made]
        for server in servers:
            server.serve(max(2 * blocks // 65, 3000))
            server.steps_s = []
        gc.collect()
        gc.freeze()
        for _ in range(given.rounds):
            for server in servers:
                server.serve(given.steps)
        gc.unfreeze()
        own = statistics.median(servers[0].steps_s)
        for name, server in zip(names, servers, strict=True):
            step_s = statistics.median(server.steps_s)
            print(f"{blocks:>8} {name:<12} {1e6 * step_s:>9.1f} {step_s / own:>6.2f}")


if __name__ == "__main__":
    main()
