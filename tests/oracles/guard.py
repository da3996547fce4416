"""Three caches of single blocks and a guard between them, for `perc.guard`."""

import math


class Cache:
    """Blocks priced by class and age; those with a resident child stay."""

    def __init__(self, capacity, bin_of):
        self.capacity, self.bin_of = capacity, bin_of
        self.resident = {}  # block -> (class, time, request, -depth, parent)
        self.evictions = 0

    def serve(self, r, row, classes, now, prices):
        """Serves request r; `prices[class][bin]`, or None for LRU's order."""
        hit = next((d for d, b in enumerate(row) if b not in self.resident), len(row))
        before = set(self.resident)
        kept = row[: self.capacity]
        for block in row:
            self.resident.pop(block, None)

        def key(block):
            cls, time, request, up, _ = self.resident[block]
            if prices is None:
                return request, up
            age = min(self.bin_of(now - time), len(prices[cls]) - 1)
            return prices[cls][age], request, up

        while len(self.resident) + len(kept) > self.capacity:
            needed = {parent for *_, parent in self.resident.values()}
            del self.resident[min(set(self.resident) - needed, key=key)]
        for depth, block in enumerate(kept):
            parent = row[depth - 1] if depth else None
            self.resident[block] = (classes[depth], now, r, -depth, parent)
        self.evictions += len(before | set(row)) - len(self.resident)
        return hit


def replay_guarded(rows, classes, times, epochs, worth, bin_of, capacity, guard):
    """Serves requests one by one.

    Args:
        rows: blocks of each request, root first.
        classes: class of each access, rows alike.
        times: arrival of each request.
        epochs: epoch of each request.
        worth: worth[epoch][class][bin].
        bin_of: bin of an age.
        capacity: blocks.
        guard: `share`, `patience`, `memory` and `credit`.

    Returns:
        Leading resident blocks of each request, evictions, whether each was served in
        the policy's order, and what LRU hit.
    """
    lru, alone, cache = (Cache(capacity, bin_of) for _ in range(3))
    slack = int(guard.patience * capacity)
    behind, lead = 0, int(guard.credit * capacity)
    hits, trusted, lru_hits = [], [], []
    blocks, longest, pardoned = 0, 0, 0
    for r, row in enumerate(rows):
        request = (r, row, classes[r], times[r])
        prices = worth[epochs[r]]
        trusted.append(lead > 0 and behind <= slack)
        hits.append(cache.serve(*request, prices if trusted[-1] else None))
        lru_hits.append(lru.serve(*request, None))
        blocks, longest = blocks + len(row), max(longest, len(row))
        reach = max(int(guard.memory * min(longest, capacity)), slack, 1)
        fewer = min(sum(lru_hits), blocks - sum(lru_hits))
        forgiven = math.floor(guard.share * fewer) - pardoned
        pardoned += forgiven
        behind = max(behind + lru_hits[-1] - forgiven - hits[-1], -reach)
        lead += alone.serve(*request, prices) - lru_hits[-1]
        lead = max(-reach, min(reach, lead))
    return hits, cache.evictions, trusted, lru_hits
