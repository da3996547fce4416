"""Three caches of single blocks and a guard between them, for `perc.guard`."""

import math

from tests.oracles.aged import Cache


def replay_guarded(rows, classes, times, epochs, worth, bin_of, capacity, guard):
    """Serves requests one by one, as `tests.oracles.aged.replay_aged`.

    `guard` has `share`, `patience`, `memory` and `credit`.

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
