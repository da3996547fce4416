"""A cache of blocks priced by class and age, block by block, for `perc.online_aged`."""


class Cache:
    """Blocks priced by class and age; those with a resident child stay.

    Of every class the oldest and the newest block that may leave are looked at, and
    the cheaper leaves; of equals the least recent, the deepest first.
    """

    def __init__(self, capacity, bin_of):
        self.capacity, self.bin_of = capacity, bin_of
        self.resident = {}  # block -> (class, time, request, -depth, parent)
        self.evictions = 0
        self.regret = []  # by how much each victim was dearer than the cheapest

    def serve(self, r, row, classes, now, prices):
        """Serves request r; `prices[class][bin]`, or None for LRU's order.

        Returns its leading resident blocks.
        """
        hit = next((d for d, b in enumerate(row) if b not in self.resident), len(row))
        before = set(self.resident)
        kept = row[: self.capacity]
        for block in row:
            self.resident.pop(block, None)
        while len(self.resident) + len(kept) > self.capacity:
            del self.resident[self._victim(now, prices)]
        for depth, block in enumerate(kept):
            parent = row[depth - 1] if depth else None
            self.resident[block] = (classes[depth], now, r, -depth, parent)
        self.evictions += len(before | set(row)) - len(self.resident)
        return hit

    def _victim(self, now, prices):
        def price(block):
            cls, time, request, up, _ = self.resident[block]
            if prices is None:
                return 0, request, up
            age = min(self.bin_of(now - time), len(prices[cls]) - 1)
            return prices[cls][age], request, up

        needed = {parent for *_, parent in self.resident.values()}
        may_leave = [block for block in self.resident if block not in needed]
        by_class = {}
        for block in sorted(may_leave, key=lambda b: self.resident[b][2:4]):
            by_class.setdefault(self.resident[block][0], []).append(block)
        ends = [block for line in by_class.values() for block in (line[0], line[-1])]
        victim = min(ends, key=price)
        self.regret.append(price(victim)[0] - min(price(b)[0] for b in may_leave))
        return victim


def replay_aged(rows, classes, times, epochs, worth, bin_of, capacity):
    """Serves requests one by one.

    Args:
        rows: blocks of each request, root first.
        classes: class of each access, rows alike.
        times: arrival of each request.
        epochs: epoch of each request.
        worth: worth[epoch][class][bin].
        bin_of: bin of an age.
        capacity: blocks.

    Returns:
        Leading resident blocks of each request, evictions, and for each victim by how
        much it was dearer than the cheapest that might have left.
    """
    cache = Cache(capacity, bin_of)
    hits = [
        cache.serve(r, row, classes[r], times[r], worth[epochs[r]])
        for r, row in enumerate(rows)
    ]
    return hits, cache.evictions, cache.regret
