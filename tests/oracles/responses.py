"""A cache of answers in plain Python: a list of slots, each None or a dict."""

import math


def cosine(a, b):
    product = sum(x * y for x, y in zip(a, b, strict=True))
    length = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return product / length if length else 0.0


class Answers:
    """`order(entry)` is the key by which entries leave, the least recent at a tie."""

    def __init__(self, capacity, threshold, ttl_s, order):
        self.slots: list = [None] * capacity
        self.threshold, self.ttl_s, self.order = threshold, ttl_s, order
        self.clock = 0

    def _use(self, entry, priority):
        entry["last"], entry["uses"] = self.clock, entry["uses"] + 1
        entry["first"] = self.clock if entry["uses"] == 1 else entry["first"]
        entry["priority"] = max(priority, entry["priority"])
        self.clock += 1

    def look_up(self, prompt, scope, vector, now, priority):
        live = [e for e in self.slots if e and e["until"] > now and e["scope"] == scope]
        for entry in live:
            if entry["prompt"] == prompt:
                self._use(entry, priority)
                return "exact", entry["answer"]
        if self.threshold is not None and live:
            best = max(live, key=lambda e: (cosine(e["vector"], vector), -e["slot"]))
            if cosine(best["vector"], vector) >= self.threshold:
                self._use(best, priority)
                return "semantic", best["answer"]
        return "miss", None

    def store(self, prompt, scope, vector, answer, now, priority):
        out = None
        mine = [
            i
            for i, e in enumerate(self.slots)
            if e and (e["prompt"], e["scope"]) == (prompt, scope)
        ]
        empty = [i for i, e in enumerate(self.slots) if not e]
        old = [i for i, e in enumerate(self.slots) if e and e["until"] <= now]
        if mine or empty or old:
            slot = (mine or empty or old)[0]
        else:
            slot = min(
                range(len(self.slots)),
                key=lambda i: (self.order(self.slots[i]), self.slots[i]["last"]),
            )
            out = self.slots[slot]["answer"]
        self.slots[slot] = {
            "prompt": prompt,
            "scope": scope,
            "vector": vector,
            "answer": answer,
            "until": now + self.ttl_s,
            "slot": slot,
            "uses": 0,
            "priority": -math.inf,
        }
        self._use(self.slots[slot], priority)
        return out
