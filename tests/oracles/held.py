"""Overlapping requests in plain Python: what runs holds its blocks."""


def simulate(requests, scores, arrivals, durations, capacity, *, refresh=True):
    """Leading resident blocks of each request; how many blocks left or stayed out."""
    cache = {}  # block -> (score, request, -depth)
    running = []  # (end, request, blocks that it holds)
    hits, gone = [], 0
    for now, (blocks, values) in enumerate(zip(requests, scores, strict=True)):
        running = [job for job in running if job[0] > arrivals[now]]
        held = {block for _, _, holding in running for block in holding}
        hit = 0
        while hit < len(blocks) and blocks[hit] in cache:
            hit += 1
        hits.append(hit)
        for depth, (block, value) in enumerate(zip(blocks, values, strict=True)):
            if refresh or block not in cache:
                cache[block] = (value, now, -depth)
        while len(cache) > capacity:
            others = [b for b in cache if b not in held and b not in blocks]
            own = [b for b in blocks if b in cache and b not in held]
            victim = min(others, key=cache.__getitem__) if others else own[-1]
            del cache[victim]
            gone += 1
        holding = [block for block in blocks if block in cache]
        running.append((arrivals[now] + durations[now], now, holding))
    return hits, gone
