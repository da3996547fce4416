"""A cache of blocks priced by class and age, block by block, for `perc.online_aged`."""


def replay_aged(rows, classes, times, epochs, worth, bin_of, capacity):
    """Serves requests one by one.

    Of every class the oldest and the newest block that may leave are looked at, and
    the cheaper leaves; a block whose child is resident may not.

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
    resident = {}  # block -> (class, request, -depth, parent)
    hits, evictions, regret = [], 0, []
    for r, row in enumerate(rows):
        hits.append(next((d for d, b in enumerate(row) if b not in resident), len(row)))
        before = set(resident)
        kept = row[:capacity]
        for block in row:
            resident.pop(block, None)

        def price(block, now=times[r], worth_now=worth[epochs[r]]):
            cls, request, up, _ = resident[block]
            prices = worth_now[cls]
            age = min(bin_of(now - times[request]), len(prices) - 1)
            return prices[age], request, up

        while len(resident) + len(kept) > capacity:
            needed = {parent for *_, parent in resident.values()}
            may_leave = [block for block in resident if block not in needed]
            by_class = {}
            for block in sorted(may_leave, key=lambda b: resident[b][1:3]):
                by_class.setdefault(resident[block][0], []).append(block)
            ends = [
                block for line in by_class.values() for block in (line[0], line[-1])
            ]
            victim = min(ends, key=price)
            regret.append(price(victim)[0] - min(price(b)[0] for b in may_leave))
            del resident[victim]
        for depth, block in enumerate(kept):
            parent = row[depth - 1] if depth else None
            resident[block] = (classes[r][depth], r, -depth, parent)
        evictions += len(before | set(row)) - len(resident)
    return hits, evictions, regret
