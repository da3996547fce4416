"""Its seeded engine at equal work: who is evicted comes back, and is computed again.

    realised cost = sum over returns of tokens * 0.002 s

Every session decodes at every step, so an evicted one returns within milliseconds, by
evicting another: memory is taken round and round, and the order of victims decides
little. The clock moves by 0.03 s / 48 a step of a session.
"""

from dataclasses import dataclass
from typing import Any

from perc.cachepilot.reference import Engine, Machine, _Running
from perc.cachepilot.sessions import TOKEN_S, Session
from perc.cachepilot.workloads import Traffic, generate
from perc.errors import InputError

STEP_S = 0.03 / 48


@dataclass(frozen=True)
class Thrashed:
    """Realised beside estimated; every policy completes the same requests."""

    policy: str
    submitted: int
    completed: int
    tokens: int
    realised_s: float
    restores: int
    evictions: int
    estimated_s: float


class _Returning(Engine):
    """`Engine` where an eviction is no death."""

    def __init__(self, policy: str, machine: Machine, seed: int):
        super().__init__(policy, machine, "seeded", seed)
        self.away: dict[int, int] = {}  # tokens of evicted sessions
        self.realised_s, self.restores = 0.0, 0

    def tick(self) -> float:
        """The clock as it stands: steps move it."""
        return self.clock

    def evict(self, session: Session) -> None:
        self.away[session.id] = session.tokens
        super().evict(session)

    def decode(self, run: _Running, took_s: float) -> bool:
        self.clock += STEP_S
        number = run.request.number
        session = self.live.get(number)
        if session is None:
            session = self._restore(number)
        # The first gap after a return is 0.
        gap_s = self.clock - session.last_active
        if not self.grow(session):
            raise InputError("a session outgrew the memory; give more.")
        session.touch(self.clock, gap_s)
        self.book(run, took_s)
        return True

    def _restore(self, number: int) -> Session:
        tokens = self.away.pop(number)
        blocks = self.machine.need(tokens)
        if not self.take(blocks):
            raise InputError("a session outgrew the memory; give more.")
        self.realised_s += tokens * TOKEN_S
        self.restores += 1
        self.free += self.stray.pop(number, 0)
        session = Session(number, tokens, blocks, self.clock)
        self.live[number] = session
        return session


def thrash(
    policy: str, traffic: Traffic, machine: Machine, *, seed: int = 42
) -> Thrashed:
    """One run to the end of every request.

    Raises:
        InputError: for an unknown policy, or memory that is too small for a session.
    """
    engine: Any = _Returning(policy, machine, seed)
    found = engine.run(generate(traffic, seed))
    return Thrashed(
        policy,
        found.submitted,
        found.reached,
        found.tokens,
        engine.realised_s,
        engine.restores,
        found.evictions,
        found.cost_s,
    )
