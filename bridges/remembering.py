"""What orders of a running server share that know how blocks were used."""

from collections.abc import Sequence

from perc.bridges.uses import Facts, Lost, Run, Use, Uses
from perc.bridges.victims import Part, Victims

# Freed blocks that wait as one group: their use, None = no request has named them,
# their key, and the blocks, deepest first.
Batch = tuple[Use | None, float, list[int]]


class Remembering:
    """What orders share that know how blocks were used."""

    def __init__(
        self, size: int, victims: Victims, memory: int, lost: Lost | None = None
    ):
        self.victims = victims
        self._uses = Uses(size, memory, lost)
        self._requests = 0

    def groups(self, ids: list[int]) -> list[Batch]:
        """One group a use of the blocks, under the key of that use."""
        return [
            (use, use.key if use else 0.0, part) for use, part in self._uses.by_use(ids)
        ]

    def left(self, parts: list[Part]) -> None:
        """What has left is remembered for a while."""
        for use, ids in parts:
            self._uses.leave(use, ids)

    def _new_use(self, facts: Facts, turn: int, run: Run, ids, names, now_s) -> Use:
        start, stop, old = run
        use = Use(ids[start:stop], names[start:stop], start, now_s, turn)
        use.frequency = 0 if facts.preempted else 1
        use.ends = stop == len(ids)
        if facts.hold_s:
            use.held_until_s = now_s + facts.hold_s
        if old is not None:
            use.frequency += old.frequency
            if old.held_until_s > use.held_until_s:
                use.held_until_s = old.held_until_s
        return use


def turn_of(facts: Facts, runs: Sequence[Run]) -> int:
    """Which turn of its session a request is, by its word or by prefix extension.

    It continues an earlier request if it shares that one's last full block, and two
    blocks or more: the rule by which `perc.traces` infers sessions.
    """
    if facts.turn is not None:
        return max(facts.turn, 1)
    for run in reversed(runs):
        if run.old is not None:
            follows = run.old.ends and run.stop >= 2
            return run.old.turn + 1 if follows else 1
    return 1
