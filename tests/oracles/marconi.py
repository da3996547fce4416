"""Marconi over the leaves of a tree, in plain Python."""

import numpy as np


def utilities(alpha, works, idles):
    """One number a candidate, from FLOPs per byte and how long it was idle."""
    recents = [np.float32(1) / np.float32(idle) for idle in idles]
    pairs = zip(_normal([np.float32(w) for w in works]), _normal(recents), strict=True)
    return [np.float32(alpha) * work + recent for work, recent in pairs]


def _normal(values):
    low, high = min(values), max(values)
    if low == high:
        return [np.float32(1)] * len(values)
    return [(value - low) / (high - low) for value in values]


class Marconi:
    """Served root first (`listed.simulate`).

    `work_of[request][block]` is what the block saves if that request inserts it.
    """

    def __init__(self, capacity, work_of, alpha=1.0):
        self.capacity, self.work_of, self.alpha = capacity, work_of, alpha
        self.parent, self.last, self.work = {}, {}, {}
        self.path, self.now, self.found = [], -1, None

    def __contains__(self, block):
        return block in self.parent

    def begin(self):
        self.path, self.now, self.found = [], self.now + 1, None

    def access(self, block, parent):
        victim = None
        if block in self.parent:
            if self.found:  # was not the deepest one found
                above, stamp = self.found
                self.last[above] = stamp
            self.found = block, self.last[block]
        else:
            if len(self.parent) >= self.capacity:
                victim = self.evict(parent)
                if victim is None:
                    return block
            self.parent[block] = parent
            self.work[block] = self.work_of[self.now][block]
        self.last[block] = self.now
        self.path.append(block)
        return victim

    def evict(self, parent):
        if parent is not None and parent not in self.parent:
            return None
        inner = set(self.parent.values())
        leaves = [b for b in self.parent if b not in inner and b not in self.path]
        if not leaves:
            return None
        worths = utilities(
            self.alpha,
            [self.work[leaf] for leaf in leaves],
            [self.now - self.last[leaf] for leaf in leaves],
        )
        stamps = [self.last[leaf] for leaf in leaves]
        victim = min(zip(worths, stamps, leaves, strict=True))[2]
        del self.parent[victim]
        return victim
