"""Where a learned policy won and lost on traffic that it had not seen."""

from perc.compare import Comparison
from perc.report.verdict import LEVEL


def won_or_lost(result: Comparison) -> list[str]:
    """Sentences on the third of four policies: lru, perc, the learned one, a bound.

    Args:
        result: of those policies in this order, on what was not learned from.
    """
    lru, perc, name, _ = dict.fromkeys(row.policy for row in result.rows)
    hits = {(r.policy, r.capacity_blocks): r.block_hit_ratio for r in result.rows}
    sizes = list(dict.fromkeys(row.capacity_blocks for row in result.rows))

    def over(rival: str) -> dict[int, float]:
        return {size: hits[name, size] - hits[rival, size] for size in sizes}

    closed = [r.gap_closed for r in result.rows if r.policy == name]
    return [
        _against(name, lru, over(lru)),
        _against(name, perc, over(perc)),
        *_dearer(result, name, perc),
        _gap([share for share in closed if share is not None], len(closed)),
        _advice(name, over(lru), over(perc)),
    ]


def _against(name: str, rival: str, gains: dict[int, float]) -> str:
    won = {size: gain for size, gain in gains.items() if gain >= LEVEL}
    lost = {size: -gain for size, gain in gains.items() if gain <= -LEVEL}
    if not won and not lost:
        return f"{name} is level with {rival} at every size."
    parts = []
    if won:
        parts.append(f"beats {rival} at {_where(won, len(gains))}")
    if lost:
        verb = "loses" if won else f"loses to {rival}"
        parts.append(f"{verb} at {_where(lost, len(gains))}")
    level = len(gains) - len(won) - len(lost)
    if level:
        parts.append(f"is level at {level} of {len(gains)} sizes")
    return f"{name} {', '.join(parts)}."


def _dearer(result: Comparison, name: str, rival: str) -> list[str]:
    """More blocks are not always fewer seconds: those late in a prompt are dear."""
    rows = {(r.policy, r.capacity_blocks): r for r in result.rows}
    sizes = [
        f"{size:,}"
        for policy, size in rows
        if policy == name
        and rows[name, size].block_hit_ratio > rows[rival, size].block_hit_ratio
        and rows[name, size].recompute_s > rows[rival, size].recompute_s
    ]
    if not sizes:
        return []
    return [
        f"At {', '.join(sizes)} blocks it hits more blocks than {rival}, but "
        "recomputes for more seconds."
    ]


def _where(gains: dict[int, float], of: int) -> str:
    sizes = ", ".join(f"{size:,}" for size in gains)
    places = "every size" if len(gains) == of else f"{sizes} blocks"
    low, high = (f"{100 * g:.1f}" for g in (min(gains.values()), max(gains.values())))
    return f"{places}, by {low if low == high else f'{low} to {high}'} points"


def _gap(closed: list[float], of: int) -> str:
    if not closed:
        return "There is no gap between LRU and the bound: nothing can be gained here."
    sizes = "" if len(closed) == of else f" at the {len(closed)} sizes that have one"
    mean = sum(closed) / len(closed)
    return f"It closes {mean:.1%} of the gap between LRU and the bound{sizes}, on mean."


def _advice(name: str, lru: dict[int, float], perc: dict[int, float]) -> str:
    over_lru, over_perc = (sum(g.values()) / len(g) for g in (lru, perc))
    if over_lru < LEVEL:
        return "Keep LRU: on mean it does as well or better, without training."
    if over_perc < LEVEL:
        return "Use perc: on mean it does as well or better, without training."
    return f"{name} earned its place on this traffic: take it where loads are like it."
