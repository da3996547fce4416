"""Random draws that several workloads share. Every draw advances the generator."""

from collections.abc import Sequence

import numpy as np

# A distribution as rows of (share of the draws below, value above 0), both rising.
Quantiles = Sequence[tuple[float, float]]
# A step function as rows of (from, value), the first from 0.
Steps = Sequence[tuple[float, float]]


def draw_quantiles(rng: np.random.Generator, table: Quantiles, size: int) -> np.ndarray:
    """Draws f64[size] from a table of quantiles, log-linear between its rows."""
    shares, values = np.array(table).T
    return np.exp(np.interp(rng.random(size), shares, np.log(values)))


def draw_tokens(rng: np.random.Generator, table: Quantiles, size: int) -> np.ndarray:
    """Draws lengths i64[size] in tokens from a table of quantiles."""
    return np.rint(draw_quantiles(rng, table, size)).astype(np.int64)


def zipf_shares(alpha: float, size: int) -> np.ndarray:
    """Popularity f64[size] of the ranks 1 to `size`: p(rank) ~ rank**-alpha."""
    weight = np.arange(1, size + 1, dtype=np.float64) ** -alpha
    return weight / weight.sum()


def draw_ranks(rng: np.random.Generator, shares: np.ndarray, size: int) -> np.ndarray:
    """Draws i64[size] indices into `shares`, which add up to 1."""
    index = np.searchsorted(np.cumsum(shares), rng.random(size), side="right")
    return np.minimum(index, len(shares) - 1)  # rounding may leave the sum below 1


def draw_poisson_arrivals(
    rng: np.random.Generator, rate_per_s: float, size: int
) -> np.ndarray:
    """The first `size` times f64[size], in s, of a Poisson process from 0."""
    return np.cumsum(rng.exponential(1 / rate_per_s, size))


def steps(table: Steps, x: np.ndarray) -> np.ndarray:
    """The step function at every x: the value of the last row that begins below."""
    begins, values = np.array(table, np.float64).T
    return values[np.searchsorted(begins, x, side="right") - 1]
