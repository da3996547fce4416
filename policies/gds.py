"""GreedyDual-Size: cost per size, on a clock that victims move."""

from typing import Any

import jax
import jax.numpy as jnp

from perc.errors import STEEPEST, check_number
from perc.types import Features, Memory, OnlinePolicy, Scored


def gds(*, cost_weight: float = 0.0, evict_first: bool = False) -> OnlinePolicy:
    """Keeps what is dear to recompute for its size, and lets what is idle age.

        key = L + (recompute seconds / tokens)**cost_weight
        L   = highest key of any victim so far

    With `cost_weight=0` every block is worth the same, which is LRU to the last hit.
    Above 0 a block deep in a long prompt is worth more than its parent, so the rule is
    closed: a block whose child is resident is no victim. That saves a little of
    the recompute seconds on caches far too small for the traffic and loses on larger
    ones.

    Args:
        cost_weight: exponent of the recompute seconds per token.
        evict_first: a request's victims move the clock before its own blocks are
            scored, as the paper has it and its bound on the cost needs; otherwise
            after, as `perc.step` does.

    Raises:
        InputError: if a parameter is negative or no float32.

    Example:
        >>> gds(cost_weight=1.0).rule.closed
        True

    References:
        Cao and Irani 1997, "Cost-aware WWW proxy caching algorithms", section 4;
        Young 1994, "The k-server dual and loose competitiveness for paging".
    """
    check_number("gds", "cost_weight", cost_weight, high=STEEPEST)
    rule = Scored(_score, evict_first=bool(evict_first), closed=cost_weight > 0)
    params = {"cost_weight": jnp.float32(cost_weight)}
    return OnlinePolicy(params, rule, "gds", uses=("recompute_s", "tokens"))


def _score(params: dict, f: Features, m: Memory) -> tuple[jax.Array, Any]:
    return m.clock + (f.recompute_s / f.tokens) ** params["cost_weight"], m.own
