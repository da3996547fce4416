"""A cache in plain Python, to check the engines by eye: a dict and a sort."""


def simulate(requests, scores, capacity, *, bypass=False, refresh=True):
    """Serves `requests`, lists of blocks, whose uses have `scores`, lists of numbers.

    Returns the leading resident blocks of each request, and the evicted blocks in
    order, one list a request.
    """
    cache = {}  # block -> (score, request that set it, -depth)
    hits, victims = [], []
    for now, (blocks, values) in enumerate(zip(requests, scores, strict=True)):
        hit = 0
        while hit < len(blocks) and blocks[hit] in cache:
            hit += 1
        hits.append(hit)
        for depth, (block, value) in enumerate(zip(blocks, values, strict=True)):
            if refresh or block not in cache:
                cache[block] = (value, now, -depth)
        gone = []
        while len(cache) > capacity:
            own = set() if bypass else set(blocks)
            victim = min(cache, key=lambda block: (block in own, cache[block]))
            if victim in own:  # forced, and nothing else is left: the tail goes
                victim = max(own & set(cache), key=blocks.index)
            del cache[victim]
            gone.append(victim)
        victims.append(gone)
    return hits, victims


def chain_worth(requests, scores):
    """The highest score that any use of a block or of one below it has given so far."""
    worth, result = {}, []
    for blocks, values in zip(requests, scores, strict=True):
        row = []
        for depth, block in enumerate(blocks):
            best = max(values[depth:])
            worth[block] = max(worth.get(block, best), best)
            row.append(worth[block])
        result.append(row)
    return result
