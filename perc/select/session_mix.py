"""CachePilot's mix of sessions, on which its greedy may be far from the optimum.

Reference data, not traffic: lengths and rates are hand-picked normals and uniforms.
"""

import math

import numpy as np

# Share of the sessions; mean and deviation of the prompt in tokens; range of the rate
# of activity per second.
WORKLOADS = {
    "chat": (0.4, 256, 128, 0.3, 3.0),
    "code": (0.3, 512, 256, 0.1, 0.8),
    "summarize": (0.2, 1024, 512, 0.5, 2.0),
    "longctx": (0.1, 8192, 2048, 0.02, 0.15),
}
BLOCK_TOKENS = 32
RECOMPUTE_S_PER_TOKEN = 0.002
HORIZON_S = 5.0


def session_mix(
    generator: np.random.Generator, sessions: int = 48
) -> tuple[np.ndarray, np.ndarray]:
    """Draws sessions: their blocks i64[n], and the loss f64[n] in s of evicting each.

        loss = tokens * 0.002 s * (1 - exp(-5 s * rate))

    Args:
        generator: is consumed; the same state gives the same sessions.
        sessions: n.

    Example:
        >>> blocks, loss = session_mix(np.random.default_rng(0), 3)
        >>> blocks.tolist(), loss.round(2).tolist()
        ([17, 10, 12], [1.04, 0.6, 0.75])

    References:
        aryanputta/cachepilot on GitHub, `workloads.py` and `eviction.py`.
    """
    rows = list(WORKLOADS.values())
    kinds = generator.choice(len(rows), size=sessions, p=[row[0] for row in rows])
    blocks, loss = np.empty(sessions, np.int64), np.empty(sessions)
    for i, kind in enumerate(kinds):
        _, mean, deviation, low, high = rows[kind]
        tokens = max(32, int(generator.normal(mean, deviation)))
        rate = generator.uniform(low, high)
        blocks[i] = math.ceil(tokens / BLOCK_TOKENS)
        loss[i] = tokens * RECOMPUTE_S_PER_TOKEN * -math.expm1(-HORIZON_S * rate)
    return blocks, loss
