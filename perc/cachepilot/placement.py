"""CachePilot's placement: a score of bandwidth, room and sessions, without a unit.

    preferred GPU, if it fits
    else the most of  bandwidth [Gbit/s] + 100 * free / total - 0.1 * sessions
    of equals most blocks free after, then the lowest number

It takes preferred GPU 0 for none; here 0 is a GPU. `perc.placement` decides by the
seconds of the copy instead.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perc.errors import INT32_MAX, InputError, check_whole

PCIE_GBIT_PER_S = 32.0  # of a pair without a link
LOCAL_SCORE = 1e9
ROOM_WEIGHT, SESSION_WEIGHT = 100.0, 0.1
UNLINKED_SCORE = 1000.0  # nothing is preferred: every GPU is as near


class Room(NamedTuple):
    """What is on a GPU."""

    total_blocks: int
    free_blocks: int
    sessions: int = 0


def scores(
    links: Mapping[tuple[int, int], float],
    rooms: Sequence[Room],
    blocks: int,
    preferred: int | None,
) -> dict[int, float]:
    """The score of every GPU on which the blocks fit.

    Args:
        links: Gbit/s of pairs, either way.
        rooms: of GPU 0, 1, ...
        blocks: of the session.
        preferred: GPU that it was on.

    Raises:
        InputError: for a preferred GPU that there is not, or numbers of blocks that
            cannot be.
    """
    check_whole("placement", "blocks", blocks, 0, INT32_MAX)
    if preferred is not None:
        check_whole("placement", "preferred", preferred, 0, len(rooms) - 1)
    found = {}
    for at, room in enumerate(rooms):
        check_whole(f"GPU {at}", "total_blocks", room.total_blocks, 0, INT32_MAX)
        check_whole(f"GPU {at}", "free_blocks", room.free_blocks, 0, room.total_blocks)
        if room.free_blocks < blocks:
            continue
        if at == preferred:
            found[at] = LOCAL_SCORE
            continue
        way = UNLINKED_SCORE
        if preferred is not None:
            back = links.get((at, preferred), PCIE_GBIT_PER_S)
            way = links.get((preferred, at), back)
        share = room.free_blocks / max(room.total_blocks, 1)
        found[at] = way + ROOM_WEIGHT * share - SESSION_WEIGHT * room.sessions
    return found


def place(
    links: Mapping[tuple[int, int], float],
    rooms: Sequence[Room],
    blocks: int,
    preferred: int | None = None,
) -> int:
    """The GPU of the highest score.

    Raises:
        InputError: as `scores`; if the blocks fit nowhere.

    Example:
        >>> rooms = [Room(100, 0), Room(100, 60), Room(100, 70)]
        >>> place({(0, 1): 900.0}, rooms, 10, preferred=0)
        1
    """
    found = scores(links, rooms, blocks, preferred)
    if not found:
        raise InputError(
            f"{blocks} blocks fit on none of {len(rooms)} GPUs. Evict first, or ask "
            "for fewer."
        )
    return max(found, key=lambda at: (found[at], rooms[at].free_blocks, -at))
