"""A cache that asks for all scores anew whenever it needs a victim, in plain Python."""

from types import SimpleNamespace


def simulate(trace, capacity, score, *, bypass=False, closed=False):
    """Serves a trace; `score(use, now)` of a block's last use, the lowest leaves first.

    A use knows `step`, `time_s`, `depth`, `kind`, `turn`, and `access`, its number in
    the trace; `now` knows `step` and `time_s`. Ties leave least recent first, then
    deepest first. Every victim is looked for with scores of its own.

    Returns the leading resident blocks of each request, and the evicted blocks in
    order, one list a request. A block that is not stored counts as evicted.
    """
    cache = {}  # block -> its last use
    hits, victims = [], []
    for step in range(trace.n_requests):
        start, stop = int(trace.start[step]), int(trace.stop[step])
        blocks = trace.block[start:stop].tolist()
        now = SimpleNamespace(step=step, time_s=float(trace.arrival_s[step]))
        hits.append(
            next((i for i, b in enumerate(blocks) if b not in cache), len(blocks))
        )
        for depth, block in enumerate(blocks):
            cache[block] = SimpleNamespace(
                step=step,
                time_s=now.time_s,
                depth=depth,
                parent=blocks[depth - 1] if depth else None,
                kind=int(trace.kind[step]),
                turn=int(trace.turn[step]),
                access=start + depth,
            )
        gone = []
        while len(cache) > capacity:
            parents = {use.parent for use in cache.values()}
            own = {} if bypass else dict.fromkeys(blocks)
            candidates = [
                block
                for block in cache
                if block not in own and not (closed and block in parents)
            ]
            if candidates:
                victim = min(
                    candidates,
                    key=lambda block: (
                        score(cache[block], now),  # noqa: B023
                        cache[block].step,
                        -cache[block].depth,
                    ),
                )
            else:  # a request larger than the cache: its tail goes
                victim = max(own.keys() & cache.keys(), key=blocks.index)
            del cache[victim]
            gone.append(victim)
        victims.append(gone)
    return hits, victims
