"""Its engine in reference mode: every published digit, and nothing but estimates.

    cost = sum over evictions of tokens * 0.002 s * p       nothing is computed again

Its wall clock becomes a counter and its gaps between tokens 0 s, which gives the
digits of the first commit exactly and those of the last one but for near-ties. Arrival
times play no part, an evicted session dies at its next token, and who made one token
counts as served. Faults are kept on purpose; `serving` has none of them.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

import numpy as np

from perc.cachepilot.sessions import (
    TOKEN_S,
    Session,
    blocks_of,
    order_of,
    usable_blocks,
    victims,
)
from perc.cachepilot.workloads import WORKLOADS, Request, Traffic, generate
from perc.errors import InputError, check_number, check_whole

VARIANTS = ("classic", "seeded")
HISTORY_RANGES = (*(w.rates_per_s for w in WORKLOADS.values()), (0.05, 1.0))
MOST_DEFERRALS = 2
JITTER = 0.05  # of a gap between two tokens
SHORTEST_TOKEN_S = 1e-5
SAMPLE_TICKS = 10


@dataclass(frozen=True)
class Machine:
    """Memory and concurrency.

    Raises:
        InputError: for a number out of range or an unknown format.
    """

    vram_gib: float = 24.0
    pinned_share: float = 0.35
    concurrent: int = 32
    kv: str = "fp16"

    def __post_init__(self) -> None:
        check_number("bench", "vram_gib", self.vram_gib, above=True)
        check_number("bench", "pinned_share", self.pinned_share, high=1.0)
        check_whole("bench", "concurrent", self.concurrent, 1, 2**16)
        if self.kv.lower() not in ("fp16", "int8", "fp8"):
            raise InputError(f"no format {self.kv!r}; there are fp16, int8, fp8.")
        if self.blocks < 1:
            raise InputError(
                f"{self.vram_gib:g} GiB with {self.pinned_share:.0%} pinned leave no "
                "block; give more memory."
            )

    @property
    def blocks(self) -> int:
        """Usable ones."""
        return usable_blocks(self.vram_gib, self.pinned_share)

    def need(self, tokens: int) -> int:
        """Blocks of a session of so many tokens."""
        return blocks_of(tokens, self.kv.lower())


@dataclass
class Estimated:
    """What a run says of itself; all costs are *estimated*, by PERC's own formula."""

    policy: str
    variant: str
    submitted: int
    cost_s: float = 0.0
    evictions: int = 0
    evicted_tokens: int = 0
    evicted_early: int = 0  # before their first token
    served: int = 0  # with one token or more, killed afterwards or not
    reached: int = 0  # came to their last token
    dropped: int = 0
    deferrals: int = 0
    tokens: int = 0
    tpot_s: list[float] = field(default_factory=list)
    utilisation: list[float] = field(default_factory=list)

    @property
    def certain_cost_s(self) -> float:
        """The same with p = 1: whoever decodes does return."""
        return self.evicted_tokens * TOKEN_S

    def tpot_ms(self, percent: float) -> float:
        """A percentile of the drawn gaps between tokens."""
        return float(np.percentile(self.tpot_s, percent)) * 1000 if self.tpot_s else 0.0


@dataclass
class _Running:
    request: Request
    target: int
    made: int = 0  # steps that drew, one more than tokens if it was evicted
    booked: int = 0  # tokens


class Engine:
    """Its loop."""

    def __init__(self, policy: str, machine: Machine, variant: str, seed: int):
        if variant not in VARIANTS:
            raise InputError(
                f"no variant {variant!r}; there are {', '.join(VARIANTS)}."
            )
        self.key, self.machine = order_of(policy), machine
        self.seeded = variant == "seeded"
        self.draws = Random(seed + 1)
        self.free, self.clock = machine.blocks, 0.0
        self.live: dict[int, Session] = {}
        self.active: list[_Running] = []
        self.begun: set[int] = set()  # have booked a token
        self.stray: dict[int, int] = {}  # blocks of sessions that evicted themselves
        self.found = Estimated(policy, variant, 0)

    def run(self, requests: list[Request]) -> Estimated:
        """All requests, to the bitter end."""
        self.found.submitted = len(requests)
        pending, deferred = deque(requests), deque()
        tries: dict[int, int] = {}
        ticks = 0
        while pending or deferred or self.active:
            while len(self.active) < self.machine.concurrent and (pending or deferred):
                request = (deferred or pending).popleft()
                if not self._admit(request):
                    self._refused(request, deferred, tries)
            if not self.active:
                continue
            ended = [at for at, run in enumerate(self.active) if self._step(run)]
            for at in reversed(ended):
                self._retire(self.active.pop(at))
            ticks += 1
            if ticks % SAMPLE_TICKS == 0:
                used = self.machine.blocks - self.free
                self.found.utilisation.append(used / self.machine.blocks)
        return self.found

    def _refused(self, request: Request, deferred: deque, tries: dict[int, int]):
        tries[request.number] = tries.get(request.number, 0) + 1
        if self.seeded and tries[request.number] <= MOST_DEFERRALS:
            self.found.deferrals += 1
            deferred.append(request)
        else:
            self.found.dropped += 1

    def _admit(self, request: Request) -> bool:
        gaps_s = self._history(request) if self.seeded else []
        blocks = self.machine.need(request.prompt)
        if not self.take(blocks):
            return False
        session = Session(request.number, request.prompt, blocks, self.tick())
        session.record(gaps_s)
        self.live[request.number] = session
        self.active.append(_Running(request, request.answer))
        return True

    def _history(self, request: Request) -> list[float]:
        """An invented past: the only signal that its policy ever gets."""
        rates = [self.draws.uniform(*between) for between in HISTORY_RANGES]
        many = self.draws.randint(3, 8)
        return [1 / rates[list(WORKLOADS).index(request.workload)]] * many

    def tick(self) -> float:
        """The next moment of a clock that only orders."""
        self.clock += 1
        return self.clock

    def take(self, blocks: int) -> bool:
        """Takes blocks; evicts for *all* of them if they are not free, as it does."""
        if self.free < blocks:
            leaving = victims(self.live.values(), self.key, blocks)
            for session in leaving:
                self.evict(session)
            if sum(session.blocks for session in leaving) < blocks:
                return False
        self.free -= blocks
        return True

    def evict(self, session: Session) -> None:
        """Logs a victim at its estimated cost, and forgets it."""
        self.found.evictions += 1
        self.found.cost_s += session.cost_s
        self.found.evicted_tokens += session.tokens
        self.found.evicted_early += session.id not in self.begun
        self.free += session.blocks
        del self.live[session.id]

    def _step(self, run: _Running) -> bool:
        """One token of a session; whether it ends."""
        if run.made >= run.target:
            return True
        gap_s = run.request.kind.token_s
        took_s = max(gap_s + self.draws.gauss(0, JITTER * gap_s), SHORTEST_TOKEN_S)
        run.made += 1
        return not self.decode(run, took_s)

    def decode(self, run: _Running, took_s: float) -> bool:
        """Books a token, unless the session was evicted or cannot grow."""
        session = self.live.get(run.request.number)
        if session is None:
            return False
        if not self.grow(session):
            return False
        session.touch(self.tick(), 0.0)
        self.book(run, took_s)
        return True

    def grow(self, session: Session) -> bool:
        """Room for one token more, taken from whoever is first in the order."""
        more = self.machine.need(session.tokens + 1) - session.blocks
        if more > 0:
            if not self.take(more):
                return False
            session.blocks += more
            if session.id not in self.live:  # it was its own victim
                self.stray[session.id] = more
        session.tokens += 1
        return True

    def book(self, run: _Running, took_s: float) -> None:
        """A token was made."""
        run.booked += 1
        self.begun.add(run.request.number)
        self.found.tokens += 1
        self.found.tpot_s.append(took_s)

    def _retire(self, run: _Running) -> None:
        session = self.live.pop(run.request.number, None)
        if session is not None:
            self.free += session.blocks
        self.free += self.stray.pop(run.request.number, 0)
        self.found.served += run.booked > 0
        self.found.reached += run.made >= run.target


def estimate(
    policy: str,
    traffic: Traffic,
    machine: Machine,
    *,
    variant: str = "classic",
    seed: int = 42,
) -> Estimated:
    """One run of its engine.

    Args:
        policy: a name of `sessions.ORDERS`.
        traffic: the requests; their arrival times change nothing here.
        machine: memory and concurrency.
        variant: classic = its first commit; seeded = its last, which invents a history
            for each session.
        seed: of the traffic; the engine's own draws take the next one.

    Raises:
        InputError: for an unknown policy or variant.
    """
    return Engine(policy, machine, variant, seed).run(generate(traffic, seed))
