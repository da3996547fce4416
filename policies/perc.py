"""PERC: expected recompute cost x probability of resumption / bytes and time held.

Keeping an idle block is a bet: it takes up room until it is used again or given up, and
pays its recomputation if it is used. Held for a time H from age a on, a block of which
the share S(a) is still unused at age a pays, for each byte and second that it takes,

                       C     S(a) - S(a + H)
    worth(a) = max    --- * -------------------------
                H      B     integral of S over (a, a + H)

the best rate at which it can repay its stay. The block with the lowest rate should
leave. S is the survival curve of the gap between uses, of blocks of the same class.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from perc.errors import STEEPEST, check_number
from perc.reuse import Reuse
from perc.types import Aged, Features, OnlinePolicy

TURNS, OCTAVES, KINDS = 6, 8, 16  # classes of each; what lies beyond joins the last
PRIOR = 0.1  # of blocks that reach a bin of age are used in it, before any was seen


def perc(
    *,
    smoothing: float = 200.0,
    horizon_s: float = 86_400.0,
    cost_weight: float = 0.0,
) -> OnlinePolicy:
    """The flagship: keeps what repays its room soonest, by what came back so far.

    Classes join whether a block is full, how often it was used (1, 2-3, 4-7, ...), and
    turn and kind of the request that used it last. Their survival curves are counted
    while the traffic runs (`perc.reuse`): causal, with blocks that still wait censored,
    fine classes drawn towards coarse ones while they are small. Nothing must be fitted,
    and nothing is tuned to a capacity: what a block is worth does not depend on the
    cache.

    A block whose child is resident is no victim, so no prefix has a hole. With classes
    that differ little, and before anything has returned, this is LRU.

    Args:
        smoothing: blocks; a class of that many leans on the coarser class by half.
        horizon_s: the longest stay that is considered, in seconds.
        cost_weight: exponent of the recompute seconds per token. Prefill's share of
            attention makes late blocks dearer, so weights above 0 keep the tails of
            long prompts: fewer recompute seconds, for fewer hits.

    Raises:
        InputError: if a parameter is negative, or not a number.

    Example:
        >>> perc(horizon_s=600.0).name
        'perc'

    References:
        The name, and the idea of cost x probability / bytes: aryanputta/cachepilot.
        Hits per space and time: Beckmann, Chen and Cidon 2018, "LHD: improving cache
        hit rate by maximizing hit density" (NSDI). The maximum over horizons is the
        index of Gittins 1979. Survival with censoring: Kaplan and Meier 1958.
    """
    check_number("perc", "smoothing", smoothing)
    check_number("perc", "cost_weight", cost_weight, high=STEEPEST)
    check_number("perc", "horizon_s", horizon_s, above=True)
    params = {
        "smoothing": jnp.float32(smoothing),
        "horizon_s": jnp.float32(horizon_s),
        "cost_weight": jnp.float32(cost_weight),
    }
    rule, uses = _RULE, ("tokens", "frequency", "turn", "kind")
    if cost_weight > 0:
        rule, uses = _COST_RULE, (*uses, "recompute_s")
    return OnlinePolicy(params, rule, "perc", uses=uses)


def _classes(f: Features) -> Sequence[np.ndarray]:
    octave = np.log2(f.frequency).astype(np.int32)
    partial = f.tokens < f.tokens.max(initial=0)  # the next turn fills it up
    return (
        np.asarray(partial, np.int32),
        np.minimum(octave, OCTAVES - 1),
        np.minimum(f.turn, TURNS) - 1,
        np.minimum(f.kind, KINDS - 1),
    )


def _cost_classes(f: Features) -> Sequence[np.ndarray]:
    """Divides classes by cost, in steps of half an octave."""
    step = np.floor(2 * np.log2(f.recompute_s / f.tokens)).astype(np.int32)
    return *_classes(f), step - step.min(initial=0)


@jax.jit
def _worth(params: dict, reuse: Reuse) -> jax.Array:
    ages = jnp.asarray(reuse.ages)
    hazard = _hazards(reuse, params["smoothing"])
    horizon_s = params["horizon_s"]
    rate = jax.lax.map(lambda h: _best_rate(h, ages, horizon_s), hazard)
    price = jnp.power(jnp.asarray(reuse.density), params["cost_weight"])
    return jnp.multiply(rate, price[:, :, None])


def _hazards(reuse: Reuse, smoothing: jax.Array) -> jax.Array:
    """P(used at an age | reached it) f32[E, K, A], from coarse classes to fine."""
    hazard = jnp.full((*reuse.events[0].shape[:1], 1, len(reuse.ages)), PRIOR)
    tiny = jnp.finfo(jnp.float32).tiny
    for events, at_risk, parent in zip(
        reuse.events, reuse.at_risk, reuse.parents, strict=True
    ):
        leaning = events + smoothing * hazard[:, parent]
        hazard = leaning / jnp.maximum(at_risk + smoothing, tiny)
    return jnp.asarray(hazard)


def _best_rate(hazard: jax.Array, ages: jax.Array, horizon_s: jax.Array) -> jax.Array:
    """Hits per block and second from each age on, f32[K, A], by the best stay."""
    alive = jnp.cumprod(1 - hazard, axis=1)
    alive = jnp.concatenate([jnp.ones_like(alive[:, :1]), alive[:, :-1]], axis=1)
    mean = (alive[:, 1:] + alive[:, :-1]) / 2
    held = jnp.cumsum(mean * jnp.diff(ages), axis=1)
    held = jnp.concatenate([jnp.zeros_like(held[:, :1]), held], axis=1)
    used = alive[:, :, None] - alive[:, None, :]
    taken = held[:, None, :] - held[:, :, None]
    now, then = jnp.arange(len(ages))[:, None], jnp.arange(len(ages))
    short = (ages[None] - ages[:, None] <= horizon_s) | (then == now + 1)
    counts = (then > now) & short & (taken > 0)
    rate = jnp.where(counts, used / jnp.where(counts, taken, 1), 0).max(axis=2)
    # Of the open last bin nothing is known but that its rate falls with age.
    last = rate[:, -2:-1] * ages[-2] / ages[-1]
    return jnp.concatenate([rate[:, :-1], last], axis=1)


_RULE = Aged(_classes, _worth)
_COST_RULE = Aged(_cost_classes, _worth)
