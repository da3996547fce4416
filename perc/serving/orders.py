"""The order of the queue: one key a request, the least goes first.

    key = band * 2**32 + place        no two are equal

    fcfs       place = arrivals so far
    priority   band = how many higher priorities there are; place as above
    deadline   the same, and a request close to its deadline moves to band -1
    program    band 0 = follow-ups, 1 = first turns; place = when the program began

A preempted request keeps its key, so it comes before all that arrived later. The last
in this order of those that run is the first to be preempted. A deadline moves a request
that runs as it moves one that waits.

References:
    Priorities with promotion: aryanputta/cachepilot, `scheduler`. Programs before
    requests: Li et al. 2025, "Continuum".
"""

from typing import NamedTuple

import numpy as np

from perc.serving.settings import Order
from perc.types import Trace

BAND = 2.0**32  # keys are whole numbers, exact in a float64 up to 2**20 bands


class Places(NamedTuple):
    """What of a key is known before a request arrives."""

    band: np.ndarray  # f64[R]
    place: np.ndarray  # f64[R], -1 = the number of arrivals before it


def places(trace: Trace, order: Order) -> Places:
    """Bands and places of R requests."""
    band = np.zeros(trace.n_requests)
    place = np.full(trace.n_requests, -1.0)
    if order in ("priority", "deadline"):
        _, rising = np.unique(-trace.priority.astype(np.int64), return_inverse=True)
        band = rising.reshape(-1).astype(np.float64)
    if order == "program":
        _, first, of = np.unique(trace.session, return_index=True, return_inverse=True)
        begun = first[of.reshape(-1)]
        band = (begun == np.arange(trace.n_requests)).astype(np.float64)
        place[np.argsort(begun, kind="stable")] = np.arange(trace.n_requests)
    return Places(band, place)
