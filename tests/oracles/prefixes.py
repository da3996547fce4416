"""Cached prefixes in plain Python: a dict of every prefix, token by token."""

import math


class Prefixes:
    """`kind` is a rule: lru, lfu, fifo (first use) or priority (highest so far)."""

    def __init__(self, kind):
        self.kind = kind
        self.known = {}  # prefix: [key, index of the last use, uses]
        self.locks = []
        self.clock = 0

    def match(self, prompt):
        return max(
            n for n in range(len(prompt) + 1) if n == 0 or prompt[:n] in self.known
        )

    def insert(self, prompt, priority=0):
        new = 0
        for n in range(1, len(prompt) + 1):
            if prompt[:n] not in self.known:
                self.known[prompt[:n]] = [-math.inf, -1, 0]
                new += 1
            entry = self.known[prompt[:n]]
            entry[1], entry[2] = self.clock, entry[2] + 1
            if self.kind == "priority":
                entry[0] = max(entry[0], priority)
            elif self.kind == "fifo":
                entry[0] = self.clock if entry[2] == 1 else entry[0]
            else:
                entry[0] = {"lru": 0, "lfu": entry[2]}[self.kind]
        self.clock += 1
        return new

    def lock(self, prompt):
        self.locks.append(prompt[: self.match(prompt)])

    def unlock(self, at):
        self.locks.pop(at)

    def evict(self, tokens):
        freed = 0
        while freed < tokens:
            inner = {prefix[:-1] for prefix in self.known}
            inner |= {held[:n] for held in self.locks for n in range(len(held) + 1)}
            leaves = [prefix for prefix in self.known if prefix not in inner]
            if not leaves:
                break
            del self.known[min(leaves, key=lambda prefix: self.known[prefix][:2])]
            freed += 1
        return freed

    def serve(self, prompt, priority, capacity):
        matched = self.match(prompt)
        self.lock(prompt)
        evicted = self.evict(len(self.known) + len(prompt) - matched - capacity)
        room = max(capacity - len(self.known), 0)
        self.locks.pop()
        added = self.insert(prompt[: matched + room], priority)
        return matched, added, evicted

    def longest(self):
        inner = {prefix[:-1] for prefix in self.known}
        return sorted(prefix for prefix in self.known if prefix not in inner)
