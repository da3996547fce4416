"""What does the bridge cost? vLLM's KV cache manager, driven without a model.

Requests of 1,032 tokens, 65 blocks of 16, in a pool under constant eviction: half of
them extend one of 64 conversations, half are new. Each policy runs beside vLLM as it
is, in turns, in the same process; figures are medians over rounds, microseconds of CPU
a request, and the ratio to vLLM's own. Pools are filled and policies have learned from
3,000 requests or more before; then the heap is frozen, as vLLM's engine freezes it.

    PYTHONPATH=. python benchmarks/vllm_overhead.py --blocks 10000 100000
"""

import argparse
import gc
import random
import statistics
import time

from perc.policies.registry import registry
from tests.vllm import manager as m

TOKENS, SESSIONS = 1032, 64


class Run:
    """One pool and its traffic."""

    def __init__(self, blocks, policy, seed=0):
        self.manager = m.Manager(blocks, policy, stale_s=0.5, record=False)
        self.rng = random.Random(seed)
        self.sessions = [self._prompt() for _ in range(SESSIONS)]
        self.number = 0
        self.alloc_s, self.free_s = [], []

    def _prompt(self):
        base = self.rng.randrange(1 << 40)
        return [base + i // m.BLOCK for i in range(TOKENS)]

    def _next(self):
        self.number += 1
        if self.number % 2:
            return self._prompt()
        which = self.rng.randrange(SESSIONS)
        kept = self.sessions[which][: self.rng.randrange(0, TOKENS, m.BLOCK)]
        self.sessions[which] = kept + self._prompt()[len(kept) :]
        return self.sessions[which]

    def serve(self, n):
        """Serves `n` requests, and notes what allocation and release took."""
        requests = []
        for _ in range(n):
            requests.append(self.manager.request(self.number, self._next()))
        alloc = free = 0.0
        for request in requests:
            self.manager.clock.now_s += 0.05
            start = time.process_time()
            assert self.manager.start(request)
            middle = time.process_time()
            self.manager.stop(request)
            free += time.process_time() - middle
            alloc += middle - start
        self.alloc_s.append(alloc / n)
        self.free_s.append(free / n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--policies", nargs="+", default=["lru", "perc", "perc_decay"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=300, help="a round")
    given = parser.parse_args()
    m.set_block_tokens(16)
    print(f"{'blocks':>8} {'policy':<12} {'alloc us':>9} {'free us':>8} {'ratio':>6}")
    for blocks in given.blocks:
        names = ["vLLM's own", *given.policies]
        runs = [
            Run(blocks, None),
            *(Run(blocks, registry[n]()) for n in given.policies),
        ]
        for run in runs:
            run.serve(max(2 * blocks // 65, 3000))
            run.alloc_s, run.free_s = [], []
        gc.collect()
        gc.freeze()
        for _ in range(given.rounds):
            for run in runs:
                run.serve(given.requests)
        gc.unfreeze()
        own = None
        for name, run in zip(names, runs, strict=True):
            alloc, free = map(statistics.median, (run.alloc_s, run.free_s))
            own = own or alloc + free
            print(
                f"{blocks:>8} {name:<12} {1e6 * alloc:>9.1f} {1e6 * free:>8.1f} "
                f"{(alloc + free) / own:>6.2f}"
            )


if __name__ == "__main__":
    main()
