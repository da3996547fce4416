"""Which of several GPUs a session's blocks go to: where they fit, soonest there.

    seconds(g) = time of the link from home to g for blocks * block_bytes, 0 at home
    the least seconds; of equals most blocks free after, fewest sessions, lowest number

Home is the GPU that holds the session's prefix, so seconds are what it costs not to be
there: the prefix has to be copied before the next token. A session without a home pays
nothing anywhere, and goes where most is free.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perc.errors import InputError, check_number, check_whole
from perc.hardware import Accelerator, Link, link

MOST_GPUS = 4096
MOST_BLOCKS = 2**40


class Gpu(NamedTuple):
    """What is on a GPU."""

    free_blocks: int
    sessions: int = 0


class Placement(NamedTuple):
    """Where a session's blocks are."""

    gpu: int
    way: str | None  # the link that they came by; None: they had none to take
    seconds: float  # of the copy from home


@dataclass(frozen=True)
class Topology:
    """GPUs, and the links between them.

    Raises:
        InputError: for a pair that is not of two GPUs that there are, or that is
            listed twice.

    Example:
        >>> two_pairs = Topology(4, {(0, 1): link("nvlink4"), (2, 3): link("nvlink4")})
        >>> two_pairs.between(1, 0).name, two_pairs.between(1, 2).name
        ('nvlink4', 'pcie4')
    """

    gpus: int
    links: Mapping[tuple[int, int], Link]  # either way, so each pair once
    otherwise: Link = link("pcie4")

    def __post_init__(self) -> None:
        check_whole("a topology", "gpus", self.gpus, 1, MOST_GPUS)
        for a, b in self.links:
            for at in (a, b):
                check_whole(f"link {a}-{b}", "a GPU", at, 0, self.gpus - 1)
            if a == b or (a > b and (b, a) in self.links):
                raise InputError(
                    f"link {a}-{b}: give each pair of two GPUs once; links go both "
                    "ways, and none is needed within a GPU."
                )

    def between(self, a: int, b: int) -> Link:
        """The link of two GPUs."""
        return self.links.get((a, b)) or self.links.get((b, a)) or self.otherwise


def all_to_all(card: Accelerator, gpus: int) -> Topology:
    """A machine in which every GPU reaches every other by the card's own link.

    >>> from perc.hardware import accelerator
    >>> all_to_all(accelerator("h100"), 8).between(0, 7).name
    'nvlink4'
    """
    return Topology(gpus, {}, link(card.scale_up))


def place(
    topology: Topology,
    gpus: Sequence[Gpu],
    blocks: int,
    *,
    block_bytes: float,
    home: int | None = None,
) -> Placement:
    """Chooses a GPU for a session.

    Args:
        topology: of n GPUs.
        gpus: [n], in its order.
        blocks: that the session needs there, all on one GPU.
        block_bytes: of one, as `perc.kv_memory.block_bytes` tells.
        home: GPU that holds them now, if one does. GPU 0 is one like others.

    Raises:
        InputError: if they fit nowhere; for GPUs that are not those of the topology,
            or a home that is none of them.

    Example:
        Home is full. GPU 2 has more room, GPU 1 the faster link:

        >>> pair = Topology(3, {(0, 1): link("nvlink4")})
        >>> where = place(
        ...     pair, [Gpu(0), Gpu(60), Gpu(70)], 10, block_bytes=2**24, home=0
        ... )
        >>> where.gpu, where.way, round(1e3 * where.seconds, 3)
        (1, 'nvlink4', 0.468)
    """
    _check(topology, gpus, blocks, block_bytes, home)
    choices = []
    for at, gpu in enumerate(gpus):
        if gpu.free_blocks < blocks:
            continue
        way = None if home in (None, at) else topology.between(home, at)
        seconds = float(way.time_s(blocks * block_bytes)) if way else 0.0
        order = seconds, blocks - gpu.free_blocks, gpu.sessions, at
        choices.append((order, Placement(at, way.name if way else None, seconds)))
    if not choices:
        most = max(gpu.free_blocks for gpu in gpus)
        raise InputError(
            f"{blocks} blocks fit on none of {len(gpus)} GPUs, the emptiest has {most} "
            "free. Evict first, or ask for fewer."
        )
    return min(choices)[1]


def place_all(
    topology: Topology,
    gpus: Sequence[Gpu],
    sessions: Iterable[tuple[int, int | None]],
    *,
    block_bytes: float,
) -> tuple[list[Placement], list[Gpu]]:
    """Places sessions (blocks, home), the first that comes first.

    What a session leaves at home is not counted as free: give GPUs without it.

    Returns:
        Where each went, and the GPUs afterwards.

    Raises:
        InputError: as `place`, for the first that does not fit.
    """
    found, now = [], list(gpus)
    for blocks, home in sessions:
        where = place(topology, now, blocks, block_bytes=block_bytes, home=home)
        before = now[where.gpu]
        now[where.gpu] = Gpu(before.free_blocks - blocks, before.sessions + 1)
        found.append(where)
    return found, now


def _check(
    topology: Topology,
    gpus: Sequence[Gpu],
    blocks: int,
    block_bytes: float,
    home: int | None,
) -> None:
    if len(gpus) != topology.gpus:
        raise InputError(
            f"{len(gpus)} GPUs in a topology of {topology.gpus}; give one for each."
        )
    for at, gpu in enumerate(gpus):
        check_whole(f"GPU {at}", "free_blocks", gpu.free_blocks, 0, MOST_BLOCKS)
        check_whole(f"GPU {at}", "sessions", gpu.sessions, 0, MOST_BLOCKS)
    check_whole("a session", "blocks", blocks, 1, MOST_BLOCKS)
    check_number("a session", "block_bytes", block_bytes, above=True)
    if home is not None:
        check_whole("a session", "home", home, 0, topology.gpus - 1)
