"""Victims in an order that changes while blocks idle, in plain Python.

For `perc/serving/victims.py`. Every block that may leave is looked at anew for every
victim: nothing is kept in lines.
"""

import numpy as np


class Prices:
    """Who leaves first.

    Args:
        rows: by number of an access: its class, and its place in the order of ties.
        parent: the block above each, where there is one that must not leave before it.
        price: what a block is worth, by class, age in seconds, and the last request
            that was admitted.
    """

    def __init__(self, rows, parent, price):
        self.rows, self.parent, self.price = rows, parent, price
        self.used = {}  # when each block was used last
        self.latest = 0

    def victim(self, cached, pins, now, free):
        """The block of `free` that leaves; `cached` maps blocks to numbers."""
        here = [*cached, *pins]
        needed = {self.parent[block] for block in here if block in self.parent}
        lines = {}
        for block, number in sorted(cached.items(), key=lambda item: item[1]):
            if block in free and block not in needed:
                lines.setdefault(self.rows[number][0], []).append(block)
        ends = [block for line in lines.values() for block in (line[0], line[-1])]

        def worth(block):
            cls, tie = self.rows[cached[block]]
            age = np.float32(now) - self.used[block]
            return float(self.price(cls, age, self.latest)), tie

        return min(ends, key=worth)
