"""PERC by its published formula: the baseline that people will compare with."""

import jax
import jax.numpy as jnp

from perc.errors import check_number
from perc.types import Features, Policy


def perc_published(
    *,
    horizon_s: float = 5.0,
    recompute_s_per_token: float = 0.002,
    default_rate_per_s: float = 0.05,
    shortest_gap_s: float = 0.01,
) -> Policy:
    """Expected recompute cost of a session, per block, by its rate of activity.

        rate  = 1 / max(mean of the session's last 20 gaps, shortest_gap_s)   [1/s]
        p     = 1 - exp(-rate * horizon_s)
        score = input tokens * recompute_s_per_token * p / blocks             [s/block]

    The unit is a session: all blocks of a prompt share its score. Known faults, kept on
    purpose: tokens and blocks cancel, so the order is that of the rate alone; idle time
    plays no part, so a busy conversation that ended never leaves; and when a session
    without history takes over a prefix, the score of the shared blocks falls below that
    of their children, which are then unreachable.

    Args:
        horizon_s: a return within this time counts.
        recompute_s_per_token: cost of prefill, linear in length.
        default_rate_per_s: of a session without a gap yet.
        shortest_gap_s: floor of the mean gap.

    Raises:
        InputError: if a parameter is not positive or not finite.

    Example:
        >>> perc_published().name
        'perc_published'

    References:
        aryanputta/cachepilot on GitHub, `eviction.py`. There the gaps are those
        between decoded tokens, which no trace tells; here they are the gaps between
        turns, for which the published horizon of 5 s is short.
    """
    params = {
        "horizon_s": horizon_s,
        "recompute_s_per_token": recompute_s_per_token,
        "default_rate_per_s": default_rate_per_s,
        "shortest_gap_s": shortest_gap_s,
    }
    for name, value in params.items():
        check_number("perc_published", name, value, above=True)
    return Policy(
        {name: jnp.float32(value) for name, value in params.items()},
        _score,
        "perc_published",
        uses=("mean_gap_s", "input_tokens", "request_blocks"),
    )


def _score(params: dict, f: Features) -> jax.Array:
    gap = f.mean_gap_s
    rate = jnp.where(
        jnp.isnan(gap),
        params["default_rate_per_s"],
        1 / jnp.maximum(gap, params["shortest_gap_s"]),
    )
    p = 1 - jnp.exp(-rate * params["horizon_s"])
    blocks = jnp.maximum(f.request_blocks, 1)
    return f.input_tokens * params["recompute_s_per_token"] * p / blocks
