"""Documents read in passes, and the capacity at which the misses stop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perc.errors import INT32_MAX, InputError, check_whole
from perc.lab.caches import CACHES, Future
from perc.lab.tiers import ExclusiveCache, TwoTierCache, Where

# Four of ten documents of 5,011 tokens fit into the GPU.
GPU, DOCS, TOKENS, PASSES = 21520, 10, 5011, ("fwd", "fwd", "rev")
GPU_SCAN = (21520, 30000, 40000, 45000, 50109, 50110)
CPU_SCAN = (0, 20000, 30000, 40000, 50109, 50110, 56000)
ORDERS = ("fwd", "rev")


@dataclass(frozen=True)
class Scenario:
    """What is read, and through what; capacities in tokens.

    Raises:
        InputError: for a number out of range, or an unknown pass or policy.
    """

    gpu: int = GPU
    cpu: int = 0
    docs: int = DOCS
    tokens: int = TOKENS  # of a document
    passes: tuple[str, ...] = PASSES
    exclusive: bool = False  # the host holds what the GPU dropped, nothing else
    policy: str = "lru"  # of both tiers

    def __post_init__(self) -> None:
        for name in ("gpu", "cpu"):
            check_whole("lab", name, getattr(self, name), 0, 2**53)
        check_whole("lab", "docs", self.docs, 1, 2**20)
        check_whole("lab", "tokens", self.tokens, 1, INT32_MAX)
        for order in self.passes:
            if order not in ORDERS:
                raise InputError(
                    f"lab: no pass {order!r}; there are fwd (ascending) and rev."
                )
        if self.policy not in CACHES:
            known = ", ".join(CACHES)
            raise InputError(f"lab: no policy {self.policy!r}; there are {known}.")


class Pass(NamedTuple):
    """What one reading of all documents met."""

    order: str
    docs: list[int]  # as they were read
    where: list[Where]  # each was

    def count(self, where: Where) -> int:
        """Documents that were there."""
        return self.where.count(where)

    def hit_docs(self) -> list[int]:
        """Documents that were in either tier."""
        return [d for d, at in zip(self.docs, self.where, strict=True) if at != "miss"]

    def as_dict(self) -> dict:
        """What `perc lab` prints of it."""
        return {
            "order": self.order,
            "gpu_hits": self.count("gpu"),
            "cpu_hits": self.count("cpu"),
            "misses": self.count("miss"),
            "hit_docs": self.hit_docs(),
        }


def reading(scenario: Scenario, order: str) -> list[int]:
    """Documents in the order of a pass."""
    ascending = list(range(scenario.docs))
    return ascending if order == "fwd" else ascending[::-1]


def play(scenario: Scenario) -> tuple[list[Pass], TwoTierCache]:
    """Reads all passes through one cache.

    Example:
        >>> passes, cache = play(Scenario())
        >>> [one.hit_docs() for one in passes], cache.gpu.keys()
        ([[], [], [9, 8, 7, 6]], [3, 2, 1, 0])
    """
    orders = [reading(scenario, order) for order in scenario.passes]
    future = Future(doc for order in orders for doc in order)
    made = ExclusiveCache if scenario.exclusive else TwoTierCache
    kind = CACHES[scenario.policy]
    cache = made(scenario.gpu, scenario.cpu, kind=kind, future=future)
    found = []
    for name, order in zip(scenario.passes, orders, strict=True):
        where = []
        for doc in order:
            future.advance()
            where.append(cache.access(doc, scenario.tokens))
        found.append(Pass(name, order, where))
    return found, cache


def cliff(scenario: Scenario, capacities: Sequence[int] = GPU_SCAN) -> dict[str, int]:
    """Hits of either tier in the second pass, by capacity of the GPU.

    >>> cliff(Scenario(passes=("fwd", "fwd")), [50109, 50110])
    {'50109': 0, '50110': 10}
    """
    found = _second(scenario)
    return {str(n): len(found(gpu=n).hit_docs()) for n in capacities}


def cpu_cliff(
    scenario: Scenario, capacities: Sequence[int] = CPU_SCAN
) -> dict[str, int]:
    """Misses of the second pass, by capacity of the host.

    An inclusive host must hold all documents, an exclusive one what the GPU does not.

    >>> whole = Scenario(passes=("fwd", "fwd"))
    >>> cpu_cliff(whole, [30066, 50109, 50110])
    {'30066': 10, '50109': 10, '50110': 0}
    >>> cpu_cliff(replace(whole, exclusive=True), [30065, 30066])
    {'30065': 10, '30066': 0}
    """
    found = _second(scenario)
    return {str(n): found(cpu=n).count("miss") for n in capacities}


def _second(scenario: Scenario):
    if len(scenario.passes) < 2:
        raise InputError("lab: a cliff is that of the second pass; give two or more.")
    return lambda **change: play(replace(scenario, **change))[0][1]
