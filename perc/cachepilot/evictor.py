"""Its block-level benchmark, the "79.3 %", and what the figure is made of.

    cost = L * 0.002 s * (1 - exp(-5 s * rate))     summed over K victims of N blocks

PERC takes the K least costs, so it is the optimum by construction; LRU takes the K
oldest, and ages are drawn independently of rates, so LRU is a random choice.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from perc.cachepilot.sessions import HORIZON_S, SHORTEST_GAP_S, TOKEN_S
from perc.errors import check_whole


class Blocks(NamedTuple):
    """N blocks."""

    tokens: np.ndarray  # f64[N]
    rate_per_s: np.ndarray  # f64[N]
    age_s: np.ndarray  # f64[N]

    @property
    def chance(self) -> np.ndarray:
        """Of being asked for within the horizon, f64[N]."""
        return 1 - np.exp(-HORIZON_S * self.rate_per_s)

    @property
    def cost_s(self) -> np.ndarray:
        """Expected, f64[N]."""
        return self.tokens * TOKEN_S * self.chance


@dataclass(frozen=True)
class Evicted:
    """K victims by one order."""

    order: str
    cost_s: float  # expected
    tokens: int  # freed
    realised_s: float  # one draw of who returns, the same for all orders


def draw(n: int, seed: int) -> Blocks:
    """The blocks, draw for draw.

    >>> first = draw(2, 42)
    >>> first.tokens.tolist(), first.rate_per_s.round(6).tolist()
    ([5302.0, 6097.0], [1.50696, 1.347314])
    """
    draws, rows = Random(seed), []
    for _ in range(n):
        tokens = draws.randint(64, 8192)
        rate = draws.gauss(0.5, 0.8)
        draws.randint(1, 20)  # entries of its history, all equal
        gap_s = 1 / max(rate, 0.01)
        rows.append((tokens, 1 / max(gap_s, SHORTEST_GAP_S), draws.uniform(0, 300)))
    return Blocks(*np.array(rows, np.float64).T)


def consistent_ages(blocks: Blocks, seed: int) -> np.ndarray:
    """Ages f64[N] as a Poisson process of each block's rate would leave them."""
    return np.random.default_rng(seed).exponential(1 / blocks.rate_per_s)


def benchmark(n: int = 2000, k: int = 1000, seed: int = 42) -> list[Evicted]:
    """Victims of K of N blocks by each order; `random` is its expectation.

    Raises:
        InputError: unless 1 <= k <= n.
    """
    check_whole("evictor", "blocks", n, 1, 2**24)
    check_whole("evictor", "evictions", k, 1, n)
    blocks = draw(n, seed)
    returns = np.random.default_rng(seed).random(n) < blocks.chance
    keys = {
        "perc": blocks.cost_s,
        "lru": -blocks.age_s,
        "shortest": blocks.tokens,
        "lowest rate": blocks.rate_per_s,
        "lru, consistent ages": -consistent_ages(blocks, seed),
    }
    found = []
    for order, key in keys.items():
        out = np.argsort(key, kind="stable")[:k]
        found.append(_evicted(order, blocks, returns, out, 1.0))
    return [*found, _evicted("random", blocks, returns, np.arange(n), k / n)]


def _evicted(order, blocks: Blocks, returns, out, share: float) -> Evicted:
    tokens = blocks.tokens[out]
    return Evicted(
        order,
        float(blocks.cost_s[out].sum()) * share,
        round(float(tokens.sum()) * share),
        float((tokens * returns[out]).sum()) * TOKEN_S * share,
    )


def reduction(rows: list[Evicted], order: str = "perc", other: str = "lru") -> float:
    """How much less one order costs than another, expected.

    >>> round(100 * reduction(benchmark()), 6)
    79.342202
    """
    cost = {row.order: row.cost_s for row in rows}
    return 1 - cost[order] / cost[other]
