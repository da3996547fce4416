"""Hazard: how likely is a block to come back soon, given how long it has been idle?"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.cost import PrefillCost
from perc.errors import STEEPEST, InputError, check_number
from perc.hazards import (
    FEW,
    class_of,
    follow_ups,
    gaps_before,
    known_at,
    n_classes,
    refits,
    requests_of_share,
    survival_by_class,
)
from perc.types import Features, Now, OnlinePolicy, Rescored, Trace

FIRST_S, LAST_S, EDGES = 3.0, 3600.0, 81  # 0 and 80 points in equal ratios


def hazard(
    *, horizon_s: float = 200.0, cost_weight: float = 0.0, closed: bool = True
) -> OnlinePolicy:
    """Keeps what will most likely be used within a horizon, by class and idle time.

        score = P(return within H | idle for a) * (recompute seconds / tokens)**w
        P     = (S(a) - S(a + H)) / S(a)

    `S` is the survival of the gap from a request to its first follow-up, for the class
    (kind, turn) of the request that used the block last. It is estimated by
    Kaplan-Meier from the traffic so far, anew whenever a fifth more requests are known;
    `fit_hazard` estimates it once from a part set aside.

    It wins clearly where the cache is tight, and the best horizon grows with the
    capacity: on conversations 60 s at 3,000 blocks, 600 s from 10,000 on
    (`benchmarks/hazard.py`). It does not see that a block has several users.

    Args:
        horizon_s: H, in seconds.
        cost_weight: w; above 0 attention's share makes late blocks dearer.
        closed: a block whose child is resident is no victim. Without, hits are lost to
            prefixes with holes, but a larger cache never hits less.

    Raises:
        InputError: if a parameter is out of range.

    Example:
        >>> hazard(horizon_s=60.0).name
        'hazard'

    References:
        Kaplan and Meier 1958 for S. Ranking by the hazard of reuse: LRB (Song et al.
        2020) and LHD (Beckmann et al. 2018) for web and memory caches.
    """
    params = _params(horizon_s, cost_weight, _edges())
    rule = _LEARNED[bool(closed), cost_weight > 0]
    return OnlinePolicy(params, rule, "hazard", _uses(cost_weight))


def fit_hazard(
    trace: Trace,
    *,
    share: float = 1.0,
    horizon_s: float = 200.0,
    cost_weight: float = 0.0,
    closed: bool = True,
    edges_s: np.ndarray | None = None,
    few: int = FEW,
) -> OnlinePolicy:
    """The policy `hazard` with survival estimated from the start of a trace.

    Args:
        trace: kinds are told by their number in it, so replay a trace that names the
            same kinds in the same order.
        share: of its requests, the first ones; what comes after is not looked at.
        horizon_s: H, in seconds.
        cost_weight: w.
        closed: a block whose child is resident is no victim.
        edges_s: f64[E], where S is estimated: 0, then seconds in equal ratios.
        few: gaps below which a class shares an estimate, with other kinds of its turn
            or with all requests.

    Raises:
        InputError: if a parameter is out of range, or no request is left to learn from.

    Example:
        >>> import perc
        >>> policy = fit_hazard(perc.make("chat", requests=300), share=0.5)
        >>> policy.params["survival"].shape
        (24, 81)
    """
    cut = requests_of_share("fit_hazard", trace, share)
    edges = _edges() if edges_s is None else np.asarray(edges_s, np.float64)
    if len(edges) < 3 or edges[0] != 0 or not (np.diff(edges) > 0).all():
        raise InputError(f"fit_hazard: edges {edges} must rise from 0, three or more.")
    if np.ptp(np.diff(np.log(edges[1:]))) > 1e-3:
        raise InputError(f"fit_hazard: edges {edges} must keep one ratio above 0.")
    gaps = gaps_before(trace, follow_ups(trace), cut)
    found = survival_by_class(gaps, n_classes(trace), edges, few=few)
    params = _params(horizon_s, cost_weight, edges)
    params["survival"] = jnp.asarray(found, jnp.float32)
    rule = _FITTED[bool(closed), cost_weight > 0]
    return OnlinePolicy(params, rule, "hazard", _uses(cost_weight))


def _edges() -> np.ndarray:
    return np.r_[0.0, np.geomspace(FIRST_S, LAST_S, EDGES - 1)]


def _params(horizon_s: float, cost_weight: float, edges_s: np.ndarray) -> dict:
    check_number("hazard", "horizon_s", horizon_s, above=True)
    check_number("hazard", "cost_weight", cost_weight, high=STEEPEST)
    return {
        "horizon_s": jnp.float32(horizon_s),
        "cost_weight": jnp.float32(cost_weight),
        "edges_s": jnp.asarray(edges_s, jnp.float32),
    }


def _uses(cost_weight: float) -> tuple[str, ...]:
    return ("time_s", "kind", "turn") + ("recompute_s", "tokens") * (cost_weight > 0)


def _learn(params: dict, trace: Trace, cost: PrefillCost) -> dict[str, np.ndarray]:
    edges = np.asarray(params["edges_s"], np.float64)
    follow_up, classes = follow_ups(trace), n_classes(trace)

    def fit(cut: int) -> np.ndarray:
        return survival_by_class(gaps_before(trace, follow_up, cut), classes, edges)

    return refits(trace, np.ones((classes, len(edges))), fit)


def _fitted(params: dict, f: Features, now: Now) -> jax.Array:
    return return_within(params, params["survival"], f, now)


def _learned(params: dict, f: Features, now: Now) -> jax.Array:
    return return_within(params, known_at(now.learned, now.step), f, now)


def _fitted_cost(params: dict, f: Features, now: Now) -> jax.Array:
    return _fitted(params, f, now) * _density(params, f)


def _learned_cost(params: dict, f: Features, now: Now) -> jax.Array:
    return _learned(params, f, now) * _density(params, f)


def _density(params: dict, f: Features) -> jax.Array:
    return (f.recompute_s / f.tokens) ** params["cost_weight"]


def return_within(
    params: dict, survival: jax.Array, f: Features, now: Now
) -> jax.Array:
    """P(return within H | idle for a) f32[...], with survival f32[K, E] by class.

    S is linear between edges and constant after the last one.
    """
    edges, size = params["edges_s"], params["edges_s"].shape[0]
    slope = jnp.diff(survival) / jnp.diff(edges)
    slope = jnp.pad(slope, ((0, 0), (0, 1)))
    start = (survival - slope * edges).reshape(-1)  # of each piece, at idle time 0
    slope = slope.reshape(-1)
    per_ratio = (size - 2) / jnp.log(edges[-1] / edges[1])
    row = size * class_of(f.kind, f.turn)
    idle_s = now.time_s - f.time_s
    later_s = idle_s + params["horizon_s"]

    def piece(at_s):
        # Off by one at an edge is no harm: the pieces meet there.
        ratio = jnp.log(jnp.maximum(at_s, edges[1] * 1e-3) / edges[1])
        return row + jnp.clip(ratio * per_ratio + 1, 0, size - 1).astype(jnp.int32)

    # In a branch that is always taken: XLA cannot compute them again for each use.
    one, other = lax.cond(
        now.step >= 0,
        lambda: (piece(idle_s), piece(later_s)),
        lambda: (jnp.zeros_like(row),) * 2,
    )
    alive = start[one] + slope[one] * idle_s
    return (alive - start[other] - slope[other] * later_s) / jnp.maximum(alive, 1e-9)


_FLAGS = [(closed, costly) for closed in (False, True) for costly in (False, True)]
_FITTED = {
    (closed, costly): Rescored(_fitted_cost if costly else _fitted, closed=closed)
    for closed, costly in _FLAGS
}
_LEARNED = {
    (closed, costly): Rescored(
        _learned_cost if costly else _learned, closed=closed, learn=_learn
    )
    for closed, costly in _FLAGS
}
