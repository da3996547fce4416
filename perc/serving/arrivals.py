"""When requests arrive: at the trace's own times, faster, at random, or in a spike.

    scaled    t / load
    poisson   gaps ~ Exp(rate), in the trace's order
    spike     gaps after a request divided by a factor
    closed    a turn arrives when the one before it ends, and a gap later

The gap of a closed loop is what lies between two turns of the trace, less what serving
the earlier of them alone would take; the trace tells no end. `scaled` makes it shorter,
as all times; a queue does not: people do not read faster because others came. `poisson`
and `spike` would replace it, so `perc simulate` refuses them with a closed loop.
"""

import dataclasses

import numpy as np

from perc.errors import InputError, check_number
from perc.roofline import Roofline
from perc.types import Trace


def scaled(trace: Trace, load: float) -> Trace:
    """The same requests, `load` times as fast.

    Raises:
        InputError: unless the load is above 0.
    """
    check_number("arrivals", "load", load, above=True)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / load)


def poisson(trace: Trace, rate_per_s: float, *, seed: int = 0) -> Trace:
    """The same requests in the same order, at independent random times.

    Raises:
        InputError: unless the rate is above 0.
    """
    check_number("arrivals", "rate_per_s", rate_per_s, above=True)
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, trace.n_requests)
    return dataclasses.replace(trace, arrival_s=np.cumsum(gaps))


def spike(trace: Trace, at: int, *, multiplier: float = 4.0) -> Trace:
    """From request `at` on, gaps are `multiplier` times as short.

    Raises:
        InputError: if there is no such request, or the multiplier is not above 0.
    """
    check_number("arrivals", "spike multiplier", multiplier, above=True)
    if not 0 <= at < trace.n_requests:
        raise InputError(
            f"a spike at request {at} of {trace.n_requests}; give a number from 0 on, "
            "below that."
        )
    gaps = np.diff(trace.arrival_s, prepend=0.0)
    gaps[at:] /= multiplier
    return dataclasses.replace(trace, arrival_s=np.cumsum(gaps))


def next_turns(trace: Trace) -> np.ndarray:
    """The next request i32[R] of the same session, -1 = none."""
    following = np.full(trace.n_requests, -1, np.int32)
    order = np.argsort(trace.session, kind="stable")
    same = np.diff(trace.session[order]) == 0
    following[order[:-1][same]] = order[1:][same]
    return following


def alone_s(trace: Trace, cost: Roofline) -> np.ndarray:
    """Seconds f64[R] to serve each request alone, with nothing cached."""
    prompt, answer = np.maximum(trace.input_tokens, 1), trace.output_tokens
    middle = prompt + answer / 2  # decode is linear in the context but for windows
    more = np.maximum(answer - 1, 0)
    return cost.prefill_s(prompt) + more * cost.decode_s(1, middle)


def gaps_s(trace: Trace, cost: Roofline) -> np.ndarray:
    """Seconds f64[R] from the end of each request to the next turn of its session."""
    following = next_turns(trace)
    apart = trace.arrival_s[following] - trace.arrival_s
    gap = np.maximum(apart - alone_s(trace, cost), 0.0)
    return np.where(following >= 0, gap, np.inf)
