"""Landlord: GreedyDual with a choice of how much a hit is worth."""

import jax
import jax.numpy as jnp

from perc.errors import STEEPEST, check_number
from perc.types import Features, Memory, OnlinePolicy, Scored


def landlord(
    *,
    refresh: float = 0.5,
    cost_weight: float = 0.0,
    bypass: bool = False,
    evict_first: bool = False,
) -> OnlinePolicy:
    """Every block pays rent out of a credit; who cannot pay leaves; a hit refills it.

        value  = (recompute seconds / tokens)**cost_weight
        credit = value                                      when the block enters
        credit = credit + refresh * (value - credit)        at a hit
        key    = L + credit,   L = highest key of any victim so far

    Instead of lowering all credits by the rent, the clock L rises, which orders the
    blocks just as well. `refresh=1` is GreedyDual-Size, and LRU where blocks cost the
    same; with 0 a hit refills nothing, but equal keys still leave least recent first.
    While blocks cost the same the clock moves once a turnover of the cache, so on
    conversations every `refresh` hits as LRU does or a little less.

    A block whose child is resident is no victim, unless every block is worth the same
    and hits refresh fully, where none is needed.

    Args:
        refresh: share of the spent credit that a hit gives back, 0 to 1.
        cost_weight: exponent of the recompute seconds per token.
        bypass: a new block may be refused (an offload tier). With it the cost is at
            most (k + 1) / (k - h + 1) times that of any cache of h <= k blocks, one
            that may refuse too; without it only of those that must store.
        evict_first: a request's victims move the clock before its own blocks are
            scored, as the papers have it; otherwise after, as `perc.step` does. Has no
            effect with `bypass`, where victims are known only after scoring.

    Raises:
        InputError: if a parameter is out of range or no float32.

    Example:
        >>> landlord(refresh=1.0).rule.closed, landlord(refresh=0.0).rule.closed
        (False, True)

    References:
        Young 2002, "On-line file caching" (Algorithmica 33), Landlord;
        Cao and Irani 1997, "Cost-aware WWW proxy caching algorithms".
    """
    check_number("landlord", "refresh", refresh, high=1.0)
    check_number("landlord", "cost_weight", cost_weight, high=STEEPEST)
    closed = cost_weight > 0 or refresh < 1
    rule = Scored(_score, width=1, evict_first=bool(evict_first), closed=closed)
    params = {"refresh": jnp.float32(refresh), "cost_weight": jnp.float32(cost_weight)}
    return OnlinePolicy(
        params, rule, "landlord", uses=("recompute_s", "tokens"), bypass=bool(bypass)
    )


def _score(params: dict, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    value = (f.recompute_s / f.tokens) ** params["cost_weight"]
    # Below the clock is a block that was spared for its child, or for its request.
    left = jnp.maximum(m.own[0] - m.clock, 0)
    refilled = left + params["refresh"] * (value - left)
    key = m.clock + jnp.where(m.resident, refilled, value)
    return key, key[None]
