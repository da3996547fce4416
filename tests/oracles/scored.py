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


def gdsf(cost=lambda block: 1, *, retained=False):
    """GreedyDual-Size-Frequency, blocks of one size."""
    count = _counter(retained)
    return lambda use: use.clock + count(use) * cost(use.block)


def landlord(refresh, cost=lambda block: 1):
    """Credit `cost` at first; a hit gives back the share `refresh` of what is spent."""
    keys = {}  # block -> clock when its credit was set + that credit

    def key(use):
        credit = full = cost(use.block)
        if use.resident:
            left = max(keys[use.block] - use.clock, 0)
            credit = left + refresh * (full - left)
        keys[use.block] = use.clock + credit
        return keys[use.block]

    return key


def mru():
    """The newest first."""
    return lambda use: -use.now


def override(priorities):
    """Priority of the last user."""
    return lambda use: priorities[use.now]


def t_lru(prompt_tokens, block_tokens, xi, q):
    """Last access, below all of them if the tail from this block on may be lost."""
    longest = {}  # prompt of the branch, for as long as the block is resident

    def key(use):
        before = longest[use.block] if use.resident else 0
        longest[use.block] = max(before, prompt_tokens[use.now])
        budget = max(longest[use.block] + q - xi, 0)
        safe = use.depth * block_tokens >= budget
        return use.now - 10**6 if safe else use.now

    return key


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


def _counter(retained=False):
    counts = {}

    def count(use):
        known = use.resident or (retained and use.block in counts)
        counts[use.block] = (counts[use.block] if known else 0) + 1
        return counts[use.block]

    return count
