"""What the numbers mean for the person, in sentences."""

from perc.compare import Comparison, Row

NOTHING_TO_GAIN = 0.005  # block hit ratio between LRU and an infinite cache
LEVEL = 0.0005  # differences below it, .05 points, are not worth a sentence


def verdict(result: Comparison) -> list[str]:
    """A headline, and every policy that loses to LRU with the sizes where it does."""
    candidates = [r for r in result.rows if r.policy not in result.clairvoyant]
    lru = lru_ratios(result)
    return [
        *_headline(result, candidates, lru),
        *_losers(candidates, lru),
    ]


def lru_ratios(result: Comparison) -> dict[int, float]:
    """LRU's block hit ratio at each capacity of the rows, asked for or not."""
    largest = len(result.lru_hits) - 1
    return {
        size: result.lru_hits[min(size, largest)] / max(result.counted_blocks, 1)
        for size in {row.capacity_blocks for row in result.rows}
    }


def _headline(
    result: Comparison, candidates: list[Row], lru: dict[int, float]
) -> list[str]:
    if not candidates or not result.counted_blocks:
        return []
    gain, best = max(
        ((row.block_hit_ratio - lru[row.capacity_blocks], row) for row in candidates),
        key=lambda pair: (pair[0], -pair[1].capacity_blocks),
    )
    size = best.capacity_blocks
    ideal = int(result.lru_hits[-1]) / result.counted_blocks
    if ideal - min(lru.values()) < NOTHING_TO_GAIN:
        return [
            f"Nothing to gain: LRU hits {lru[min(lru)]:.1%} at {min(lru):,} blocks, an "
            f"infinite cache {ideal:.1%}."
        ]
    if gain < LEVEL and all(row.policy == "lru" for row in candidates):
        return []
    if gain < LEVEL:
        return [
            "No policy here beats LRU on this trace: keep LRU, and buy hits with "
            "memory."
        ]
    match = result.lru_blocks_to_match(best.block_hit_ratio)
    needs = (
        f"LRU needs {match:,} blocks to match it, {match / size:.1f} times the memory."
        if match is not None and size
        else "no LRU cache of any size matches it."
    )
    return [
        f"Largest gain at {size:,} blocks: {best.policy} hits "
        f"{best.block_hit_ratio:.1%} of blocks, LRU {lru[size]:.1%}; {needs}",
        *_elsewhere(candidates, lru, size),
    ]


def _elsewhere(
    candidates: list[Row], lru: dict[int, float], headline: int
) -> list[str]:
    """The winner at every other size, in one sentence."""
    parts = []
    for size in sorted(lru):
        here = [row for row in candidates if row.capacity_blocks == size]
        best = max(here, key=lambda row: row.block_hit_ratio)
        gain = best.block_hit_ratio - lru[size]
        if size != headline:
            won = f"{best.policy} {gain * 100:+.1f} points"
            parts.append(f"{size:,} blocks: {won if gain >= LEVEL else 'none'}")
    return [f"Best against LRU elsewhere, at {'; '.join(parts)}."] if parts else []


def _losers(candidates: list[Row], lru: dict[int, float]) -> list[str]:
    lost: dict[str, list[str]] = {}
    dear = {r.capacity_blocks: r.recompute_s for r in candidates if r.policy == "lru"}
    for row in candidates:
        loss = lru[row.capacity_blocks] - row.block_hit_ratio
        if loss >= LEVEL:
            saved_s = dear.get(row.capacity_blocks, 0.0) - row.recompute_s
            but = f", but recomputes {saved_s:,.1f} s less" if saved_s > 0 else ""
            lost.setdefault(row.policy, []).append(
                f"{row.capacity_blocks:,} (-{loss * 100:.1f} points{but})"
            )
    return [
        f"{policy} loses to LRU at {', '.join(where)} blocks."
        for policy, where in lost.items()
    ]
