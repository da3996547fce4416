"""Random queries, keys and values."""

from typing import Any

import numpy as np


def qkv(seed, n, heads, kv_heads, size, keys=None) -> Any:
    """q [n, H, D], k and v [t, G, D], float32."""
    draw = np.random.default_rng(seed)
    shapes = ((n, heads, size), *(((keys or n), kv_heads, size),) * 2)
    return tuple(draw.standard_normal(s).astype(np.float32) for s in shapes)
