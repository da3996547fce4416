"""Its traffic: prompts and answers from hand-picked normals, Poisson arrivals, a spike.

Draws come from CPython's `random.Random`, in the order that gives its requests.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from perc.errors import InputError, check_number, check_whole

SHORTEST_PROMPT, SHORTEST_ANSWER = 32, 16  # tokens


class Workload(NamedTuple):
    """Lengths in tokens, times in seconds."""

    prompt: tuple[float, float]  # mean and deviation
    answer: tuple[float, float]
    token_s: float  # between two tokens
    rates_per_s: tuple[float, float]  # of the "seeded" engine's invented histories


WORKLOADS = {
    "chat": Workload((256, 128), (192, 96), 0.028, (0.3, 3.0)),
    "code": Workload((512, 256), (256, 128), 0.036, (0.1, 0.8)),
    "summarize": Workload((1024, 512), (128, 64), 0.025, (0.5, 2.0)),
    "longctx": Workload((8192, 2048), (512, 256), 0.055, (0.02, 0.15)),
}
MIXED = {"chat": 0.4, "code": 0.3, "summarize": 0.2, "longctx": 0.1}
NAMES = (*WORKLOADS, "mixed")


@dataclass(frozen=True)
class Traffic:
    """How many requests of what.

    Raises:
        InputError: for an unknown workload, a number out of range, or a spike at a
            request that does not exist.
    """

    workload: str = "mixed"
    requests: int = 1000
    rate_per_s: float = 10.0
    spike_at: int | None = None  # from this request on, arrivals are faster
    spike_multiplier: float = 4.0

    def __post_init__(self) -> None:
        if self.workload not in NAMES:
            raise InputError(
                f"no workload {self.workload!r}; there are {', '.join(NAMES)}."
            )
        check_whole("workload", "requests", self.requests, 1, 2**20)
        check_number("workload", "rate_per_s", self.rate_per_s, above=True)
        check_number("workload", "spike_multiplier", self.spike_multiplier, above=True)
        at = self.spike_at
        if at is not None and not 0 <= at < self.requests:
            raise InputError(
                f"a spike at request {at} of {self.requests}; give a number from 0 on, "
                "below that."
            )


class Request(NamedTuple):
    """One of them."""

    number: int
    workload: str
    arrival_s: float
    prompt: int  # tokens
    answer: int  # tokens

    @property
    def kind(self) -> Workload:
        """Its workload's numbers."""
        return WORKLOADS[self.workload]


def generate(traffic: Traffic, seed: int) -> list[Request]:
    """Its requests, draw for draw.

    A spike at request 0 is one from the start on; CachePilot takes it for none.

    >>> first = generate(Traffic(spike_at=300), 42)[0]
    >>> first.workload, first.prompt, first.answer, round(first.arrival_s, 10)
    ('chat', 241, 259, 0.1020060287)
    """
    draws, time_s, found = Random(seed), 0.0, []
    names, weights = [traffic.workload], [1.0]
    if traffic.workload == "mixed":
        names, weights = list(MIXED), list(MIXED.values())
    for i in range(traffic.requests):
        faster = traffic.spike_at is not None and i >= traffic.spike_at
        rate = traffic.rate_per_s * (traffic.spike_multiplier if faster else 1)
        time_s += draws.expovariate(rate)
        name = draws.choices(names, weights, k=1)[0]
        kind = WORKLOADS[name]
        prompt = max(SHORTEST_PROMPT, int(draws.gauss(*kind.prompt)))
        answer = max(SHORTEST_ANSWER, int(draws.gauss(*kind.answer)))
        found.append(Request(i, name, time_s, prompt, answer))
    return found
