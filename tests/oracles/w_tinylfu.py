"""W-TinyLFU with exact counts, in plain Python."""

from collections import OrderedDict

import numpy as np


class WTinyLfu:
    """Window, probation and protection, oldest first; counts that are halved."""

    def __init__(self, capacity, window=0.01, protected=0.8, halve=10):
        self.window_size = max(int(np.float32(window) * capacity), 1)
        self.main_size = capacity - self.window_size
        self.most = int(np.float32(protected) * np.float32(self.main_size))
        self.period = max(int(halve * capacity), 1)
        self.window, self.probation, self.protected = (OrderedDict() for _ in "123")
        self.counts, self.accesses = {}, 0

    def __contains__(self, block):
        return any(block in part for part in self.parts())

    def parts(self):
        return self.window, self.probation, self.protected

    def access(self, block, parent):
        self.count(block)
        if block in self.window:
            self.window.move_to_end(block)
        elif block in self:
            self.hit_in_main(block)
        else:
            self.window[block] = True
            if len(self.window) > self.window_size:
                candidate, _ = self.window.popitem(last=False)
                return self.enter_main(candidate)
        return None

    def count(self, block):
        self.counts[block] = self.counts.get(block, 0) + 1
        self.accesses += 1
        if self.accesses == self.period:
            self.counts = {b: count // 2 for b, count in self.counts.items()}
            self.accesses = 0

    def hit_in_main(self, block):
        self.probation.pop(block, None)
        self.protected.pop(block, None)
        self.protected[block] = True
        if len(self.protected) > self.most:
            demoted, _ = self.protected.popitem(last=False)
            self.probation[demoted] = True

    def enter_main(self, candidate):
        """The victim of the two: the candidate, or main's, which makes room for it."""
        victim = None
        if len(self.probation) + len(self.protected) >= self.main_size:
            segment = self.probation or self.protected
            if not segment:
                return candidate
            victim = next(iter(segment))
            if self.counts[candidate] <= self.counts[victim]:
                return candidate
            del segment[victim]
        self.probation[candidate] = True
        return victim
