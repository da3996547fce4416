"""GreedyDual-Size-Frequency: as GDS, times how often the block was used."""

import jax
import jax.numpy as jnp

from perc.errors import STEEPEST, check_number
from perc.types import Features, Memory, OnlinePolicy, Scored


def gdsf(
    *, cost_weight: float = 0.0, evict_first: bool = False, retained: bool = False
) -> OnlinePolicy:
    """Keeps what is often used, for as long as the clock has not overtaken it.

        key = L + uses * (recompute seconds / tokens)**cost_weight
        L   = highest key of any victim so far

    `uses` counts the requests since the block entered, this one included; an eviction
    forgets it. With `cost_weight=0` this is LFU with dynamic ageing (`lfu_da` in other
    tools), and a child never outlives its parent. On conversations it hits a few
    percent more than LRU at most sizes. On sessions of coding agents it loses up to a
    seventh: there every block of a session is used at every turn, and what ended long
    ago has counted most. Above 0 the rule is closed: a block whose child is resident is
    no victim.

    Args:
        cost_weight: exponent of the recompute seconds per token.
        evict_first: a request's victims move the clock before its own blocks are
            scored, as the paper has it; otherwise after, as `perc.step` does.
        retained: an eviction does not clear the count, so what returns is known again,
            at the price of a note on every block ever seen. On conversations this hits
            up to half as much again on small caches, and about the same on large ones.

    Raises:
        InputError: if a parameter is negative or no float32.

    Example:
        >>> gdsf().name
        'gdsf'

    References:
        Cherkasova 1998, "Improving WWW proxies performance with Greedy-Dual-Size-
        Frequency caching policy", HP Labs HPL-98-69R1.
        Arlitt et al. 2000, "Evaluating content management techniques for Web proxy
        caches", for LFU with dynamic ageing.
    """
    check_number("gdsf", "cost_weight", cost_weight, high=STEEPEST)
    rule = Scored(
        _score,
        width=1,
        forget=not retained,
        evict_first=bool(evict_first),
        closed=cost_weight > 0,
    )
    params = {"cost_weight": jnp.float32(cost_weight)}
    return OnlinePolicy(params, rule, "gdsf", uses=("recompute_s", "tokens"))


def _score(params: dict, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    uses = m.own + 1
    value = (f.recompute_s / f.tokens) ** params["cost_weight"]
    return m.clock + uses[0] * value, uses
