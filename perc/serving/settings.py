"""The options of a simulated server, and the numbers that its compiled loop reads."""

from dataclasses import dataclass
from types import NoneType
from typing import Literal, NamedTuple, get_args

import numpy as np

from perc.errors import InputError, check_number, check_whole
from perc.floats import Array
from perc.online_aged import Watch
from perc.roofline import Roofline
from perc.serving.offload import Offload, TierRules, tier_rules

Batching = Literal["max_throughput", "low_latency", "adaptive", "static"]
Order = Literal["fcfs", "priority", "deadline", "program"]
MAX_THROUGHPUT, LOW_LATENCY, ADAPTIVE, STATIC = range(4)
MOST_SLOTS = 4096


@dataclass(frozen=True)
class Retention:
    """Prefixes of turns that have a next one are shielded for a while; `retained`."""

    threshold: int = 100  # more gaps than that are believed
    default_ttl_s: float = 0.0  # until so many are known
    most_s: float | None = None  # no shield is longer

    def __post_init__(self) -> None:
        check_whole("retention", "threshold", self.threshold, 0, 2**30)
        check_number("retention", "default_ttl_s", self.default_ttl_s)
        if self.most_s is not None:
            check_number("retention", "most_s", self.most_s)


@dataclass(frozen=True)
class Server:
    """How a server schedules. The defaults are vLLM's, but for the queue's bound.

    Raises:
        InputError: if a value is of the wrong type or out of range, or a step has
            fewer tokens than the requests that run: each decodes one.
    """

    capacity_blocks: int  # of the KV cache, in blocks of the trace
    token_budget: int = 8192  # tokens that a step computes at most
    max_running: int = 256  # requests at once
    max_queue: int | None = None  # what arrives at a longer queue is rejected
    order: Order = "fcfs"
    batching: Batching = "max_throughput"
    chunked: bool = True  # cut prompts at the token budget
    closed_loop: bool = False  # a turn starts when the one before has ended, and a gap
    cache_outputs: bool = False  # keep answers whose blocks a later turn names
    promote_within_s: float = 1.0  # order "deadline": so close, a request goes first
    adaptive_queue: int = 10  # batching "adaptive": longer queues mean throughput
    adaptive_latency_s: float = 0.04  # and so do faster steps
    offload: Offload | None = None  # tiers below the GPU's cache
    retention: Retention | None = None  # of turns' prefixes; needs the closed loop

    def __post_init__(self) -> None:
        owner = "server"
        _check_kinds(self)
        check_whole(owner, "capacity_blocks", self.capacity_blocks, 1, 2**30)
        check_whole(owner, "max_running", self.max_running, 1, MOST_SLOTS)
        check_whole(owner, "token_budget", self.token_budget, 1, 2**30)
        if self.max_queue is not None:
            check_whole(owner, "max_queue", self.max_queue, 0, 2**30)
        check_whole(owner, "adaptive_queue", self.adaptive_queue, 0, 2**30)
        check_number(owner, "promote_within_s", self.promote_within_s)
        check_number(owner, "adaptive_latency_s", self.adaptive_latency_s)
        _check_word("order", self.order, get_args(Order))
        _check_word("batching", self.batching, get_args(Batching))
        if self.retention is not None:
            self._check_retention()
        if self.token_budget < self.max_running:
            raise InputError(
                f"server: a token_budget of {self.token_budget} for {self.max_running} "
                "running requests, which decode a token each; give at least as many "
                "tokens, or a smaller max_running."
            )

    def _check_retention(self) -> None:
        if not self.closed_loop:
            raise InputError(
                "server: retention waits for the next turn, which comes when the one "
                "before has ended; take closed_loop=True (--closed-loop) as well."
            )


# The types of fields that are no numbers, and what to say of others.
_SWITCH = ((bool, np.bool_), "True or False")
_WORD = ((str,), "a word")
_KINDS = {
    "order": _WORD,
    "batching": _WORD,
    "chunked": _SWITCH,
    "closed_loop": _SWITCH,
    "cache_outputs": _SWITCH,
    "offload": ((Offload, NoneType), "an Offload or None"),
    "retention": ((Retention, NoneType), "a Retention or None"),
}


def _check_kinds(options: Server) -> None:
    for name, (allowed, wanted) in _KINDS.items():
        value = getattr(options, name)
        if not isinstance(value, allowed):
            raise InputError(f"server: {name} is {value!r}; give {wanted}.")


class RetentionRules(NamedTuple):
    """`Retention` as the compiled loop reads it."""

    threshold: Array  # i32[]
    default_ttl_s: Array  # f64[]
    most_s: Array  # f64[]
    protected_first: Array  # bool[], in the queue: order "program"


class Rules(NamedTuple):
    """`Server` as the compiled loop reads it: numbers that can be mapped over."""

    capacity: Array  # i32[]
    token_budget: Array  # i32[]
    max_running: Array  # i32[]
    max_queue: Array  # i32[]
    batching: Array  # i32[], one of the four above
    chunked: Array  # bool[]
    promote_within_s: Array  # f64[], -inf = never promote
    adaptive_queue: Array  # i32[]
    adaptive_latency_s: Array  # f64[]
    until_s: Array  # f64[], when to look, inf = when all is done
    sample_s: Array  # f64[], between the first points of the time series
    cost: Roofline
    tiers: TierRules | None  # None: the loop is compiled without them
    retention: RetentionRules | None  # the same
    watch: Watch | None = None  # of a policy's guard; None: it has none


def rules(server: Server, cost: Roofline, *, until_s: float, sample_s: float) -> Rules:
    """Lays a server out for the loop."""
    endless = 2**31 - 1
    promotes = server.order == "deadline"
    return Rules(
        capacity=np.int32(server.capacity_blocks),
        token_budget=np.int32(server.token_budget),
        max_running=np.int32(server.max_running),
        max_queue=np.int32(endless if server.max_queue is None else server.max_queue),
        batching=np.int32(get_args(Batching).index(server.batching)),
        chunked=np.bool_(server.chunked),
        promote_within_s=np.float64(server.promote_within_s if promotes else -np.inf),
        adaptive_queue=np.int32(server.adaptive_queue),
        adaptive_latency_s=np.float64(server.adaptive_latency_s),
        until_s=np.float64(until_s),
        sample_s=np.float64(sample_s),
        cost=Roofline(*(np.asarray(number, np.float64) for number in cost)),
        tiers=tier_rules(server.offload),
        retention=_retention_rules(server),
    )


def _retention_rules(server: Server) -> RetentionRules | None:
    kept = server.retention
    if kept is None:
        return None
    return RetentionRules(
        np.int32(kept.threshold),
        np.float64(kept.default_ttl_s),
        np.float64(np.inf if kept.most_s is None else kept.most_s),
        np.bool_(server.order == "program"),
    )


def _check_word(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"server: no {name} {value!r}; there are {', '.join(known)}.")
