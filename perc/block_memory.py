"""How much memory blocks take: pools in bytes, blocks of a prompt, and what is wasted.

contiguous   every sequence reserves its longest possible length
paged        every sequence takes whole blocks: the last one is partly empty
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perc.errors import InputError
from perc.metrics import ratio


class PoolBlocks(NamedTuple):
    """A memory in blocks."""

    total: int
    pinned: int  # weights and other memory that is never given out
    usable: int


class Fragmentation(NamedTuple):
    """Share of the reserved tokens that hold none, 0 where nothing is reserved."""

    contiguous: float
    paged: float
    worst_paged_tokens: int  # most that one sequence wastes, below a block


def pool_blocks(
    total_bytes: float, block_bytes: float, *, pinned_bytes: float = 0.0
) -> PoolBlocks:
    """Cuts a memory into whole blocks.

    Raises:
        InputError: for a block without size, or more pinned than there is.

    Example:
        >>> gib, mib = 2**30, 2**20
        >>> pool_blocks(16 * gib, 16 * mib, pinned_bytes=0.35 * 16 * gib)
        PoolBlocks(total=1024, pinned=358, usable=666)

    References:
        CachePilot's block pool, both numbers rounded down.
    """
    if not 0 < block_bytes < math.inf or not 0 <= pinned_bytes <= total_bytes:
        raise InputError(
            f"a memory of {total_bytes} bytes, {pinned_bytes} pinned, in blocks of "
            f"{block_bytes}; give blocks above 0, and pin at most all of it."
        )
    total, pinned = int(total_bytes // block_bytes), int(pinned_bytes // block_bytes)
    return PoolBlocks(total, pinned, total - pinned)


def blocks_needed(tokens: int, *, bytes_per_token: float, block_bytes: float) -> int:
    """Whole blocks of a sequence, at least one: its first token needs a place.

    Raises:
        InputError: for a negative length or a size that is not above 0.

    Example:
        >>> of_7b = 2 * 32 * 32 * 128 * 2  # K and V, layers, heads, head size, bytes
        >>> blocks_needed(33, bytes_per_token=of_7b, block_bytes=16 * 2**20)
        2
    """
    if tokens < 0 or not bytes_per_token > 0 or not block_bytes > 0:
        raise InputError(
            f"{tokens} tokens of {bytes_per_token} bytes in blocks of {block_bytes}; "
            "give a length of 0 or more and sizes above 0."
        )
    return max(1, math.ceil(tokens * bytes_per_token / block_bytes))


def fragmentation(
    lengths: Sequence[int] | np.ndarray, *, max_tokens: int, block_tokens: int
) -> Fragmentation:
    """What two ways to reserve memory waste on sequences of these lengths.

    Args:
        lengths: tokens of each sequence.
        max_tokens: what a contiguous reservation holds, at least the longest length.
        block_tokens: of a block.

    Raises:
        InputError: for a length that is negative or above `max_tokens`, or no block.

    Example:
        >>> fragmentation([10, 30], max_tokens=100, block_tokens=16)
        Fragmentation(contiguous=0.8, paged=0.16666666666666666, worst_paged_tokens=6)

    References:
        Kwon et al. 2023, "Efficient memory management for large language model serving
        with PagedAttention", section 3.1.
    """
    tokens = np.asarray(lengths, np.int64)
    if block_tokens < 1 or ((tokens < 0) | (tokens > max_tokens)).any():
        raise InputError(
            f"lengths of {tokens.min(initial=0)} to {tokens.max(initial=0)} tokens, at "
            f"most {max_tokens}, in blocks of {block_tokens}; give lengths from 0 to "
            "the most, and blocks of 1 token or more."
        )
    paged = -(-tokens // block_tokens) * block_tokens
    used, reserved = tokens.sum(), len(tokens) * max_tokens
    return Fragmentation(
        contiguous=ratio(reserved - used, reserved),
        paged=ratio(paged.sum() - used, paged.sum()),
        worst_paged_tokens=int((paged - tokens).max(initial=0)),
    )
