"""Orders of a running server whose prices change as blocks idle: by class and age."""

from collections.abc import Sequence

import numpy as np

from perc.bridges.aged_victims import AgedVictims
from perc.bridges.live_guard import LiveGuard
from perc.bridges.live_history import LiveHistory
from perc.bridges.live_reuse import LiveReuse
from perc.bridges.remembering import Remembering, turn_of
from perc.bridges.uses import Facts, Run, Use
from perc.history import NAMES
from perc.policies.learned import network_of
from perc.types import Aged, OnlinePolicy


class AgedOrder(Remembering):
    """Prices blocks by class and age, as counted from the traffic so far."""

    victims: AgedVictims

    def __init__(self, policy: OnlinePolicy, size: int, memory: int, *, stale_s: float):
        assert isinstance(policy.rule, Aged)
        self._reuse = LiveReuse(policy)
        guarded = policy.rule.guard is not None
        worth = self._guarded_worth if guarded else self._reuse.worth
        victims = AgedVictims(size, worth, stale_s=stale_s)
        super().__init__(size, victims, memory, self._reuse.lost)
        self.guard: LiveGuard | None = None  # until it has one, its rule's is not kept
        self._trusted = True
        self._start()

    def _start(self) -> None:
        """Compiles, while the engine starts."""
        self._reuse.class_of(1, 1, 0)
        self._reuse.compile_ahead()

    def finished(self, facts, ids, names, now_s) -> None:
        """Learns from the request, and asks the guard whom to trust."""
        if self.guard is None or facts.preempted:
            self._learn(facts, ids, names, now_s)
            return
        hits = self._uses.leading(ids)
        classes = self._learn(facts, ids, names, now_s)
        self.guard.served(facts, names, hits, now_s, classes)
        if self._trusted != self.guard.trusts:
            self._trusted = not self._trusted
            self.victims.renew()

    def _guarded_worth(self, cls: int, age_s: float) -> float:
        """Where all are worth the same, they leave in the order of LRU."""
        return self._reuse.worth(cls, age_s) if self._trusted else 0.0

    def _learn(self, facts: Facts, ids, names, now_s) -> list[int] | None:
        """Remembers a request; the class of each block where a shadow cannot tell."""
        if ids:
            runs = self._uses.runs(ids, names)
            turn = turn_of(facts, runs)
            for run in runs:
                self._note(facts, turn, run, ids, names, now_s)
        if not facts.preempted and self._reuse.requested(now_s):
            self.victims.renew()

    def _note(self, facts: Facts, turn: int, run: Run, ids, names, now_s) -> None:
        use = self._new_use(facts, turn, run, ids, names, now_s)
        use.cls = self._reuse.class_of(use.frequency or 1, turn, facts.kind)
        self._take_over(facts, run, use, ids, now_s)

    def _take_over(self, facts: Facts, run: Run, use: Use, ids, now_s) -> None:
        """The blocks of a run have a new last use, with a class."""
        start, stop, old = run
        if old is not None:
            if facts.preempted:
                old.waiting -= stop - start
            else:
                self._reuse.used(old, stop - start, now_s)
            self._keep_the_rest(old, stop, ids)
        if start:
            self.victims.hang(ids[start], ids[start - 1])
        self._uses.note(use)
        self._reuse.add(use)

    def _keep_the_rest(self, old: Use, stop: int, ids: Sequence[int]) -> None:
        """What an earlier request had beyond a shared prefix hangs on it now."""
        place = stop - old.before
        if 0 < place < len(old.ids):
            rest = old.ids[place]
            if self._uses.of(rest) is old and (stop == len(ids) or ids[stop] != rest):
                self.victims.hang(rest, ids[stop - 1])


class LearnedOrder(AgedOrder):
    """Prices blocks by the class that a network gives to their history.

    The table of worths is the policy's own: nothing is counted.
    """

    def __init__(
        self,
        policy: OnlinePolicy,
        size: int,
        memory: int,
        *,
        stale_s: float,
        block_tokens: int,
    ):
        network = network_of(policy)
        assert network is not None
        self._network = network
        self._history = LiveHistory(block_tokens)
        super().__init__(policy, size, memory, stale_s=stale_s)

    def follow(self, facts: Facts, ids, names, now_s, classes: list[int]) -> None:
        """Like `finished`, with the class of each block from another such order."""
        runs = self._uses.runs(ids, names)
        turn = turn_of(facts, runs)
        for run in runs:
            mine = np.array(classes[run.start : run.stop])
            cuts = (np.flatnonzero(np.diff(mine)) + 1 + run.start).tolist()
            ends = zip([run.start, *cuts], [*cuts, run.stop], strict=True)
            for start, stop in ends:
                part = Run(start, stop, run.old)
                use = self._new_use(facts, turn, part, ids, names, now_s)
                use.cls = classes[start]
                self._take_over(facts, part, use, ids, now_s)

    def _learn(self, facts: Facts, ids, names, now_s) -> list[int] | None:
        runs = self._history.cut(facts, self._uses.runs(ids, names))
        visit = self._history.finished(facts, runs, names, now_s)
        if not ids:
            return []
        turn = turn_of(facts, runs)
        classes = self._network.classes_of_few(visit.rows).tolist()
        for run, row in zip(runs, visit.row_of, strict=True):
            use = self._new_use(facts, turn, run, ids, names, now_s)
            use.cls, use.past = classes[row], visit.past(run, names)
            self._take_over(facts, run, use, ids, now_s)
        return [
            classes[row]
            for run, row in zip(runs, visit.row_of, strict=True)
            for _ in range(run.start, run.stop)
        ]

    def _start(self) -> None:
        self._network.classes_of_few(np.zeros((1, len(NAMES)), np.float32))
        for cls in range(len(self._network.worths)):
            self._reuse.cls([cls])
        self._reuse.worth(0, 0.0)
