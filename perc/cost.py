"""What it costs to compute a block again: prefill time that is not linear in length.

    prefill_s(n) = c1 * n + c2 * n**2

`c1` is the work of the weights, `c2` that of attention, so a token late in a long
prompt is dearer than one at its start.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class PrefillCost:
    """Seconds to prefill, as a polynomial of the prompt's length in tokens."""

    name: str  # of model and accelerator, for reports
    s_per_token: float  # c1
    s_per_token2: float  # c2

    def prefill_s(self, tokens: ArrayLike) -> np.ndarray:
        """Seconds, f64[...], to prefill prompts of `tokens` tokens from nothing."""
        n = np.asarray(tokens, np.float64)
        return self.s_per_token * n + self.s_per_token2 * n * n

    def recompute_s(self, tokens: ArrayLike, cached: ArrayLike) -> np.ndarray:
        """Seconds f64[...] to prefill prompts whose first `cached` tokens are there."""
        return self.prefill_s(tokens) - self.prefill_s(cached)


def roofline_prefill(
    name: str,
    *,
    parameters: float,
    layers: int,
    query_heads: int,
    head_size: int,
    dense_flops: float,
    mfu: float = 0.5,
) -> PrefillCost:
    """Compute-bound prefill: 2 P n + 2 L H D n**2 FLOPs at a share of the peak.

    Args:
        name: of model and accelerator.
        parameters: active parameters P.
        layers: L.
        query_heads: H, of the queries, since attention's FLOPs depend on them.
        head_size: D.
        dense_flops: peak of the accelerator in FLOP/s, dense, at the used precision.
        mfu: model FLOPs utilisation, the share of the peak that is reached.

    Returns:
        The cost in seconds of one sequence at a time.

    References:
        Kaplan et al. 2020, "Scaling Laws for Neural Language Models", table 1, counts
        2 P FLOPs a token and attention's share separately.
    """
    reached = mfu * dense_flops
    return PrefillCost(
        name,
        2 * parameters / reached,
        2 * layers * query_heads * head_size / reached,
    )


# Llama-3-8B: 8.03e9 parameters, 32 layers, 32 query heads of 128 (its model card).
# H100 SXM: 989.4 TFLOP/s dense BF16 (NVIDIA's H100 data sheet; 1,979 is with sparsity).
DEFAULT_COST = roofline_prefill(
    "Llama-3-8B on one H100 SXM at half its dense BF16 peak",
    parameters=8.03e9,
    layers=32,
    query_heads=32,
    head_size=128,
    dense_flops=989.4e12,
)
