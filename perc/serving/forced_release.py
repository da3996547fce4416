"""Protected prefixes under pressure: a small world of programs, blocks and gaps.

Free blocks stand in a list, least recently freed first. Those of protected prefixes are
passed over, until there are too few others; then protection is broken, one prefix
after the other:

    deadline    the earliest deadline first
    cost        least P(returns in time) * R(tokens) / blocks first

Nothing deadlocks: a request waits only for blocks that running turns hold, and those
end. `LAB` has the scenarios of KVopt's own lab.

References:
    zhengjiahong-ai, LLM-KV-Cache-Optimization: its forced-release lab, digit for digit
    with `owned=False`, which takes blocks that were overwritten for hits.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from perc.errors import InputError
from perc.serving.lifecycle import Histories, return_chance

Reload = Callable[[int], float]
ORDERS = ("deadline", "cost")
SEED, RETRY_S, TURN_S, BLOCK_TOKENS = 20260924, 0.1, 0.5, 16
RELOAD_S_PER_TOKEN = 0.0887301250040764 / 256
THRESHOLD, DEFAULT_TTL_S = 4, 2.0
PROFILES = {  # median and sigma of a lognormal gap
    "fast": (1.0, 0.4),
    "search": (4.0, 0.6),
    "slow": (20.0, 1.0),
    "heavy": (5.0, 1.2),
}


@dataclass(frozen=True)
class Scenario:
    """Programs of four turns on so many blocks."""

    name: str
    capacity: int
    programs: int
    tokens: tuple[int, ...]  # by program, in turn
    profiles: tuple[str, ...]
    spacing_s: float
    overhead_s: float = 0.0  # of every reload


LAB = (
    Scenario("uniform_medium", 1000, 16, (2048,), ("search",), 1.0),
    Scenario("mixed_length", 3000, 16, (1024, 4096, 16384, 32768), ("search",), 1.5),
    Scenario("fast_slow_tools", 2000, 16, (4096,), ("fast", "slow"), 1.0),
    Scenario("anticorrelated_size_gap", 3000, 16, (32768, 2048), ("fast", "slow"), 1.2),
    Scenario("high_pressure", 700, 16, (2048,), ("search",), 1.0),
    Scenario("heavy_tail_aged", 5000, 20, (32768, 65536), ("heavy",), 0.8),
    Scenario(
        "affine_prefill_overhead",
        2600,
        20,
        (512, 4096, 16384, 32768),
        ("search",),
        1.0,
        overhead_s=0.5,
    ),
)


@dataclass
class Program:
    """A session: what it asks for, and where it is."""

    id: int
    begin_s: float
    tokens: int
    tool: str
    gaps_s: list[float]  # one fewer than turns
    turn: int = 0
    blocks: list[int] = field(default_factory=list)
    finished_s: float = 0.0
    since_s: float | None = None  # waiting

    @property
    def need(self) -> int:
        """Blocks."""
        return -(-self.tokens // BLOCK_TOKENS)


@dataclass
class Entry:
    """A prefix that is, or was, protected."""

    program: int
    blocks: set[int]
    begin_s: float
    deadline_s: float
    reload_s: float
    samples: list[float]
    protected: bool = True
    waiting: bool = False


@dataclass
class Outcome:
    """What happened."""

    releases: int = 0
    hits: int = 0
    misses: int = 0
    recompute_s: float = 0.0
    wait_s: float = 0.0
    victims: int = 0


class World:
    """Blocks, programs and a heap of events."""

    def __init__(
        self, capacity: int, reload: Reload, *, order: str, owned: bool, wait_weight=0.0
    ):
        if order not in ORDERS:
            raise InputError(f"no release order {order!r}; there are deadline, cost.")
        self.reload, self.order, self.owned = reload, order, owned
        self.wait_weight = wait_weight
        self.free: dict[int, None] = dict.fromkeys(range(capacity))
        self.tag: dict[int, int] = {}  # block -> program whose prefix it holds
        self.entries: dict[int, Entry] = {}
        self.owners: dict[int, set[int]] = {}  # block -> entries
        self.seen = Histories(THRESHOLD, DEFAULT_TTL_S)
        self.found = Outcome()
        self.events: list[tuple[float, int, str, Program]] = []
        self.sequence = 0

    def run(self, programs: Iterable[Program]) -> Outcome:
        """Until all programs have ended."""
        for program in programs:
            self.at(program.begin_s, "arrive", program)
        while self.events:
            now, _, what, program = heapq.heappop(self.events)
            if what == "arrive":
                self.arrive(now, program)
            else:
                self.finish(now, program)
        return self.found

    def at(self, time_s: float, what: str, program: Program) -> None:
        """An event, after those of the same time."""
        heapq.heappush(self.events, (time_s, self.sequence, what, program))
        self.sequence += 1

    def arrive(self, now: float, program: Program) -> None:
        """Admits a turn, or lets it try again."""
        hit = program.turn > 0 and self.is_hit(program)
        need = 0 if hit else program.need
        entry = self.entries.get(program.id)
        if need > len(self.free):
            if entry is not None and entry.protected:
                entry.waiting = entry.deadline_s > now or entry.waiting
            if program.since_s is None:
                program.since_s = now
            self.at(now + RETRY_S, "arrive", program)
            return
        if program.since_s is not None:
            self.found.wait_s += now - program.since_s
            program.since_s = None
        paid_s = 0.0
        if program.turn:
            self.seen.gap(program.tool, now - program.finished_s)
            self.found.hits += hit
            self.found.misses += not hit
        if hit:
            for block in program.blocks:
                del self.free[block]
        else:
            program.blocks = self.allocate(now, need)
            if program.turn:
                paid_s = self.reload(program.tokens)
                self.found.recompute_s += paid_s
                self.seen.waits_s.append(paid_s)
        if entry is not None:
            entry.protected = entry.waiting = False
        self.at(now + paid_s + TURN_S, "finish", program)

    def is_hit(self, program: Program) -> bool:
        """Every block is free, and still holds this prefix if that is looked at."""
        if not all(map(self.free.__contains__, program.blocks)):
            return False
        tags = map(self.tag.get, program.blocks)
        return not self.owned or all(tag == program.id for tag in tags)

    def finish(self, now: float, program: Program) -> None:
        """A turn ends: its prefix is protected for a while, or never needed again."""
        self.forget(program.id)
        if program.turn < len(program.gaps_s):
            reload_s = self.reload(program.tokens)
            ttl_s, samples = self.seen.decide(program.tool, reload_s)
            entry = Entry(
                program.id, set(program.blocks), now, now + ttl_s, reload_s, samples
            )
            self.entries[program.id] = entry
            for block in program.blocks:
                self.owners.setdefault(block, set()).add(program.id)
        else:
            self.seen.turns.append(program.turn + 1)
        for block in program.blocks:
            self.tag[block] = program.id
            self.free[block] = None
        program.finished_s = now
        program.turn += 1
        if program.turn <= len(program.gaps_s):
            self.at(now + program.gaps_s[program.turn - 1], "arrive", program)

    def forget(self, program: int) -> None:
        """Deletes an entry."""
        entry = self.entries.pop(program, None)
        for block in entry.blocks if entry else ():
            self.owners[block].discard(program)

    def allocate(self, now: float, need: int) -> list[int]:
        """Takes blocks from the free list, protected ones last."""
        for entry in self.entries.values():
            if entry.protected and entry.deadline_s <= now and not entry.waiting:
                entry.protected = False
        victims = self.plan(now, need)
        for block in victims:
            del self.free[block]
            self.tag.pop(block, None)
            for owner in self.owners.pop(block, ()):
                self.entries[owner].blocks.discard(block)
        self.found.victims += len(victims)
        return victims

    def plan(self, now: float, need: int) -> list[int]:
        """The victims; breaks protection until there are enough."""
        rank = {block: k for k, block in enumerate(self.free)}
        holders = {block: self.protectors(block) for block in self.free}
        first = [block for block, by in holders.items() if not by]
        second: list[int] = []
        while len(first) + len(second) < min(need, len(rank)):
            entry = min(
                (e for e in self.entries.values() if e.protected),
                key=lambda e: self.key(e, now, holders, rank),
            )
            entry.protected = False
            self.found.releases += 1
            for block in entry.blocks:
                if block in rank and holders[block]:
                    holders[block] = self.protectors(block)
                    if not holders[block]:
                        second.append(block)
        return [*first, *sorted(second, key=rank.__getitem__)][:need]

    def protectors(self, block: int) -> set[int]:
        """Protected owners of a block that holds something."""
        if block not in self.tag:
            return set()
        owners = self.owners.get(block, ())
        return {owner for owner in owners if self.entries[owner].protected}

    def key(self, entry: Entry, now: float, holders, rank) -> tuple:
        """The least is released first."""
        if self.order == "cost":
            chance = return_chance(
                entry.samples, now - entry.begin_s, entry.deadline_s - now
            )
            lost_s = entry.reload_s + self.wait_weight * self.seen.wait_s
            many = len(entry.blocks)
            score = chance * lost_s / many if many else math.inf
            return score, entry.deadline_s, entry.program
        ranks = [rank[b] for b in entry.blocks if holders.get(b) == {entry.program}]
        return entry.deadline_s, min(ranks, default=math.inf), entry.program


def programs_of(scenarios: Iterable[Scenario] = LAB) -> dict[str, list[Program]]:
    """The programs of each scenario, all from one stream of draws."""
    draws = Random(SEED)

    def gap(profile: str) -> float:
        median, sigma = PROFILES[profile]
        return math.exp(math.log(median) + sigma * draws.gauss(0, 1))

    names = [name for name in PROFILES for _ in range(6)]
    warm = [(i * 0.1, 64, name, [gap(name)]) for i, name in enumerate(names)]
    found = {}
    for scenario in scenarios:
        rows = list(warm)
        for i in range(scenario.programs):
            tokens = scenario.tokens[i % len(scenario.tokens)]
            profile = scenario.profiles[i % len(scenario.profiles)]
            begin_s = 35 + i * scenario.spacing_s
            rows.append((begin_s, tokens, profile, [gap(profile) for _ in range(3)]))
        found[scenario.name] = [
            Program(i, begin, tokens, tool, list(gaps))
            for i, (begin, tokens, tool, gaps) in enumerate(rows)
        ]
    return found


def linear(tokens: int) -> float:
    """Reload seconds, measured at 256 tokens."""
    return tokens * RELOAD_S_PER_TOKEN


def play(
    scenario: Scenario,
    *,
    reload: Reload | None = None,
    order: str = "deadline",
    owned: bool = True,
    wait_weight: float = 0.0,
) -> Outcome:
    """One scenario of the lab.

    Args:
        scenario: one of `LAB`.
        reload: seconds to compute a prefix again; linear, and the scenario's overhead,
            by default.
        order: in which protection is broken.
        owned: a hit needs blocks that still hold the prefix; False: as published.
        wait_weight: of the mean wait in the order by cost.

    Raises:
        InputError: for an unknown order.
    """

    def usual(tokens: int) -> float:
        return linear(tokens) + scenario.overhead_s

    world = World(
        scenario.capacity,
        reload or usual,
        order=order,
        owned=owned,
        wait_weight=wait_weight,
    )
    return world.run(programs_of()[scenario.name])
