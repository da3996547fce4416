"""Does a policy inside vLLM stay sound, small and quick over many requests?

vLLM's KV cache manager without a model, a pool under constant eviction, requests side
by side that share prefixes, write, are preempted, carry hints. After each `--window` of
them: resident memory, the share of prompt tokens hit, and the time to allocate and to
free, median, p99 and the longest, in microseconds of CPU. After every request the laws
of the pool are checked (`tests/vllm/laws.py`), outside of the times.

    PYTHONPATH=. python benchmarks/vllm_soak.py --requests 1000000
    PYTHONPATH=. python benchmarks/vllm_soak.py --minutes 60
"""

import argparse
import random
import time

import numpy as np

from perc.policies.registry import registry
from tests.vllm import laws
from tests.vllm import manager as m

BLOCKS, AT_ONCE, SESSIONS = 2_000, 16, 400
BLOCK, LONGEST = 16, 24  # tokens of a block; blocks of a prompt
NAMES = 50_000  # hashes whose parents are known before the evicted are forgotten


def prompts(rng):
    """Prompts of sessions that grow, end and begin anew, and of one-shots."""
    sessions = {}
    fresh = iter(range(10**12))
    while True:
        if rng.random() < 0.3:
            chain = [next(fresh) for _ in range(rng.randint(1, LONGEST))]
        else:
            key = rng.randrange(SESSIONS)
            chain = sessions.get(key, [])
            if len(chain) > LONGEST - 4:
                chain = []
            chain = chain + [next(fresh) for _ in range(rng.randint(1, 4))]
            sessions[key] = chain
        tokens = [edge for edge in chain for _ in range(BLOCK)]
        yield tokens + [0] * rng.randrange(BLOCK)  # the last block may be partial


def hint(rng):
    """What a client says, now and then."""
    draw = rng.random()
    if draw < 0.05:
        return {"perc_hold_s": rng.randint(1, 20), "perc_kind": f"k{rng.randrange(20)}"}
    return {"perc_priority": rng.randrange(3)} if draw < 0.2 else None


class Laws:
    """Checks the pool; knows the parent of every hash that may be in it."""

    def __init__(self, manager):
        self.manager, self.parent = manager, {}

    def learn(self, request, running):
        """The request has these hashes, root first."""
        hashes = request.block_hashes
        self.parent |= dict(zip(hashes[1:], hashes, strict=False))
        if len(self.parent) > NAMES:
            names = laws.cached_names(self.manager).union(
                hashes, *(other.block_hashes for other in running)
            )
            self.parent = {k: v for k, v in self.parent.items() if k in names}

    def check(self, running):
        """Raises AssertionError if one does not hold."""
        order = self.manager.queue.get_all_free_blocks()
        laws.free_is_what_nobody_uses(self.manager, order)
        laws.blocks_without_a_hash_leave_first(order)
        laws.no_cached_block_has_lost_its_parent(self.manager, self.parent)
        counts = [b.ref_cnt for b in self.manager.pool.blocks if not b.is_null]
        assert max(counts) <= len(running)


def resident_mb():
    """Memory of this process, MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def soak(name, requests, minutes, window, seed):
    """Serves until either is reached; prints a line a window."""
    rng = random.Random(seed)
    manager = m.Manager(BLOCKS, registry[name](), stale_s=0.5, record=False)
    pool = Laws(manager)
    source, running, shares = prompts(rng), [], []
    alloc, free = np.zeros(window), np.zeros(window)
    end = time.monotonic() + 60 * minutes
    print(
        f"{'requests':>10} {'MB':>7} {'hit':>6} {'alloc p50':>10} {'p99':>7} {'max':>8}"
        f" {'free p50':>9} {'p99':>7} {'max':>8}"
    )
    for number in range(requests):
        manager.clock.now_s += rng.expovariate(20)
        request = manager.request(number, next(source), hint(rng))
        asked = request.num_tokens
        start = time.process_time()
        served = manager.start(request)
        alloc[number % window] = time.process_time() - start
        if served:
            running.append(request)
            shares.append(manager.hits.pop() / asked)
            answer = [1] * rng.randint(1, 2 * BLOCK)
            if rng.random() < 0.3 and not manager.append(request, answer):
                running.remove(request)
                manager.stop(request, preempted=True)
        if len(running) >= AT_ONCE or not served:
            leaving = running.pop(rng.randrange(len(running)))
            start = time.process_time()
            manager.stop(leaving, preempted=rng.random() < 0.02)
            free[number % window] = time.process_time() - start
        pool.learn(request, running)
        pool.check(running)
        if (number + 1) % window == 0:
            micros = [
                1e6 * np.quantile(x, q) for x in (alloc, free) for q in (0.5, 0.99, 1)
            ]
            print(
                f"{number + 1:>10,} {resident_mb():>7.0f} {np.mean(shares):>6.3f}"
                f" {micros[0]:>10.1f} {micros[1]:>7.1f} {micros[2]:>8.1f}"
                f" {micros[3]:>9.1f} {micros[4]:>7.1f} {micros[5]:>8.1f}",
                flush=True,
            )
            shares.clear()
            if time.monotonic() > end:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="perc")
    parser.add_argument("--requests", type=int, default=10**12)
    parser.add_argument("--minutes", type=float, default=10**6)
    parser.add_argument("--window", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.requests == 10**12 and given.minutes == 10**6:
        given.minutes = 1.0
    m.set_block_tokens(BLOCK)
    soak(given.policy, given.requests, given.minutes, given.window, given.seed)


if __name__ == "__main__":
    main()
