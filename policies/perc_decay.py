"""PERC: probability of resumption x expected recompute cost / bytes, ageing with time.

The value of keeping a block that has been idle since `last_s` is

    V(t) = P(resume) * C / B * exp(-(t - last_s) / tau)        [s saved per byte]

with C the seconds to compute the block again, B its bytes, and tau the time in which
an idle block's claim falls to 1/e. The block with the smallest V should leave. Since
exp(-t / tau) is common to all blocks, the order of V never changes while they idle, and
tau * ln V + t orders them just as well:

    score = last_s + tau * ln(P(resume) * (C / B)**cost_weight)

a time, in seconds: a block that is e times as valuable may idle tau seconds longer.
`cost_weight` is 1 in the idea and 0 by default: with blocks of one size the cost per
byte differs by attention's share only, and replays lose hits to it.
"""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from perc.errors import check_number
from perc.types import Features, Policy


def perc_decay(*, tau_s: float = 200.0, cost_weight: float = 0.0) -> Policy:
    """LRU, with time credit for what is likely to come back.

    `P(resume)` is the feature `resume_p`: of all earlier uses of such blocks (as often
    used, in the same turn and kind of request), the share that was followed by another.
    It is counted while the traffic runs and never looks ahead; nothing must be fitted.
    The score is made monotone along the chain (`Policy.chain`), so no prefix is left
    with a hole, and it holds at every cache size: a larger cache never hits less.

    Where P is the same for all blocks, and with `tau_s=0`, this is LRU. It wins where
    some blocks are much likelier to return than others and the cache is too small for
    all. Where everything returns, or nearly all fits, it equals LRU within half a
    hundredth of a point in hit ratio, in either direction.

    Args:
        tau_s: seconds in which an idle block's value falls to 1/e; about the mean time
            between turns of your traffic. Larger trusts the estimate of P more and
            recency less; hits are best between 100 and 800 s, depending on traffic and
            capacity (`benchmarks/perc_parameters.py` prints the table).
        cost_weight: exponent of the recompute cost per byte. With blocks of one size
            only attention's share makes late blocks dearer, so weights above 0 prefer
            the tails of long prompts: fewer recompute seconds at up to .25 with small
            tau_s, and ever fewer hits as tau_s * cost_weight grows.

    Returns:
        A policy whose score is in seconds on the trace's clock.

    Raises:
        InputError: if a parameter is negative or not finite.

    Example:
        >>> perc_decay(tau_s=60.0).uses
        ('time_s', 'resume_p')

    References:
        The name and the idea of cost x probability / bytes: aryanputta/cachepilot.
        Ageing an inflated key instead of decaying all scores: GreedyDual-Size (Cao and
        Irani 1997); exponential decay with time: LRFU (Lee et al. 2001).
        docs/theory.md derives the form that is used here.
    """
    for name, value in (("tau_s", tau_s), ("cost_weight", cost_weight)):
        check_number("perc_decay", name, value)
    score, uses = _score, ("time_s", "resume_p")
    if cost_weight > 0:
        score, uses = _cost_score, (*uses, "recompute_s", "tokens")
    params = {"tau_s": jnp.float32(tau_s), "cost_weight": jnp.float32(cost_weight)}
    return Policy(params, score, "perc_decay", uses=uses, chain=True)


def _score(params: dict, f: Features) -> jax.Array:
    return f.time_s + params["tau_s"] * _library(f).log(f.resume_p)


def _cost_score(params: dict, f: Features) -> jax.Array:
    xp = _library(f)
    # All tokens take the same bytes, so seconds a token stand for seconds a byte.
    density = f.recompute_s / f.tokens
    log_value = xp.log(f.resume_p) + params["cost_weight"] * xp.log(density)
    return f.time_s + params["tau_s"] * log_value


def _library(f: Features) -> ModuleType:
    """A running server asks for some blocks at a time, where NumPy answers faster."""
    return np if isinstance(f.time_s, np.ndarray) else jnp
