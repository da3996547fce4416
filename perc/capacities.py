"""Cache sizes as people write them: blocks, or a share of the working set."""

from collections.abc import Iterable
from numbers import Integral

import numpy as np

from perc.errors import InputError
from perc.types import Trace

ROUNDING = 1e-6  # blocks
INT32_MAX = np.iinfo(np.int32).max


def parse_capacities(text: str) -> list[int | float]:
    """Reads "1000,0.05,25%": whole numbers are blocks, the rest shares.

    Raises:
        InputError: for what is neither; the message shows the accepted forms.
    """
    return [_parse(word.strip()) for word in text.split(",")]


def _parse(word: str) -> int | float:
    try:
        if word.endswith("%"):
            return float(word[:-1]) / 100
        if len(word) > 1 and word.isdigit() and word[0] == "0":
            raise InputError(
                f"{word!r} is no capacity: write 1000, not 1,000; commas separate."
            )
        if word.lstrip("+-").replace("_", "").isdigit():
            return int(word)
        return float(word)
    except ValueError:
        raise InputError(
            f"{word!r} is no capacity. Give blocks (4096) or shares of the working set "
            "(0.05 or 5%), separated by commas."
        ) from None


Capacity = int | float | str


def in_blocks(trace: Trace, capacities: Capacity | Iterable[Capacity]) -> list[int]:
    """Capacities in blocks, ascending, each once.

    Args:
        trace: its M distinct blocks are the working set.
        capacities: ints are blocks, floats shares of M, rounded down; strings are
            read as on the command line.

    Raises:
        InputError: for a negative size or a share above 1.
    """
    sizes = set()
    if isinstance(capacities, (str, int, float)):
        capacities = [capacities]
    for capacity in capacities:
        if isinstance(capacity, str):
            sizes.update(in_blocks(trace, parse_capacities(capacity)))
            continue
        if not isinstance(capacity, Integral):
            if not 0 <= capacity <= 1:
                raise InputError(
                    f"a capacity of {capacity} is no share of the working set; "
                    "give 0 to 1, or a whole number of blocks."
                )
            # 29 % of 100 blocks are 29, although .29 * 100 is a little less.
            sizes.add(int(capacity * trace.n_blocks + ROUNDING))
        elif capacity < 0:
            raise InputError(f"a capacity of {capacity} blocks; give 0 or more.")
        elif capacity > INT32_MAX:
            raise InputError(
                f"a capacity of {capacity} blocks; give {INT32_MAX:,} at most."
            )
        else:
            sizes.add(int(capacity))
    if not sizes:
        raise InputError("no capacity given; for example --capacities 1000,0.05")
    return sorted(sizes)


def log_grid(trace: Trace, points: int) -> list[int]:
    """Capacities evenly spread on a logarithmic axis, up to the working set.

    They begin at the longest request, below which no prompt of its size fits, or at a
    thousandth of the working set.
    """
    largest = max(trace.n_blocks, 1)
    smallest = max(min(largest, max(trace.longest_request, largest // 1000)), 1)
    return sorted({int(x) for x in np.geomspace(smallest, largest, points)})
