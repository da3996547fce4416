"""The inputs of a learned policy, kept up while a server runs: `perc.history`, live.

A row says what is remembered when a request gives its blocks back. Rows equal those of
`perc.history.history` for the trace that `perc record` writes of the same traffic: of a
request it has the full blocks of the prompt. So blocks that a request has filled with
its answer count as used only once a prompt contains them, and no block is partial.

Where requests run side by side, a server learns of them in the order in which they end,
and times are those of their ends.

What is kept: a record a run of blocks (`Past`, on its `Use`), one a request, shared by
the runs that it used last, and one a session. None grows without bound.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from perc.bridges.uses import Facts, Run
from perc.history import NAMES, NEVER_S, RECENT_S, TOOL_STOPS, TURN_STOPS

SESSIONS = 1 << 16  # that are remembered, the least recently heard of left out
NAMED = 4096  # sessions of a run of blocks that are known by name
RECENT = 1 << 16  # requests of the last minute that are counted
AS_IT_IS = ("seen", "filled", "tools", "ended", "follows", "partial")
_IN_LOG = np.array([name not in AS_IT_IS for name in NAMES])


class Request:
    """One that has ended."""

    __slots__ = ("blocks", "input", "output", "session", "siblings", "time_s")

    def __init__(self, facts: Facts, blocks: int, session: Hashable, time_s: float):
        self.input = facts.input_tokens
        self.output = facts.output_tokens
        self.blocks = blocks  # full ones of its prompt
        self.session = session
        self.time_s = time_s
        self.siblings = 0  # later requests that came right after it


class Past:
    """What the blocks of a run have been through; only the last one has `children`."""

    __slots__ = ("children", "first_s", "more", "request", "sessions", "uses")

    def __init__(self, request: Request):
        self.request = request  # the last one
        self.first_s = request.time_s
        self.uses = 0
        self.children = 0  # distinct blocks that came right after it
        self.sessions: set[Hashable] = set()
        self.more = 0  # sessions beyond `NAMED`

    def taken(self, whole: bool) -> "Past":
        """Of blocks that have left the run: the whole rest of it, or some before."""
        if whole:
            return self
        part = Past(self.request)
        part.first_s, part.uses, part.more = self.first_s, self.uses, self.more
        part.sessions = set(self.sessions)
        part.children = 1  # the next block of the run
        return part

    def sessions_with(self, session: Hashable, turn: int) -> int:
        """Distinct sessions, this one included; too many count by first requests."""
        known = len(self.sessions) + self.more
        if len(self.sessions) < NAMED:
            return known + (session not in self.sessions)
        return known + (turn == 1 and session not in self.sessions)

    def use(self, request: Request, turn: int) -> None:
        """One more request has used the blocks."""
        session = request.session
        count = self.sessions_with(session, turn)
        if len(self.sessions) < NAMED:
            self.sessions.add(session)
        self.more = count - len(self.sessions)
        self.request = request
        self.uses += 1


class Visit(NamedTuple):
    """A request that ends: its rows, and what its blocks remember of it."""

    rows: np.ndarray  # f32[S, H], as of `perc.history`
    row_of: list[int]  # of each run
    blocks: int  # full ones of its prompt
    seen: int  # of them, those that lead and were used before
    turn: int  # requests of its session so far
    request: Request | None  # None = preempted: nothing has been used

    def past(self, run: Run, names: Sequence[Hashable]) -> Past | None:
        """What is remembered of the blocks of a run from now on; root first."""
        start, stop, _ = run
        past = _past(run)
        if past is not None:
            past = past.taken(whole=_ends(run, names))
        if self.request is None or start >= self.blocks:
            return past
        if past is None:
            past = Past(self.request)
        past.use(self.request, self.turn)
        past.children += self.seen <= stop < self.blocks
        return past


class _Session:
    __slots__ = ("first_s", "last_s", "requests")

    def __init__(self, now_s: float):
        self.first_s = self.last_s = now_s
        self.requests = 0


class LiveHistory:
    """What a server has served.

    Args:
        block_tokens: tokens of a full block.
    """

    def __init__(self, block_tokens: int):
        self._block_tokens = block_tokens
        self._sessions: OrderedDict[Hashable, _Session] = OrderedDict()
        self._recent: deque[float] = deque(maxlen=RECENT)

    def cut(self, facts: Facts, runs: list[Run]) -> list[Run]:
        """Runs, so that none lies on both sides of the prompt's end."""
        end = self._prompt_blocks(facts, runs)
        found = []
        for run in runs:
            if run.start < end < run.stop:
                found.append(run._replace(stop=end))
                run = run._replace(start=end)
            found.append(run)
        return found

    def finished(
        self,
        facts: Facts,
        runs: Sequence[Run],
        names: Sequence[Hashable],
        now_s: float,
    ) -> Visit:
        """A request gives back its blocks, in runs as `cut` makes them, or none."""
        while self._recent and self._recent[0] < now_s - RECENT_S:
            self._recent.popleft()
        blocks = self._prompt_blocks(facts, runs)
        last, seen = None, 0
        for run in runs:
            past = _past(run)
            if past is None or run.stop > blocks:
                break
            last, seen = past.request, run.stop
        name = self._name(facts, last, seen)
        session = self._sessions.get(name)
        turn = session.requests + 1 if session else 1
        head = [
            *self._of_request(facts, blocks, seen),
            *_of_before(facts, last, seen, now_s),
            *_of_session(session, now_s),
            *_of_root(runs, seen, now_s),
        ]
        ends, row_of = _merged(runs, blocks)
        tails = [_of_blocks(r, names, blocks, name, turn, now_s) for r in ends]
        rows = _table([[*head, *tail] for tail in tails])
        request = None
        if not facts.preempted:
            request = Request(facts, blocks, name, now_s)
            self._remember(request, last)
        return Visit(rows, row_of, blocks, seen, turn, request)

    def _prompt_blocks(self, facts: Facts, runs: Sequence[Run]) -> int:
        """Full blocks of the prompt; all that are cached if it is not told."""
        cached = runs[-1].stop if runs else 0
        if not facts.input_tokens:
            return cached
        return min(cached, facts.input_tokens // self._block_tokens)

    def _name(self, facts: Facts, last: Request | None, seen: int) -> Hashable:
        """The session: as named, else of the request that this one extends.

        It is extended if all its blocks are shared, and two or more: the rule by which
        `perc.traces` infers sessions.
        """
        if facts.session is not None:
            return facts.session
        if last is not None and seen >= max(last.blocks, 2):
            return last.session
        return object()

    def _of_request(self, facts: Facts, blocks: int, seen: int) -> list[float]:
        reason = facts.kind_name.rpartition(":")[2]
        return [
            facts.input_tokens,
            facts.output_tokens,
            facts.input_tokens - seen * self._block_tokens,
            seen / max(blocks, 1),
            1,  # its last block is full
            len(self._recent),
            reason in TOOL_STOPS,
            reason in TURN_STOPS,
        ]

    def _remember(self, request: Request, last: Request | None) -> None:
        if last is not None:
            last.siblings += 1
        name, now_s = request.session, request.time_s
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session(now_s)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(name)
        session.last_s = now_s
        session.requests += 1
        self._recent.append(now_s)


def _of_before(
    facts: Facts, last: Request | None, seen: int, now_s: float
) -> list[float]:
    if last is None:
        return [0, 0, 0, 0, NEVER_S, 0]
    follows = seen >= last.blocks - 1
    typed = (facts.input_tokens - last.input - last.output) * follows
    since = now_s - last.time_s
    return [follows, typed, last.input, last.output, since, last.siblings]


def _of_session(session: _Session | None, now_s: float) -> list[float]:
    if session is None:
        return [1, 0, NEVER_S, NEVER_S]
    age, earlier = now_s - session.first_s, session.requests
    return [earlier + 1, age, now_s - session.last_s, age / earlier]


def _of_root(runs: Sequence[Run], seen: int, now_s: float) -> list[float]:
    """All that used the first block began with it."""
    past = _past(runs[0]) if seen else None
    if past is None:
        return [0, NEVER_S]
    return [past.uses, now_s - past.request.time_s]


def _merged(runs: Sequence[Run], blocks: int) -> tuple[list[Run], list[int]]:
    """The last of neighbours with one last request; and which one each run leads to."""
    found: list[Run] = []
    row_of: list[int] = []
    before = None
    for run in runs:
        past = _past(run)
        sort = (past and past.request, run.start >= blocks)
        if sort == before:
            found[-1] = run
        else:
            found.append(run)
        before = sort
        row_of.append(len(found) - 1)
    return found, row_of


def _of_blocks(
    run: Run, names: Sequence[Hashable], blocks: int, session, turn: int, now_s: float
) -> list[float]:
    place = [run.stop, blocks - run.stop]
    past = _past(run)
    if past is None:
        return [0, 0, NEVER_S, 0, 0, 1, *place]
    return [
        0,
        past.uses,
        now_s - past.request.time_s,
        now_s - past.first_s,
        past.children if _ends(run, names) else 1,
        past.sessions_with(session, turn),
        *place,
    ]


def _past(run: Run) -> Past | None:
    return None if run.old is None else run.old.past


def _ends(run: Run, names: Sequence[Hashable]) -> bool:
    """Whether the last block of a run was the last one of its old use, too."""
    return run.old is not None and run.old.names[-1] == names[run.stop - 1]


def _table(raw: list[list[float]]) -> np.ndarray:
    """Rows as a network wants them, f32[S, H]."""
    rows = np.array(raw, np.float64).reshape(len(raw), len(NAMES))
    rows[:, _IN_LOG] = np.log2(1 + np.maximum(rows[:, _IN_LOG], 0))
    return rows.astype(np.float32)
