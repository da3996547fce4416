"""Requests that load their blocks from a lower tier, and may not block each other.

A request holds what it has loaded and needs the rest before it can run. If each waits
for the space that the others hold, nothing moves: a deadlock. The remedy here, called
`REMEDY`:

    1. The first request in the queue whose missing blocks fit into the free ones takes
       all of them at once, runs, and releases everything. It may pass those before it.
    2. If none fits, the last request behind the head that holds blocks gives them back
       and will load again.

Progress: a step of kind 1 ends a request, one of kind 2 leaves a holder fewer, and no
step makes a new one, since nobody takes a part of what is missing. When only the head
still holds blocks, all others are free, so it fits. The first head is never rolled
back, so n requests are done in at most 2 n - 1 steps. In a queue that never ends, small
requests could pass the head again and again: there, bound how often.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from perc.errors import InputError

REMEDY = "pass the head, else roll back the last"


class Load(NamedTuple):
    """A queued request."""

    name: str
    needs_blocks: int  # in all, to run
    loaded_blocks: int = 0  # of them, held already


class Move(NamedTuple):
    """One step."""

    action: Literal["run", "roll back"]
    name: str
    blocks: int  # taken from the free ones, or given back
    free_blocks: int  # afterwards


class Schedule(NamedTuple):
    """How all requests came to run."""

    remedy: str
    moves: tuple[Move, ...]


def finish_loads(usable_blocks: int, queue: Sequence[Load]) -> Schedule:
    """Runs every request of a queue, one after the other.

    Args:
        usable_blocks: of the fast tier.
        queue: in order of arrival, the head first.

    Returns:
        The steps, at most 2 n - 1 for n requests, each of which runs once.

    Raises:
        InputError: if the requests hold more than there is, or one can never fit.

    Example:
        >>> queue = [Load("a", 16, 5), Load("b", 12, 7)]
        >>> [move.name for move in finish_loads(20, queue).moves]
        ['b', 'a']
    """
    _check(usable_blocks, queue)
    waiting, moves = list(queue), []
    free = usable_blocks - sum(load.loaded_blocks for load in queue)
    while waiting:
        move = next_move(free, waiting)
        at = [load.name for load in waiting].index(move.name)
        if move.action == "run":
            del waiting[at]
        else:
            waiting[at] = waiting[at]._replace(loaded_blocks=0)
        free = move.free_blocks
        moves.append(move)
    return Schedule(REMEDY, tuple(moves))


def next_move(free_blocks: int, waiting: Sequence[Load]) -> Move:
    """The step that `REMEDY` takes.

    Args:
        free_blocks: not held by anybody.
        waiting: one or more, the head of the queue first.
    """
    for load in waiting:
        missing = load.needs_blocks - load.loaded_blocks
        if missing <= free_blocks:
            return Move("run", load.name, missing, free_blocks + load.loaded_blocks)
    last = next(load for load in reversed(waiting[1:]) if load.loaded_blocks)
    back = last.loaded_blocks
    return Move("roll back", last.name, back, free_blocks + back)


def _check(usable_blocks: int, queue: Sequence[Load]) -> None:
    names = [load.name for load in queue]
    for load in queue:
        if names.count(load.name) > 1:
            raise InputError(f"two loads are called {load.name!r}; name each once.")
        if not 0 <= load.loaded_blocks <= load.needs_blocks:
            raise InputError(
                f"load {load.name!r}: {load.loaded_blocks} of {load.needs_blocks} "
                "blocks are loaded; give 0 up to all of them."
            )
        if load.needs_blocks > usable_blocks:
            raise InputError(
                f"load {load.name!r} needs {load.needs_blocks} blocks of "
                f"{usable_blocks}: it can never fit. Refuse it, or give more blocks."
            )
    held = sum(load.loaded_blocks for load in queue)
    if held > usable_blocks:
        raise InputError(
            f"the loads hold {held} blocks of {usable_blocks}; give at least as many."
        )
