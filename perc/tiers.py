"""Tiers of memory below one another: what each holds, if all are one LRU order.

A block that is used moves to the fastest tier; what a tier has no room for moves to
the front of the next, and out of the last it is gone. Each block is in one tier. Then
the tiers together are a single LRU list, cut at their sizes, and the stack distance of
an access says in which of them it hits. Transfers take no time here and policies other
than LRU have no tiers yet.

A tier of 0 bytes is no tier. One of less than a block could never hold anything: a
block would wait for space for ever. It is refused when it is built.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perc.curves import lru_distances
from perc.errors import InputError
from perc.types import Trace


@dataclass(frozen=True)
class Tier:
    """A memory for blocks.

    Raises:
        InputError: if it has room for less than one block, but is not empty.

    Example:
        >>> Tier("dram", capacity_bytes=100, block_bytes=30).blocks
        3
        >>> Tier("dram", capacity_bytes=0, block_bytes=30).blocks
        0
    """

    name: str
    capacity_bytes: int
    block_bytes: int

    def __post_init__(self) -> None:
        if self.block_bytes < 1:
            raise InputError(
                f"tier {self.name!r}: a block of {self.block_bytes} bytes; give 1 or "
                "more."
            )
        if self.capacity_bytes < 0 or 0 < self.capacity_bytes < self.block_bytes:
            raise InputError(
                f"tier {self.name!r}: {self.capacity_bytes:,} bytes cannot hold one "
                f"block of {self.block_bytes:,} bytes. Give it room for a block or "
                "more, or 0 bytes to go without it."
            )

    @property
    def blocks(self) -> int:
        """Blocks that fit."""
        return self.capacity_bytes // self.block_bytes


def lru_tier_hits(trace: Trace, tiers: Sequence[Tier]) -> np.ndarray:
    """Where the leading blocks of each request were, under LRU in all tiers.

    Args:
        trace: R requests.
        tiers: T of them, the fastest first.

    Returns:
        i32[T, R], blocks of the leading run that each tier held. Along a prompt the
        fastest tier comes first: the root was used at least as recently as the rest.

    Example:
        >>> import perc
        >>> cycle = dict(hot_order="cyclic", hot_chains=3, hot_blocks=1)
        >>> trace = perc.make("scan", requests=6, scan_requests=0, **cycle)
        >>> tiers = [Tier("hbm", 2, 1), Tier("dram", 1, 1)]
        >>> lru_tier_hits(trace, tiers).sum(axis=1).tolist()
        [0, 3]
    """
    distance = lru_distances(trace)
    # Distances grow along a prompt, so what is within reach is a leading run.
    found, reach = [np.zeros(trace.n_requests, np.int64)], 0
    for tier in tiers:
        reach = min(reach + tier.blocks, trace.n_accesses)
        near = trace.request[distance <= reach]
        found.append(np.bincount(near, minlength=trace.n_requests))
    return np.diff(found, axis=0).astype(np.int32)
