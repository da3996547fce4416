"""A cache under retention rules in plain Python: every claim is kept and asked again.

The rules of TensorRT-LLM's retention priorities, of soft deadlines released in order
under pressure, of pins within a budget and of quotas, as docs/retention.md states them.
Nothing is merged ahead of time: who used a block, and what each asked for, is looked at
whenever a victim is chosen.
"""

import itertools
from dataclasses import dataclass, field

DEFAULT = 35
FOREVER = float("inf")


@dataclass
class Ask:
    """What one request asks for one of its blocks, those of deeper ones included."""

    # One list of (priority, end) for the block and for each one after it.
    priorities: list[list[tuple[int, float]]]
    deadlines: list[float]
    pin: bool
    tenant: str

    def level(self, ended) -> int:
        return max(
            max((DEFAULT if ended(end) else p for p, end in claims), default=DEFAULT)
            for claims in self.priorities
        )


@dataclass
class Result:
    hits: list[int] = field(default_factory=list)
    victims: list[list[int]] = field(default_factory=list)  # by request, in order
    unstored: int = 0
    refused: list[int] = field(default_factory=list)
    early: int = 0  # victims whose deadline had not come
    charged: list[int] = field(default_factory=list)  # of the tenant, afterwards
    # Block-seconds of resident blocks, each for one of these, the first that fits.
    held: dict[str, float] = field(
        default_factory=lambda: dict(pin=0.0, ttl=0.0, priority=0.0)
    )


def simulate(
    requests,
    arrivals,
    asks,
    score,
    *,
    capacity,
    budget,
    quotas,
    override=False,
    bypass=False,
    refresh=True,
    chain=False,
):
    """Serves requests, lists of blocks; asks[r][d] is an `Ask`.

    `score(r, d, time, request)` is the base policy's score of the block at depth d of
    request r, were it used at that time, just before or at that request.
    """
    result = Result()
    cache, pinned = set(), set()
    users = {}  # block -> asks, in order of use
    last_use = {}  # block -> (r, d)
    parent, worth, key = {}, {}, {}
    moment, seen_until = 0, -1.0

    def level(block, ended):
        asking = users[block][-1:] if override else users[block]
        return max(ask.level(ended) for ask in asking)

    def deadline(block, now):
        latest = max(
            (end for ask in users[block] for end in ask.deadlines), default=-FOREVER
        )
        return latest if latest > now else -FOREVER

    def owner(block):
        names = {ask.tenant for ask in users[block]}
        return names.pop() if len(names) == 1 else None

    def charge(name, stored):
        return sum(owner(block) == name for block in stored)

    def hold(begin, end):
        """What is protected from one arrival to the next, in steps between ends."""
        asking = [ask for some in users.values() for ask in some]
        ends = {e for ask in asking for claims in ask.priorities for _, e in claims}
        ends |= {e for ask in asking for e in ask.deadlines}
        steps = [begin, *sorted(e for e in ends if begin < e < end), end]
        for low, high in itertools.pairwise(steps):
            for block in cache:
                if block in pinned:
                    why = "pin"
                elif deadline(block, low) > low:
                    why = "ttl"
                elif level(block, lambda until, low=low: until <= low) > DEFAULT:
                    why = "priority"
                else:
                    continue
                result.held[why] += high - low

    def value(block, raw):
        if chain:
            worth[block] = max(worth.get(block, -FOREVER), raw)
            if parent[block] is not None:
                above = worth.get(parent[block], -FOREVER)
                worth[parent[block]] = max(above, worth[block])
            return worth[block]
        return raw

    def end_priorities(now, r):
        nonlocal moment
        ends = {
            end
            for asking in users.values()
            for ask in asking
            for claims in ask.priorities
            for _, end in claims
            if seen_until < end <= now
        }
        for end in sorted(ends):
            moment += 1
            for block in sorted(users, key=lambda b: -last_use[b][1]):
                before = level(block, lambda until, end=end: until < end)
                after = level(block, lambda until, end=end: until <= end)
                if after < before and refresh:
                    q, d = last_use[block]
                    key[block] = (value(block, score(q, d, end, r)), moment, -d, q)

    def victim_of(candidates, stored, now):
        def order(block):
            name = owner(block)
            over = name in quotas and charge(name, stored) > quotas[name]
            priority = level(block, lambda until: until <= now)
            return (not over, deadline(block, now), priority, key[block])

        if override:
            busy = {parent[block] for block in stored}
            candidates = [block for block in candidates if block not in busy]
        return min(candidates, key=order)

    for r, (blocks, now) in enumerate(zip(requests, arrivals, strict=True)):
        if r:
            hold(seen_until, now)
        end_priorities(now, r)
        seen_until = now
        moment += 1
        hit = 0
        while hit < len(blocks) and blocks[hit] in cache:
            hit += 1
        result.hits.append(hit)
        for d in reversed(range(len(blocks))):
            block = blocks[d]
            parent[block] = blocks[d - 1] if d else None
            users.setdefault(block, []).append(asks[r][d])
            last_use[block] = r, d
            raw = score(r, d, now, r)
            new = (value(block, raw), moment, -d, r)
            if refresh or block not in cache:
                key[block] = new
        mine = [block for block in blocks if block in pinned]
        others = cache - set(blocks)
        room = capacity - len(pinned - set(blocks))
        stored = set(blocks if bypass else blocks[: min(len(blocks), room)])
        refused = 0
        for block, ask in zip(blocks, asks[r], strict=True):
            if ask.pin and block not in pinned:
                if block in stored and len(pinned) < budget:
                    pinned.add(block)
                else:
                    refused += 1
        assert mine == blocks[: len(mine)]
        result.refused.append(refused)
        gone = []
        cache = others | stored
        while len(cache) > capacity:
            pool = cache - pinned if bypass else cache - pinned - set(blocks)
            victim = victim_of(pool, cache, now)
            result.early += deadline(victim, now) > now
            cache.remove(victim)
            gone.append(victim)
        result.unstored += len(blocks) - len(stored)
        result.victims.append(gone)
        tenant = asks[r][0].tenant if blocks else None
        result.charged.append(charge(tenant, cache) if tenant in quotas else 0)
    return result
