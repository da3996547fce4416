"""ARC with the rules of vLLM's CPU tier, in plain Python."""

from collections import OrderedDict

import numpy as np


class ArcVllm:
    """T1, T2, B1 and B2 oldest first, served block by block (`listed.simulate`)."""

    def __init__(self, capacity, number: type = np.float32):
        self.c, self.p, self.number = capacity, number(0), number
        self.t1, self.t2, self.b1, self.b2 = (OrderedDict() for _ in range(4))

    def __contains__(self, block):
        return block in self.t1 or block in self.t2

    def access(self, block, parent):
        self.touch(block)
        if block in self:
            return None
        full = len(self.t1) + len(self.t2) >= self.c
        victim = self.evict() if full else None
        self.t1[block] = True  # whether it was a ghost or not
        self.b1.pop(block, None)
        self.b2.pop(block, None)
        return victim

    def touch(self, block):
        number = self.number
        ones, twos = number(len(self.b1)), number(len(self.b2))
        if block in self:
            self.t1.pop(block, None)
            self.t2.pop(block, None)
            self.t2[block] = True
        elif block in self.b1:
            step = max(number(1), twos / ones)
            self.p = min(number(self.c), self.p + step)
            self.b1.move_to_end(block)
        elif block in self.b2:
            step = max(number(1), ones / twos)
            self.p = max(number(0), self.p - step)
            self.b2.move_to_end(block)

    def evict(self):
        first = self.t1 and (len(self.t1) >= int(self.p) or not self.t2)
        source, ghosts = (self.t1, self.b1) if first else (self.t2, self.b2)
        victim, _ = source.popitem(last=False)
        ghosts[victim] = True
        if len(ghosts) > self.c:
            ghosts.popitem(last=False)
        return victim
