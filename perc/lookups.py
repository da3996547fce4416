"""Counts an engine's look-ups: each request once, however often it is tried.

An engine looks a waiting request up again in every round until there is room for it,
and once more when it resumes after a preemption. Counting each of these turns retries
into queries, and a request's own blocks, found again on resumption, into hits. So:

    queries, hits    blocks of the look-up with which a request is first admitted
    reread           blocks found by the look-ups with which it resumes
    recomputed       blocks that it had before and that those did not find
    uses             requests that used a block: first admissions, too

References:
    vLLM keeps preempted requests apart in its prefix cache statistics.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from perc.errors import InputError
from perc.metrics import ratio


class Event(NamedTuple):
    """A line of an engine's log."""

    kind: Literal["look up", "admit", "preempt"]
    request: Hashable
    keys: Sequence[Hashable] = ()  # of a look-up: the blocks asked for, root first
    hit_blocks: int = 0  # of a look-up: how many leading ones were found


@dataclass
class LookUps:
    """Sums in blocks, and in look-ups."""

    queries: int = 0
    hits: int = 0
    reread: int = 0
    recomputed: int = 0
    retries: int = 0  # look-ups that led to no admission
    uses: Counter[Hashable] = field(default_factory=Counter)  # by block

    @property
    def block_hit_ratio(self) -> float:
        """hits / queries, 0 where nothing was asked for."""
        return ratio(self.hits, self.queries)


def count_lookups(events: Iterable[Event]) -> LookUps:
    """Sums a log up.

    Args:
        events: in the order in which they happened.

    Raises:
        InputError: for a request that is admitted without a look-up or while it runs,
            preempted while it does not run, or finds more than it asked for.

    Example:
        >>> ask, go = Event("look up", "r", keys=[7, 8]), Event("admit", "r")
        >>> found = count_lookups([ask, ask, ask, go])
        >>> found.queries, found.hits, found.retries
        (2, 0, 2)
    """
    found = LookUps()
    pending: dict[Hashable, Event] = {}
    known: set[Hashable] = set()
    running: set[Hashable] = set()
    for event in events:
        request = event.request
        if event.kind == "look up":
            if not 0 <= event.hit_blocks <= len(event.keys):
                raise _wrong(event, f"finds {event.hit_blocks} of {len(event.keys)}")
            found.retries += request in pending
            pending[request] = event
        elif event.kind == "admit":
            if request not in pending or request in running:
                raise _wrong(event, "has no look-up of its own, or runs already")
            _admit(found, pending.pop(request), again=request in known)
            known.add(request)
            running.add(request)
        elif event.kind == "preempt" and request in running:
            running.remove(request)
        else:
            raise _wrong(event, "does not run, or this is no kind of event")
    found.retries += len(pending)
    return found


def _admit(found: LookUps, event: Event, *, again: bool) -> None:
    asked, hit = len(event.keys), event.hit_blocks
    if again:
        found.reread += hit
        found.recomputed += asked - hit
    else:
        found.queries += asked
        found.hits += hit
        found.uses.update(event.keys)


def _wrong(event: Event, what: str) -> InputError:
    return InputError(
        f"request {event.request!r} at {event.kind!r}: {what}. Is the log complete and "
        "in order?"
    )
