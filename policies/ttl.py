"""Time to live: a finished turn's blocks are kept for as long as that pays."""

from bisect import insort
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import PrefillCost
from perc.errors import INT32_MAX, InputError, check_number, check_whole
from perc.hazards import best_ttl_s, follow_ups
from perc.shapes import pad
from perc.types import Features, Now, OnlinePolicy, Rescored, Trace


def ttl(
    *,
    queue_s: float = 60.0,
    eta: float = 1.0,
    least: int = 100,
    cold_s: float = 0.0,
    history: int = 1000,
) -> OnlinePolicy:
    """Protects a request's blocks for the time in which a follow-up is worth waiting.

        deadline = arrival + argmax_T F(T) * (queue_s * eta + R) - T

    `F` is the distribution of the gaps from requests of this kind to their follow-ups
    that have been seen so far, `R` the seconds to prefill the prompt. A block has the
    latest deadline of its users. Expired blocks leave first, in the order of LRU; when
    they are not enough, protected ones do, the nearest deadline first.

    A trace tells when requests arrive, so gaps are from arrival to arrival, and no turn
    is known to be the last. What a deadline costs is weighed as one second saved for
    each second of keeping, whatever the pressure: where `queue_s` is far below the
    gaps, nothing is protected and this is LRU. `perc.retention` gives fixed times by
    rules, and accounts for what they held.

    Args:
        queue_s: T_q, the queueing delay that a hit saves; a server measures it.
        eta: its weight; `perc.hazards.turn_eta` computes it from the lengths of
            completed sessions.
        least: a kind needs more gaps than this, else those of all kinds count, which
            must be more as well.
        cold_s: time to live before that.
        history: latest gaps that are remembered, of each kind and of all.

    Raises:
        InputError: if a parameter is out of range.

    Example:
        >>> ttl(queue_s=10.0).name
        'ttl'

    References:
        Li et al. 2025, "Continuum", arXiv 2511.02230. Thresholds and the order of
        release: zhengjiahong-ai/LLM-KV-Cache-Optimization.
    """
    for name, value in (("queue_s", queue_s), ("cold_s", cold_s)):
        check_number("ttl", name, value)
    if not -1 <= eta <= 1:
        raise InputError(f"ttl: eta is {eta}, must be -1 to 1.")
    check_whole("ttl", "least", least, 0, INT32_MAX)
    check_whole("ttl", "history", history, 1, 10**6)
    params = {
        "benefit_s": jnp.float32(queue_s * eta),
        "cold_s": jnp.float32(cold_s),
        "least": jnp.int32(least),
        "history": jnp.int32(history),
    }
    return OnlinePolicy(params, _RULE, "ttl", uses=("step", "depth"))


def deadlines_s(params: dict, trace: Trace, cost: PrefillCost) -> np.ndarray:
    """Deadline f64[N] of the block of each access, from that access on."""
    until_s = (trace.arrival_s + _ttls_s(params, trace, cost))[trace.request]
    # The latest of all users so far: a running maximum over the uses of each block.
    order = np.argsort(trace.block, kind="stable")
    offset = trace.block[order] * (1.0 + until_s.max(initial=0.0))
    latest = np.empty(trace.n_accesses)
    latest[order] = np.maximum.accumulate(until_s[order] + offset) - offset
    return latest


def _ttls_s(params: dict, trace: Trace, cost: PrefillCost) -> np.ndarray:
    """Time to live f64[R] of each request's blocks, from the gaps that it can know."""
    least, benefit_s = int(params["least"]), float(params["benefit_s"])
    saved_s = benefit_s + cost.prefill_s(trace.input_tokens)
    history = int(params["history"])
    everything, by_kind = _Recent(history), [_Recent(history) for _ in trace.kinds]
    parents = _gaps_that_end(trace)
    found = np.full(trace.n_requests, float(params["cold_s"]))
    for r in range(trace.n_requests):
        for parent in parents.get(r, ()):
            gap_s = float(trace.arrival_s[r] - trace.arrival_s[parent])
            everything.add(gap_s)
            by_kind[trace.kind[parent]].add(gap_s)
        own = by_kind[trace.kind[r]]
        samples = own if len(own) > least else everything
        if len(samples) > least:
            found[r] = best_ttl_s(samples.array(), float(saved_s[r]))
    return found


def _gaps_that_end(trace: Trace) -> dict[int, list[int]]:
    """The requests whose first follow-up each request is."""
    parents: dict[int, list[int]] = {}
    for parent, child in enumerate(follow_ups(trace).tolist()):
        parents.setdefault(child, []).append(parent)
    return parents


class _Recent:
    """The latest numbers, sorted."""

    def __init__(self, most: int):
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._most = most
        self._array: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        self._order.append(value)
        insort(self._sorted, value)
        if len(self._order) > self._most:
            self._sorted.remove(self._order.popleft())
        self._array = None

    def array(self) -> np.ndarray:
        if self._array is None:
            self._array = np.array(self._sorted)
        return self._array


def _learn(params: dict, trace: Trace, cost: PrefillCost) -> dict[str, np.ndarray]:
    until_s = deadlines_s(params, trace, cost).astype(np.float32)
    return {"until_s": pad(until_s, 0.0), "start": pad(trace.start, 0)}


def _score(params: dict, f: Features, now: Now) -> jax.Array:
    until_s = now.learned["until_s"][now.learned["start"][f.step] + f.depth]
    return jnp.where(until_s > now.time_s, until_s, -jnp.inf)


_RULE = Rescored(_score, learn=_learn)
