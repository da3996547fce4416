"""Gaps, survival, rates and deadlines in plain Python, written from the rules."""

from math import exp

TURNS = 6


def parents(trace):
    """The request that each one follows up, or None."""
    found, seen_in_session, last_user = [], {}, {}
    for r in range(trace.n_requests):
        blocks = trace.block[trace.start[r] : trace.stop[r]].tolist()
        if trace.sessions_inferred:
            d = next((i for i, b in enumerate(blocks) if b not in last_user), None)
            d = len(blocks) if d is None else d
            parent = last_user[blocks[d - 1]] if d >= 2 else None
            if parent is not None:
                whole = trace.input_tokens[parent] // trace.block_tokens
                parent = parent if d >= whole else None
        else:
            parent = seen_in_session.get(int(trace.session[r]))
        found.append(parent)
        seen_in_session[int(trace.session[r])] = r
        last_user |= dict.fromkeys(blocks, r)
    return found


def gaps(trace, cut):
    """(class, seconds, ended) of the first `cut` requests; the rest is not there."""
    follower = {}
    for r, parent in enumerate(parents(trace)[:cut]):
        if parent is not None:
            follower.setdefault(parent, r)
    result = []
    for r in range(cut):
        until = float(trace.arrival_s[follower.get(r, cut - 1)])
        cls = TURNS * min(int(trace.kind[r]), 15) + min(int(trace.turn[r]), TURNS) - 1
        result.append((cls, until - float(trace.arrival_s[r]), r in follower))
    return result


def kaplan_meier(samples, edges):
    """P(no return before each edge), from (seconds, ended)."""
    alive = [1.0]
    for low, high in zip(edges, edges[1:], strict=False):
        risk = sum(seconds >= low for seconds, _ in samples)
        returns = sum(ended and low <= seconds < high for seconds, ended in samples)
        alive.append(alive[-1] * (1 - returns / max(risk, 1)))
    return alive


def survival_tables(found, classes, edges, few):
    """One survival a class: its own, else that of its turn, else that of all."""
    tables = []
    for cls in range(classes):
        groups = (
            [(s, e) for c, s, e in found if c == cls],
            [(s, e) for c, s, e in found if c % TURNS == cls % TURNS],
        )
        enough = (group for group in groups if len(group) >= few)
        tables.append(kaplan_meier(next(enough, [(s, e) for _, s, e in found]), edges))
    return tables


def rate_tables(found, classes, few, censored):
    """Returns a second of each class; that of all where it has few."""
    tables = []
    for cls in range(classes):
        for group in ([g for g in found if g[0] == cls], found):
            ended = [seconds for _, seconds, ended in group if ended]
            total = sum(seconds for _, seconds, ended in group if ended or censored)
            if len(ended) >= few:
                tables.append(len(ended) / max(total, 1e-9))
                break
        else:
            tables.append(0.0)
    return tables


def alive_at(table, edges, age):
    """Linear between edges, constant after the last."""
    for i in range(len(edges) - 1):
        if age < edges[i + 1]:
            share = (age - edges[i]) / (edges[i + 1] - edges[i])
            return table[i] + share * (table[i + 1] - table[i])
    return table[-1]


def hazard(tables, edges, horizon):
    """P(return within the horizon | idle so long) as a score."""

    def score(use, now):
        table = tables[TURNS * use.kind + min(use.turn, TURNS) - 1]
        age = now.time_s - use.time_s
        alive = alive_at(table, edges, age)
        return (alive - alive_at(table, edges, age + horizon)) / max(alive, 1e-9)

    return score


def workload_aware(rates, life):
    """P(the reuse falls into the next `life` seconds) as a score."""

    def score(use, now):
        rate = rates[TURNS * use.kind + min(use.turn, TURNS) - 1]
        age = now.time_s - use.time_s
        return exp(-rate * age) - exp(-rate * (age + life))

    return score


def best_ttl(samples, benefit):
    """argmax of F(T) * benefit - T, the first one."""
    best, best_gain = 0.0, None
    for t in [0.0, *sorted(samples)]:
        share = sum(s <= t for s in samples) / max(len(samples), 1)
        gain = share * benefit - t
        if best_gain is None or gain > best_gain:
            best, best_gain = t, gain
    return best


def deadlines(trace, cost, *, benefit, least, cold, history):
    """Until when the block of each access is protected, from that access on."""
    follows, had_follower, seen = parents(trace), set(), []
    block_until, until = {}, {}
    for r, parent in enumerate(follows):
        now = float(trace.arrival_s[r])
        if parent is not None and parent not in had_follower:
            had_follower.add(parent)
            gap = now - float(trace.arrival_s[parent])
            seen.append((parent, int(trace.kind[parent]), gap))
        # Requests that end two gaps at once do so in the order of those requests.
        own = [gap for _, kind, gap in seen if kind == trace.kind[r]][-history:]
        everything = [gap for _, _, gap in seen][-history:]
        saved = benefit + float(cost.prefill_s(trace.input_tokens[r]))
        time_to_live = cold
        for samples in (own, everything):
            if len(samples) > least:
                time_to_live = best_ttl(samples, saved)
                break
        for i in range(trace.start[r], trace.stop[r]):
            block = int(trace.block[i])
            block_until[block] = max(block_until.get(block, 0.0), now + time_to_live)
            until[i] = block_until[block]
    return until


def ttl(trace, cost, **known):
    """Protected blocks stay, nearest deadline first to go; expired ones are LRU."""
    until = deadlines(trace, cost, **known)

    def score(use, now):
        deadline = until[use.access]
        return deadline if deadline > now.time_s else float("-inf")

    return score
