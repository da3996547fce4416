"""Workload-aware: classes of requests differ in how soon their blocks come back."""

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import PrefillCost
from perc.errors import check_number
from perc.hazards import (
    FEW,
    class_of,
    follow_ups,
    gaps_before,
    known_at,
    n_classes,
    rates_by_class,
    refits,
    requests_of_share,
)
from perc.types import Features, Now, OnlinePolicy, Rescored, Trace


def workload_aware(
    *, life_s: float = 60.0, censored: bool = False, closed: bool = True
) -> OnlinePolicy:
    """Keeps what its class will most likely use within a block's life.

        P = exp(-lam * a) - exp(-lam * (a + life))

    for a block idle for `a` whose last request is of a class (kind, turn) that comes
    back at the rate `lam`: the chance that its reuse falls between `a` and `a + life`,
    so inside a class the order is LRU. The rates are fitted to the gaps between
    requests and their first follow-ups in the traffic so far, anew whenever a fifth
    more requests are known; `fit_workload_aware` fits them once to a part set aside.
    Before the first fit, and on traffic of one class, this is LRU.

    Args:
        life_s: seconds; not published, so sweep it.
        censored: count gaps that have not ended, as the likelihood of an exponential
            wants it. As published, the rates are those of the gaps that ended.
        closed: a block whose child is resident is no victim.

    Raises:
        InputError: if `life_s` is not above 0.

    Example:
        >>> workload_aware(life_s=30.0).name
        'workload_aware'

    References:
        Wang et al. 2025, "KVCache Cache in the Wild", arXiv 2506.02634, and
        vllm-project/vllm#22236. The formula is perc's reading of them; they give one
        queue a class in the order of LRU, and untagged requests LRU.
    """
    rule = _LEARNED[bool(censored), bool(closed)]
    return OnlinePolicy(_params(life_s), rule, "workload_aware", _USES)


def fit_workload_aware(
    trace: Trace,
    *,
    share: float = 1.0,
    life_s: float = 60.0,
    censored: bool = False,
    closed: bool = True,
    few: int = FEW,
) -> OnlinePolicy:
    """The policy `workload_aware` with rates fitted to the start of a trace.

    Args:
        trace: kinds are told by their number in it, so replay a trace that names the
            same kinds in the same order.
        share: of its requests, the first ones; what comes after is not looked at.
        life_s: seconds.
        censored: count gaps that have not ended.
        closed: a block whose child is resident is no victim.
        few: returns below which a class has the rate of all.

    Raises:
        InputError: if a parameter is out of range, or no request is left to learn from.

    Example:
        >>> import perc
        >>> policy = fit_workload_aware(perc.make("chat", requests=300), share=0.5)
        >>> policy.params["rate_per_s"].shape
        (24,)
    """
    cut = requests_of_share("fit_workload_aware", trace, share)
    gaps = gaps_before(trace, follow_ups(trace), cut)
    rate = rates_by_class(gaps, n_classes(trace), censored=censored, few=few)
    params = _params(life_s) | {"rate_per_s": jnp.asarray(rate, jnp.float32)}
    return OnlinePolicy(params, _FITTED[bool(closed)], "workload_aware", _USES)


_USES = ("time_s", "kind", "turn")


def _params(life_s: float) -> dict:
    check_number("workload_aware", "life_s", life_s, above=True)
    return {"life_s": jnp.float32(life_s)}


def _learn(params: dict, trace: Trace, cost: PrefillCost) -> dict[str, np.ndarray]:
    return _rates(trace, censored=False)


def _learn_censored(
    params: dict, trace: Trace, cost: PrefillCost
) -> dict[str, np.ndarray]:
    return _rates(trace, censored=True)


def _rates(trace: Trace, *, censored: bool) -> dict[str, np.ndarray]:
    follow_up, classes = follow_ups(trace), n_classes(trace)

    def fit(cut: int) -> np.ndarray:
        gaps = gaps_before(trace, follow_up, cut)
        return rates_by_class(gaps, classes, censored=censored)

    return refits(trace, np.zeros(classes), fit)


def _fitted(params: dict, f: Features, now: Now) -> jax.Array:
    return log_chance(params["rate_per_s"], params["life_s"], f, now)


def _learned(params: dict, f: Features, now: Now) -> jax.Array:
    return log_chance(known_at(now.learned, now.step), params["life_s"], f, now)


def log_chance(rate_per_s: jax.Array, life_s, f: Features, now: Now) -> jax.Array:
    """ln(exp(-lam * a) - exp(-lam * (a + life))) f32[...], rates f32[K] by class.

    The logarithm keeps what has been idle for long apart; -inf for a rate of 0.
    """
    in_life = jnp.log(-jnp.expm1(-rate_per_s * life_s))
    cls = class_of(f.kind, f.turn)
    return in_life[cls] - rate_per_s[cls] * (now.time_s - f.time_s)


_FITTED = {closed: Rescored(_fitted, closed=closed) for closed in (False, True)}
_LEARNED = {
    (censored, closed): Rescored(
        _learned, closed=closed, learn=_learn_censored if censored else _learn
    )
    for censored in (False, True)
    for closed in (False, True)
}
