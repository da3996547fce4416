"""Caches made of queues in plain Python, one class a policy, and who serves them.

A class has `__contains__` for what is resident, and `access(block, parent)`, which
returns the victim, the block itself if it is refused, or None. One with `begin` is told
when a request comes.
"""

from collections import OrderedDict
from collections import deque as Deque

import numpy as np


def simulate(requests, cache, *, root_first=False):
    """Looks each request up, then accesses its blocks, deepest first by default.

    Returns the leading resident blocks of each request, and the evicted blocks in
    order, one list a request.
    """
    hits, victims = [], []
    for blocks in requests:
        if hasattr(cache, "begin"):
            cache.begin()
        hits.append(
            next((i for i, b in enumerate(blocks) if b not in cache), len(blocks))
        )
        order = list(zip(blocks, [None, *blocks], strict=False))
        found = [cache.access(*pair) for pair in (order if root_first else order[::-1])]
        victims.append([victim for victim in found if victim is not None])
    return hits, victims


class Slru:
    """Probation and protection, both LRU; oldest first."""

    def __init__(self, capacity, protected):
        self.capacity, self.most = capacity, int(np.float32(protected) * capacity)
        self.probation, self.protected = OrderedDict(), OrderedDict()

    def __contains__(self, block):
        return block in self.probation or block in self.protected

    def access(self, block, parent):
        victim = None
        if block in self:
            self.probation.pop(block, None)
            self.protected.pop(block, None)
            self.protected[block] = True
            while len(self.protected) > self.most:
                demoted, _ = self.protected.popitem(last=False)
                self.probation[demoted] = True
            return None
        if len(self.probation) + len(self.protected) >= self.capacity:
            victim, _ = (self.probation or self.protected).popitem(last=False)
        self.probation[block] = True
        return victim


class Arc:
    """The paper's figure, with T1, T2, B1 and B2 oldest first."""

    def __init__(self, capacity, number: type = np.float32):
        self.c, self.p, self.number = capacity, number(0), number
        self.t1, self.t2, self.b1, self.b2 = (OrderedDict() for _ in range(4))

    def __contains__(self, block):
        return block in self.t1 or block in self.t2

    def _replace(self, block):
        size = len(self.t1)
        if size and (size > self.p or (block in self.b2 and size == self.p)):
            source, ghosts = self.t1, self.b1
        elif self.t2:
            source, ghosts = self.t2, self.b2
        else:
            source, ghosts = self.t1, self.b1
        victim, _ = source.popitem(last=False)
        ghosts[victim] = True
        return victim

    def access(self, block, parent):
        number, victim = self.number, None
        if block in self:
            self.t1.pop(block, None)
            self.t2.pop(block, None)
            self.t2[block] = True
            return None
        if block in self.b1 or block in self.b2:
            ones, twos = number(len(self.b1)), number(len(self.b2))
            if block in self.b1:
                self.p = min(number(self.c), self.p + max(number(1), twos / ones))
            else:
                self.p = max(number(0), self.p - max(number(1), ones / twos))
            victim = self._replace(block)
            self.b1.pop(block, None)
            self.b2.pop(block, None)
            self.t2[block] = True
            return victim
        total = sum(map(len, (self.t1, self.t2, self.b1, self.b2)))
        if len(self.t1) + len(self.b1) == self.c:
            if len(self.t1) < self.c:
                self.b1.popitem(last=False)
                victim = self._replace(block)
            else:
                victim, _ = self.t1.popitem(last=False)
        elif total >= self.c:
            if total >= 2 * self.c:
                self.b2.popitem(last=False)
            if len(self.t1) + len(self.t2) >= self.c:
                victim = self._replace(block)
        self.t1[block] = True
        return victim


class S3Fifo:
    """Small queue, main queue and ghosts; oldest first."""

    def __init__(self, capacity, small=0.1, ghost=0.9, threshold=2):
        self.capacity, self.threshold = capacity, threshold
        self.small_size = int(np.float32(small) * capacity)
        self.main_size = capacity - self.small_size
        self.ghost_size = int(np.float32(ghost) * capacity)
        self.small, self.main, self.ghosts = Deque(), Deque(), OrderedDict()
        self.uses, self.warm = {}, False

    def __contains__(self, block):
        return block in self.uses

    def access(self, block, parent):
        victim = None
        returns = self.ghosts.pop(block, False)
        if block in self.uses:
            self.uses[block] += 1
            return None
        if len(self.uses) >= self.capacity:
            victim = self._evict()
        early = not self.warm and len(self.small) >= self.small_size
        (self.main if returns or early else self.small).append(block)
        self.uses[block] = 0
        return victim

    def _evict(self):
        self.warm = True
        from_main = len(self.main) > self.main_size
        while True:
            from_main = from_main or not self.small
            block = (self.main if from_main else self.small).popleft()
            uses = self.uses[block]
            if uses >= (1 if from_main else self.threshold):
                self.main.append(block)
                self.uses[block] = min(uses, 3) - 1 if from_main else 0
                continue
            del self.uses[block]
            if not from_main:
                self.ghosts[block] = True
                while len(self.ghosts) > self.ghost_size:
                    self.ghosts.popitem(last=False)
            return block


class Sieve:
    """A list from the oldest to the newest, visited bits and a hand."""

    def __init__(self, capacity):
        self.capacity, self.queue, self.visited, self.hand = capacity, [], {}, None

    def __contains__(self, block):
        return block in self.visited

    def access(self, block, parent):
        victim = None
        if block in self.visited:
            self.visited[block] = True
            return None
        if len(self.queue) >= self.capacity:
            victim = self._evict()
        self.queue.append(block)
        self.visited[block] = False
        return victim

    def _evict(self):
        at = 0 if self.hand is None else self.queue.index(self.hand)
        while self.visited[self.queue[at]]:
            self.visited[self.queue[at]] = False
            at = (at + 1) % len(self.queue)
        victim = self.queue.pop(at)
        del self.visited[victim]
        self.hand = self.queue[at] if at < len(self.queue) else None
        return victim


class TinyLfu:
    """LRU with admission by exact counts that are halved every `window` accesses."""

    def __init__(self, capacity, window=10):
        self.capacity, self.window = capacity, max(int(window * capacity), 1)
        self.lru, self.counts, self.accesses = OrderedDict(), {}, 0

    def __contains__(self, block):
        return block in self.lru

    def access(self, block, parent):
        self.counts[block] = self.counts.get(block, 0) + 1
        self.accesses += 1
        if self.accesses == self.window:
            self.counts = {b: count // 2 for b, count in self.counts.items()}
            self.accesses = 0
        victim = None
        if block not in self.lru and len(self.lru) >= self.capacity:
            victim = next(iter(self.lru))
            if self.counts[block] <= self.counts.get(victim, 0):
                return block
            del self.lru[victim]
        self.lru[block] = True
        self.lru.move_to_end(block)
        return victim


class RandomLeaf:
    """A tree, and a list of its leaves from which a hash picks."""

    def __init__(self, capacity, seed=0):
        self.capacity, self.seed, self.victims = capacity, seed, 0
        self.parent, self.leaves = {}, []

    def __contains__(self, block):
        return block in self.parent

    def access(self, block, parent):
        if block in self.parent:
            return None
        victim = None
        if len(self.parent) >= self.capacity:
            others = [leaf for leaf in self.leaves if leaf != parent]
            if (parent is not None and parent not in self.parent) or not others:
                return block
            draw = _mix(_mix(self.victims) ^ _mix(~self.seed & 0xFFFFFFFF))
            victim = others[draw % len(others)]
            self._remove(victim)
            self.victims += 1
        if parent in self.leaves:
            self.leaves[self.leaves.index(parent)] = block
        else:
            self.leaves.append(block)
        self.parent[block] = parent
        return victim

    def _remove(self, victim):
        parent = self.parent.pop(victim)
        at = self.leaves.index(victim)
        self.leaves[at] = self.leaves[-1]
        self.leaves.pop()
        if parent is not None and parent not in self.parent.values():
            self.leaves.append(parent)


def _mix(word):
    word = (word ^ (word >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    word = (word ^ (word >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return word ^ (word >> 16)
