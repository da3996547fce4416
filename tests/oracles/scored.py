"""Caches whose keys depend on what they did, in plain Python: a dict and a `min`.

A key function is asked once an access and gives the block's key; the lowest leaves
first, ties least recent first, then deepest first.
"""

from collections import defaultdict
from types import SimpleNamespace


def simulate(
    requests, capacity, key_of, *, evict_first=False, bypass=False, closed=False
):
    """Serves `requests`, lists of blocks, root first.

    Returns the leading resident blocks of each request, and the evicted blocks in
    order, one list a request. A block that is not stored counts as evicted.
    """
    cache = {}  # block -> (key, request, -depth)
    parent = {}
    for row in requests:
        parent.update(zip(row[1:], row, strict=False))
    clock, hits, victims = 0, [], []

    def evict_down_to(most):
        nonlocal clock
        gone = []
        while len(cache) > most:
            parents = {parent.get(block) for block in cache}
            candidates = [b for b in cache if not closed or b not in parents]
            victim = min(candidates, key=cache.__getitem__)
            clock = max(clock, cache.pop(victim)[0])
            gone.append(victim)
        return gone

    for now, blocks in enumerate(requests):
        resident = set(blocks) & set(cache)
        hits.append(
            next((i for i, b in enumerate(blocks) if b not in cache), len(blocks))
        )
        fits = len(blocks) if bypass else min(len(blocks), capacity)
        gone, before = [], clock
        if not bypass:  # the running request is out of the way of those that leave
            for block in resident:
                del cache[block]
            gone = evict_down_to(capacity - fits)
        for depth, block in enumerate(blocks):
            use = SimpleNamespace(
                block=block,
                depth=depth,
                now=now,
                clock=clock if evict_first else before,
                resident=block in resident,
            )
            key = key_of(use)
            if depth < fits:
                cache[block] = (key, now, -depth)
        if bypass:
            gone = evict_down_to(capacity)
        victims.append(gone + blocks[fits:])
    return hits, victims


def gds(cost=lambda block: 1):
    """GreedyDual-Size, blocks of one size."""
    return lambda use: use.clock + cost(use.block)


def gdsf(cost=lambda block: 1):
    """GreedyDual-Size-Frequency, blocks of one size."""
    count = _counter()
    return lambda use: use.clock + count(use) * cost(use.block)


def lfu_in_cache():
    """Uses since the block entered."""
    return _counter()


def slru_threshold(uses):
    """1 for blocks with enough uses since they entered."""
    count = _counter()
    return lambda use: int(count(use) >= uses)


def lru_k(k, *, retained=False):
    """Time of the k-th last use."""
    times = defaultdict(list)

    def key(use):
        if not use.resident and not retained:
            times[use.block] = []
        times[use.block].append(use.now)
        past = times[use.block]
        return past[-k] if len(past) >= k else float("-inf")

    return key


def _counter():
    counts = {}

    def count(use):
        counts[use.block] = (counts[use.block] if use.resident else 0) + 1
        return counts[use.block]

    return count
