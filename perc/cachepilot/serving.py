"""The same traffic served to the end on a simulated clock: what evictions really cost.

    realised cost = sum over returns of C(tokens)      C: prefill seconds of a roofline

A session that is evicted waits until there is room for it again, and all its tokens are
computed again. Nothing is booked for a session that needs nothing any more. A step
decodes a token of every resident session and prefills who comes or returns; it takes
what `perc.roofline` says. Arrivals, spikes and batch modes count.

An eviction takes the shortfall only, never the session that asks. Every eviction
follows from a token that was made or from an arrival, so there is an end.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple, get_args

import numpy as np

from perc.cachepilot.reference import Machine
from perc.cachepilot.sessions import Key, Session, order_of, victims
from perc.cachepilot.workloads import Request, Traffic, generate
from perc.errors import InputError
from perc.roofline import Roofline

Batch = Literal["max_throughput", "low_latency", "adaptive"]
Admission = Literal["fits", "evict"]
MOST_PREFILLS, MOST_TOKENS = 32, 8192  # of a step; the first is always taken
LONG_QUEUE, FAST_STEP_S = 10, 0.04  # adaptive: either means throughput


class Clock(NamedTuple):
    """A roofline without windows, as plain numbers: a step takes microseconds here."""

    token_flops: float
    pair_flops: float  # of a query and a key
    token_bytes: float
    weight_bytes: float
    flops_per_s: float
    bytes_per_s: float

    def step_s(self, decoding: list[int], prompts: list[int]) -> float:
        """Seconds of a step: contexts that grow by a token, prompts that begin."""
        context, tokens = sum(decoding), sum(prompts)
        pairs = context + sum(n * n / 2 for n in prompts)
        flops = self.token_flops * (len(decoding) + tokens) + self.pair_flops * pairs
        moved = self.weight_bytes + self.token_bytes * (context + tokens)
        return max(flops / self.flops_per_s, moved / self.bytes_per_s)


def clock(cost: Roofline) -> Clock:
    """The numbers of a dense model on one card.

    Raises:
        InputError: for a model with windows or experts, or several cards.
    """
    windows = np.isfinite(cost.window_tokens) & (np.asarray(cost.kv_token_bytes) > 0)
    if windows.any() or cost.expert_bytes or cost.ranks != 1:
        raise InputError("bench: a dense model without windows on one card, please.")
    return Clock(
        float(cost.token_flops),
        float(np.sum(cost.decode_pair_flops)),
        float(np.sum(cost.kv_token_bytes)),
        float(cost.weight_bytes),
        float(cost.flops_per_s),
        float(cost.bytes_per_s),
    )


@dataclass(frozen=True)
class Rules:
    """How the server schedules.

    Raises:
        InputError: for an unknown word.
    """

    batch: Batch = "adaptive"
    admission: Admission = "fits"  # evict: a newcomer drives others out

    def __post_init__(self) -> None:
        for value, known in ((self.batch, Batch), (self.admission, Admission)):
            if value not in get_args(known):
                names = ", ".join(get_args(known))
                raise InputError(f"bench: no {value!r}; there are {names}.")


@dataclass
class Realised:
    """What a run cost."""

    policy: str
    submitted: int
    completed: int = 0
    rejected: int = 0  # could never fit
    tokens: int = 0
    evictions: int = 0
    restores: int = 0
    recompute_s: float = 0.0  # realised
    recompute_tokens: int = 0
    estimated_s: float = 0.0  # what PERC's formula says of the same evictions
    end_s: float = 0.0
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)  # a request's mean


@dataclass
class _Running:
    request: Request
    session: Session
    resident: bool = True
    made: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


class Server:
    """Its loop. `free + blocks of residents = usable` after every step."""

    def __init__(
        self, policy: str, machine: Machine, rules: Rules, cost: Clock, seed: int
    ):
        self.machine, self.rules, self.cost = machine, rules, cost
        draws = Random(seed)
        self.key: Key = (
            (lambda _: draws.random())
            if policy == "random"
            else order_of(policy, "random")
        )
        self.free, self.now, self.last_s = machine.blocks, 0.0, 0.0
        self.active: list[_Running] = []  # in the order of admission
        self.queue: deque[Request] = deque()
        self.returned: list[_Running] = []  # in this step
        self.found = Realised(policy, 0)

    def run(self, requests: list[Request]) -> Realised:
        """All requests, each to its end."""
        coming = deque(requests)
        self.found.submitted = len(requests)
        while coming or self.queue or self.active:
            if not self.queue and not self.active:
                self.now = max(self.now, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= self.now:
                self._arrive(coming.popleft())
            self.step()
        self.found.end_s = self.now
        return self.found

    def _arrive(self, request: Request) -> None:
        most = self.machine.need(request.prompt + request.answer)
        if most > self.machine.blocks:
            self.found.rejected += 1
        else:
            self.queue.append(request)

    def step(self) -> None:
        """Room for those that decode, then who returns, then who is new."""
        self._grow()
        self.returned = self._return()
        came = self._admit()
        fresh = self.returned + came
        new = {id(run) for run in fresh}
        decoders = [run for run in self.active if run.resident and id(run) not in new]
        if not decoders and not fresh:
            return
        took_s = self._seconds(decoders, fresh)
        self.now += took_s
        self.last_s = took_s
        for run in [*decoders, *fresh]:
            self._token(run)
        self.active = [run for run in self.active if not self._over(run)]
        held = sum(run.session.blocks for run in self.active if run.resident)
        if self.free + held != self.machine.blocks:
            raise AssertionError("blocks were lost")

    def _grow(self) -> None:
        """Room for the next token of each resident session, oldest first."""
        for run in list(self.active):
            if not run.resident:
                continue
            session = run.session
            more = self.machine.need(session.tokens + 1) - session.blocks
            if more > 0:
                self._make_room(more, [run])
                self.free -= more
                session.blocks += more

    def _make_room(self, blocks: int, kept: list[_Running]) -> bool:
        """Evicts for what is missing, but nobody of `kept`; False: not possible."""
        spared = {id(run) for run in kept}
        by_id = {
            run.session.id: run
            for run in self.active
            if run.resident and id(run) not in spared
        }
        sessions = [run.session for run in by_id.values()]
        if sum(session.blocks for session in sessions) + self.free < blocks:
            return False
        for session in victims(sessions, self.key, blocks - self.free):
            self.found.evictions += 1
            self.found.estimated_s += session.cost_s
            self.free += session.blocks
            by_id[session.id].resident = False
        return True

    def _return(self) -> list[_Running]:
        """Evicted sessions come back first, in their order, while they fit."""
        found: list[_Running] = []
        for run in self.active:
            if run.resident:
                continue
            session = run.session
            blocks = self.machine.need(session.tokens + 1)
            if blocks > self.free or not self._batched(found, session.tokens):
                break
            self.free -= blocks
            session.blocks, run.resident = blocks, True
            self.found.restores += 1
            self.found.recompute_tokens += session.tokens
            self.found.recompute_s += self.cost.step_s([], [session.tokens])
            found.append(run)
        return found

    def _admit(self) -> list[_Running]:
        """The queue, unless an evicted session waits."""
        found: list[_Running] = []
        waits = any(not run.resident for run in self.active)
        evict = self.rules.admission == "evict"
        while self.queue and len(self.active) < self.machine.concurrent:
            request = self.queue[0]
            blocks = self.machine.need(request.prompt + 1)
            if not self._batched([*self.returned, *found], request.prompt):
                break
            if waits and not evict:
                break
            if blocks > self.free:  # one newcomer a step may drive others out
                if not evict or found or not self._make_room(blocks, self.returned):
                    break
            self.queue.popleft()
            self.free -= blocks
            session = Session(request.number, request.prompt, blocks, self.found.tokens)
            run = _Running(request, session)
            self.active.append(run)
            found.append(run)
        return found

    def _batched(self, taken: list[_Running], tokens: int) -> bool:
        """Whether a step has room for one prompt more."""
        if not taken:
            return True
        mode = self.rules.batch
        fast = len(self.queue) > LONG_QUEUE or self.last_s < FAST_STEP_S
        if mode == "low_latency" or (mode == "adaptive" and not fast):
            return False
        given = sum(run.session.tokens for run in taken)
        return len(taken) < MOST_PREFILLS and given + tokens <= MOST_TOKENS

    def _seconds(self, decoders: list[_Running], fresh: list[_Running]) -> float:
        old = [run.session.tokens + 1 for run in decoders]
        return self.cost.step_s(old, [run.session.tokens for run in fresh])

    def _token(self, run: _Running) -> None:
        session = run.session
        session.tokens += 1
        run.made += 1
        self.found.tokens += 1  # also the clock of recency, which knows no ties
        if run.made == 1:
            run.first_s = self.now
            self.found.ttft_s.append(self.now - run.request.arrival_s)
            session.last_active = self.found.tokens
        else:
            session.touch(self.found.tokens, self.now - run.last_s)
        run.last_s = self.now

    def _over(self, run: _Running) -> bool:
        if run.made < run.request.answer:
            return False
        self.free += run.session.blocks
        self.found.completed += 1
        gaps = max(run.made - 1, 1)
        self.found.tpot_s.append((self.now - run.first_s) / gaps)
        return True


def serve(
    policy: str,
    traffic: Traffic,
    machine: Machine,
    cost: Clock,
    *,
    rules: Rules | None = None,
    seed: int = 42,
) -> Realised:
    """Serves the traffic of one seed under one order of victims.

    Args:
        policy: of `sessions.ORDERS`, or random.
        traffic: the requests.
        machine: memory and concurrency.
        cost: of a step, from `clock`.
        rules: batch mode and admission.
        seed: of the traffic, and of `random`.

    Raises:
        InputError: for an unknown policy.
    """
    server = Server(policy, machine, rules or Rules(), cost, seed)
    return server.run(generate(traffic, seed))
