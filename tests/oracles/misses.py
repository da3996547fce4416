"""The cause of each missed block in plain Python: one question after the other."""


def cause_of(depth, seen, bound, *, attention_alone=None, without_rules=None):
    """Why the block at `depth`, which no request found, was not there.

    `seen` says whether an earlier request used it; the rest are leading hits.
    """
    if not seen:
        return "cold"
    if attention_alone is not None and depth < attention_alone:
        return "hybrid"
    if without_rules is not None and depth < without_rules:
        return "retention"
    if depth < bound:
        return "policy"
    return "capacity"


def count(requests, tokens, input_tokens, hits, bound, **others):
    """One dict a request: cause -> [blocks, tokens]."""
    seen, found = set(), []
    for r, blocks in enumerate(requests):
        mine = {}
        for depth, block in enumerate(blocks):
            if depth < hits[r]:
                continue
            better = {name: column[r] for name, column in others.items()}
            cause = cause_of(depth, block in seen, bound[r], **better)
            row = mine.setdefault(cause, [0, 0])
            row[0] += 1
            row[1] += tokens[r][depth]
        mine["rounding"] = [0, input_tokens[r] - sum(tokens[r])]
        seen.update(blocks)
        found.append(mine)
    return found
