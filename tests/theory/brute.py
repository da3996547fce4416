"""The best that any cache can do, by trying all contents; and Landlord in fractions."""

from fractions import Fraction
from itertools import combinations


def contents(blocks, capacity, size):
    """Every subset that fits."""
    blocks = sorted(blocks)
    for k in range(len(blocks) + 1):
        for chosen in combinations(blocks, k):
            if sum(size[b] for b in chosen) <= capacity:
                yield frozenset(chosen)


def most_hits(requests, capacity, weight, *, bypass, chained=True):
    """The largest total weight of hits, over all ways to run a cache of equal blocks.

    A hit is a leading run of resident blocks, or any resident block if not `chained`.
    Without `bypass` the cache holds a request, or its first blocks, once it is served.
    """
    one = dict.fromkeys((b for row in requests for b in row), 1)
    best = {frozenset(): 0}
    for row in requests:
        must = frozenset() if bypass else frozenset(row[:capacity])
        after = {}
        for held, gain in best.items():
            for block in row:
                if block in held:
                    gain += weight[block]
                elif chained:
                    break
            for kept in contents(held | set(row), capacity, one):
                if must <= kept:
                    after[kept] = max(after.get(kept, 0), gain)
        best = after
    return max(best.values())


def least_cost(ids, capacity, cost, size, *, bypass):
    """The least that loading objects costs; with `bypass` one need not be stored."""
    best = {frozenset(): 0}
    for wanted in ids:
        after = {}
        for held, paid in best.items():
            paid += 0 if wanted in held else cost[wanted]
            for kept in contents(held | {wanted}, capacity, size):
                if bypass or wanted in kept:
                    after[kept] = min(after.get(kept, paid), paid)
        best = after
    return min(best.values())


def landlord(ids, capacity, cost, size, *, bypass):
    """What GreedyDual-Size pays: credit = L + cost / size, L = the last victim's."""
    cache, clock, paid = {}, Fraction(0), 0  # object -> (credit, last use)

    def shrink_to(room):
        nonlocal clock
        while sum(size[b] for b in cache) > room:
            victim = min(cache, key=cache.__getitem__)
            clock = cache.pop(victim)[0]

    for now, wanted in enumerate(ids):
        if wanted not in cache:
            paid += cost[wanted]
            if not bypass:
                shrink_to(capacity - size[wanted])
        cache[wanted] = (clock + Fraction(cost[wanted], size[wanted]), now)
        shrink_to(capacity)
    return paid
