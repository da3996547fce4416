"""When does a request come back? Gaps, survival and rates, by class of request.

A *gap* is the time from a request to its first follow-up: the next request of its
session, or where sessions are inferred, the first one that extends its prompt. A gap
that has not ended when the data end is *censored*: it is known to be longer.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from perc.errors import InputError, check_number
from perc.shapes import bucket
from perc.traces.build import parent_requests
from perc.types import Trace

TURNS, KINDS = 6, 16  # classes: turns 1 to 5 and later ones, of each kind
FEW = 20  # gaps below which a class has no estimate of its own
FITS = 64  # estimates that `refits` has room for, the first after so many requests
NEVER = np.iinfo(np.int32).max


class Gaps(NamedTuple):
    """Times from requests to what came after them, as known at one moment."""

    time_s: np.ndarray  # f64[n], the gap, or how long it has lasted so far
    ended: np.ndarray  # bool[n], False = censored
    cls: np.ndarray  # i64[n], class of the request


def class_of(kind: Any, turn: Any) -> Any:
    """The class i32[...] of a request: TURNS * kind + turn - 1, both capped.

    Works on NumPy and JAX arrays.
    """
    return TURNS * kind.clip(0, KINDS - 1) + turn.clip(1, TURNS) - 1


def n_classes(trace: Trace) -> int:
    """Classes in a table for a trace; with room, so that traces share programs."""
    return TURNS * min(bucket(len(trace.kinds), 4), KINDS)


def follow_ups(trace: Trace) -> np.ndarray:
    """The first follow-up of each request, i32[R], R = none.

    Example:
        >>> import perc
        >>> trace = perc.make("chat", requests=100)
        >>> bool((follow_ups(trace) > np.arange(100)).all())
        True
    """
    if trace.sessions_inferred:
        parent = parent_requests(
            trace.request,
            trace.prev,
            trace.start,
            trace.stop,
            trace.input_tokens // trace.block_tokens,
        )
    else:
        order = np.argsort(trace.session, kind="stable")
        same = trace.session[order[1:]] == trace.session[order[:-1]]
        parent = np.full(trace.n_requests, -1, np.int32)
        parent[order[1:][same]] = order[:-1][same]
    first = np.full(trace.n_requests, trace.n_requests, np.int32)
    children = np.flatnonzero(parent >= 0)
    np.minimum.at(first, parent[children], children)
    return first


def requests_of_share(policy: str, trace: Trace, share: float) -> int:
    """How many requests the first `share` of a trace holds, at least one.

    Raises:
        InputError: naming the policy, unless that is so.
    """
    cut = int(trace.n_requests * check_number(policy, "share", share))
    if not 0 < cut <= trace.n_requests:
        raise InputError(
            f"{policy}: share {share} of {trace.n_requests} requests leaves {cut} to "
            "learn from; give a share above 0, up to 1."
        )
    return cut


def gaps_before(trace: Trace, follow_up: np.ndarray, cut: int) -> Gaps:
    """Gaps of the first `cut` requests, as known when the last of them has arrived."""
    ended = follow_up[:cut] < cut
    end = np.where(ended, follow_up[:cut], cut - 1)
    time_s = trace.arrival_s[end] - trace.arrival_s[:cut]
    return Gaps(time_s, ended, class_of(trace.kind[:cut], trace.turn[:cut]))


def survival(time_s: np.ndarray, ended: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Kaplan-Meier estimate of P(no return before each edge), f64[E].

        S(e_0) = 1,  S(e_j) = S(e_{j-1}) * (1 - returns in [e_{j-1}, e_j) / at risk)

    At risk are the gaps that have lasted e_{j-1} or longer, censored ones included.

    Args:
        time_s: f64[n], gaps in seconds.
        ended: bool[n], False = censored.
        edges_s: f64[E], rising from 0.

    Example:
        >>> gaps, ended = np.array([5.0, 10, 10, 30, 100]), np.arange(5) < 4
        >>> survival(gaps, ended, np.array([0.0, 8, 16, 32])).round(3).tolist()
        [1.0, 0.8, 0.4, 0.2]

    References:
        Kaplan and Meier 1958, "Nonparametric estimation from incomplete observations".
    """
    risk = len(time_s) - np.searchsorted(np.sort(time_s), edges_s[:-1])
    before = np.searchsorted(np.sort(time_s[ended]), edges_s)
    return np.cumprod(np.r_[1.0, 1 - np.diff(before) / np.maximum(risk, 1)])


def survival_by_class(
    gaps: Gaps, classes: int, edges_s: np.ndarray, *, few: int = FEW
) -> np.ndarray:
    """Survival f64[K, E] of each class; one with few gaps has that of its turn.

    And a turn with few gaps, in all kinds together, has that of all requests.
    """

    def of(mine: np.ndarray) -> np.ndarray:
        return survival(gaps.time_s[mine], gaps.ended[mine], edges_s)

    found = np.tile(of(np.ones(len(gaps.cls), bool)), (classes, 1))
    turn = gaps.cls % TURNS
    for t in range(TURNS):
        if np.count_nonzero(turn == t) >= few:
            found[t::TURNS] = of(turn == t)
    for cls in range(classes):
        if np.count_nonzero(gaps.cls == cls) >= few:
            found[cls] = of(gaps.cls == cls)
    return found


def rates_by_class(
    gaps: Gaps, classes: int, *, censored: bool = False, few: int = FEW
) -> np.ndarray:
    """Rates f64[K], 1/s, of exponentials fitted to the gaps of each class.

        rate = returns / sum of the gaps that ended       [of all gaps if `censored`]

    A class with few returns has the rate of all; 0 where there are few in all.
    """

    def rate(mine: np.ndarray) -> float:
        counted = mine if censored else mine & gaps.ended
        total = gaps.time_s[counted].sum()
        return np.count_nonzero(mine & gaps.ended) / max(total, 1e-9)

    returns = np.bincount(gaps.cls[gaps.ended], minlength=classes)
    if returns.sum() < few:
        return np.zeros(classes)
    found = np.full(classes, rate(np.ones(len(gaps.ended), bool)))
    for cls in np.flatnonzero(returns >= few):
        found[cls] = rate(gaps.cls == cls)
    return found


def refits(
    trace: Trace, unknown: np.ndarray, fit: Callable[[int], np.ndarray]
) -> dict[str, np.ndarray]:
    """Estimates as they would have been made while the traffic ran.

    A new one comes whenever a fifth more requests are known: after 64, 76, 91, ...

    Args:
        trace: the traffic.
        unknown: what to believe before the first estimate.
        fit: an estimate, shaped like `unknown`, from the first so many requests.

    Returns:
        `since` i32[FITS], the requests from which on each estimate holds, and `table`
        f32[FITS + 1, ...], the estimates behind `unknown`; `known_at` reads them.
    """
    since = (FITS * 2.0 ** (np.arange(FITS) / 4)).astype(np.int64)
    since = np.where(since < trace.n_requests, since, NEVER).astype(np.int32)
    table = [unknown, *(fit(int(cut)) for cut in since[since < NEVER])]
    table += [unknown] * (FITS + 1 - len(table))
    return {"since": since, "table": np.stack(table).astype(np.float32)}


def known_at(learned: dict[str, Any], step: Any) -> Any:
    """The estimate of `refits` that request `step` can know; traceable."""
    return learned["table"][(learned["since"] <= step).sum()]


def best_ttl_s(samples_s: np.ndarray, benefit_s: float) -> float:
    """How long to keep what saves `benefit_s` if it is used again in time.

        argmax over T in {0} and the samples of F(T) * benefit - T

    with F(T) the share of samples up to T; of equal ones the shortest T.

    Args:
        samples_s: f64[n], gaps seen so far, rising.
        benefit_s: seconds saved by a return in time.

    Example:
        >>> best_ttl_s(np.array([0.5, 0.5, 1.0, 20.0]), 5.0)
        1.0

    References:
        Continuum, arXiv 2511.02230.
    """
    share = np.arange(1, len(samples_s) + 1) / max(len(samples_s), 1)
    at_once = np.searchsorted(samples_s, 0.0, side="right") / max(len(samples_s), 1)
    gain = np.r_[at_once * benefit_s, share * benefit_s - samples_s]
    return float(np.r_[0.0, samples_s][np.argmax(gain)])


def return_probability(
    samples_s: ArrayLike, elapsed_s: float, remaining_s: float
) -> float:
    """P(return within `remaining_s` | none for `elapsed_s`); 1 without samples.

    Example:
        >>> return_probability([0.5, 0.5, 1.0, 20.0], elapsed_s=0.6, remaining_s=0.5)
        0.5

    References:
        Continuum, arXiv 2511.02230.
    """
    samples = np.asarray(samples_s, np.float64)
    if remaining_s <= 0:
        return 0.0
    if not len(samples):
        return 1.0
    past, end = (
        np.count_nonzero(samples <= t) for t in (elapsed_s, elapsed_s + remaining_s)
    )
    if past == len(samples):
        return 0.0
    return float((end - past) / (len(samples) - past))


def turn_eta(turns: Sequence[int]) -> float:
    """How far the turns that a session has had tell that few are left, -1 to 1.

    Minus the correlation of the turn with the number of turns to come, over turns 1 to
    n - 1 of completed sessions of n turns; 1 where there are fewer than two such turns
    or they do not differ.

    Example:
        >>> turn_eta([2, 6])
        0.5

    References:
        Continuum, arXiv 2511.02230: eta scales the queueing delay that a hit saves.
    """
    pairs = [(i, n - i) for n in turns for i in range(1, n)]
    if len(pairs) < 2:
        return 1.0
    i, left = np.array(pairs, np.float64).T
    spread = i.std() * left.std()
    if spread == 0:
        return 1.0
    covariance = ((i - i.mean()) * (left - left.mean())).mean()
    return round(float(-covariance / spread), 12)
