"""A cache of blocks of different sizes in plain Python: victims leave until it fits."""


def simulate(requests, scores, size_of, capacity, *, bypass=False):
    """Leading resident blocks of each request, and the total size of what left."""
    cache = {}  # block -> (score, request, -depth)
    hits, gone = [], 0

    def taken():
        return sum(size_of[block] for block in cache)

    for now, (blocks, values) in enumerate(zip(requests, scores, strict=True)):
        hit = 0
        while hit < len(blocks) and blocks[hit] in cache:
            hit += 1
        hits.append(hit)
        before = taken() + sum(size_of[b] for b in blocks if b not in cache)
        fits = len(blocks)  # forced: the longest run of first blocks that fits
        if not bypass:
            while sum(size_of[b] for b in blocks[:fits]) > capacity:
                fits -= 1
        for depth, (block, value) in enumerate(zip(blocks, values, strict=True)):
            cache.pop(block, None)
            if depth < fits:
                cache[block] = (value, now, -depth)
        while taken() > capacity:
            others = [b for b in cache if bypass or b not in blocks]
            del cache[min(others, key=cache.__getitem__)]
        gone += before - taken()
    return hits, gone
