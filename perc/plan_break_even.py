"""From which probability of a return it pays to keep a block below the GPU.

Writing a block over a link takes write_s, whether it returns or not. If it does, it is
loaded in reload_s instead of being computed again in recompute_s:

    store:  write_s + p reload_s          drop:  p recompute_s
    store pays  <=>  p > write_s / (recompute_s - reload_s)

and never where a reload takes as long as computing. p counts returns a write: above 1
for a block that is read more than once. A second of the link counts as much as one of
the accelerator; where the link has time to spare, writing is free, and every block pays
whose reload is quicker. Room in the tier is not priced: `perc simulate --tier` has it.

A block is dearer the deeper it stands in its prompt, as attention is. `returns` is what
the trace did: of all uses of a block, those that another followed.

References:
    Gray and Putzolu 1987, "The 5 minute rule for trading memory for disc accesses", for
    the comparison of a copy's price with that of getting it anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perc.cost import PrefillCost
from perc.hardware import link
from perc.types import Trace

DEFAULT_LINKS = ("pcie5", "nvme4", "ethernet-100g")
MOST_USES = 3  # the last class is "so many or more"


@dataclass(frozen=True)
class BreakEven:
    """What a block of the trace costs to move over a link, and when that pays."""

    link: str
    write_s: float  # as long as to reload it
    recompute_first_s: float  # of the first block of a prompt
    recompute_middle_s: float  # of the block at the median depth of those that return
    first: float | None  # returns a write from which on it pays; None: never
    middle: float | None


@dataclass(frozen=True)
class Returns:
    """How often blocks were used again, by how many uses they had had."""

    uses: int  # the last class: so many or more
    blocks: int  # that reached them
    share: float  # of those uses that another followed


def break_even(recompute_s: float, reload_s: float, write_s: float) -> float | None:
    """Returns a write from which on storing is cheaper; None: never.

    Example:
        >>> break_even(recompute_s=5.0, reload_s=1.0, write_s=1.0)
        0.25
        >>> break_even(recompute_s=1.0, reload_s=1.0, write_s=0.1) is None
        True
    """
    saved_s = recompute_s - reload_s
    return write_s / saved_s if saved_s > 0 else None


def break_evens(
    trace: Trace,
    bytes_per_token: float,
    cost: PrefillCost,
    links: Sequence[str] = DEFAULT_LINKS,
) -> list[BreakEven]:
    """One row a link, for full blocks of the trace.

    Raises:
        InputError: for an unknown link.
    """
    size = trace.block_tokens
    first_s = _recompute_s(cost, 0, size)
    middle_s = _recompute_s(cost, _middle_depth(trace), size)
    rows = []
    for name in links:
        way_s = float(link(name).time_s(size * bytes_per_token))
        rows.append(
            BreakEven(
                link=name,
                write_s=way_s,
                recompute_first_s=first_s,
                recompute_middle_s=middle_s,
                first=break_even(first_s, way_s, way_s),
                middle=break_even(middle_s, way_s, way_s),
            )
        )
    return rows


def returns(trace: Trace) -> list[Returns]:
    """How often blocks of one, two, and three or more uses were used again."""
    nth = _use_of_each_access(trace)
    follows = trace.next >= 0
    found = []
    for uses in range(1, MOST_USES + 1):
        of_it = nth >= uses if uses == MOST_USES else nth == uses
        found.append(
            Returns(
                uses,
                int((nth == uses).sum()),
                float(follows[of_it].mean()) if of_it.any() else 0.0,
            )
        )
    return found


def _use_of_each_access(trace: Trace) -> np.ndarray:
    """1 for a block's first access, 2 for its second, ... i64[N]."""
    order = np.argsort(trace.block, kind="stable")
    sizes = np.bincount(trace.block, minlength=trace.n_blocks)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    nth = np.empty(trace.n_accesses, np.int64)
    nth[order] = np.arange(trace.n_accesses) - starts + 1
    return nth


def _middle_depth(trace: Trace) -> int:
    again = trace.depth[trace.prev >= 0]
    return int(np.median(again)) if len(again) else 0


def _recompute_s(cost: PrefillCost, depth: int, size: int) -> float:
    return float(cost.recompute_s((depth + 1) * size, depth * size))
