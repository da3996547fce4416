"""Models with several kinds of layers: a prompt resumes only where all of them can.

A *group* of layers resumes at token p, a multiple of its block size, if its blocks
that hold the last `reach_tokens` tokens before p are there:

    full attention     every token before p
    sliding window W   the last W - 1 tokens
    recurrent state    the last one: the state kept where its block ends, a checkpoint

A prompt reuses the tokens before the largest p at which every group resumes. So one
group without a checkpoint in the shared part makes a whole prompt miss, however many
attention blocks it finds.

References:
    vLLM, hybrid KV cache manager: a prefix hit needs every group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from perc.errors import InputError
from perc.types import Trace


@dataclass(frozen=True)
class Group:
    """Layers whose cache is kept and lost together."""

    name: str
    block_tokens: int
    reach_tokens: int | None  # that must be there before a resume point, None = all


def full_attention(block_tokens: int, *, name: str = "full attention") -> Group:
    """Keys and values of every token."""
    return _group(name, block_tokens, None)


def sliding_window(
    block_tokens: int, window_tokens: int, *, name: str = "sliding window"
) -> Group:
    """Keys and values of the last `window_tokens` tokens, the new one included."""
    if window_tokens < 1:
        raise InputError(f"{name}: a window of {window_tokens} tokens; give 1 or more.")
    return _group(name, block_tokens, window_tokens - 1)


def recurrent_state(interval_tokens: int, *, name: str = "recurrent state") -> Group:
    """One state, which may be kept at every multiple of `interval_tokens`."""
    return _group(name, interval_tokens, 1)


def _group(name: str, block_tokens: int, reach_tokens: int | None) -> Group:
    if block_tokens < 1:
        raise InputError(f"{name}: a block of {block_tokens} tokens; give 1 or more.")
    return Group(name, block_tokens, reach_tokens)


class Reuse(NamedTuple):
    """What one prompt may reuse."""

    tokens: int  # at which all groups resume
    alone: tuple[int, ...]  # at which each group would resume if it were alone
    limiting: tuple[str, ...]  # groups without any one of which it would be more


def reusable(groups: Sequence[Group], resident: Sequence[Sequence[bool]]) -> Reuse:
    """The longest prefix of a prompt that every group can resume from.

    Args:
        groups: one or more.
        resident: for each group, whether each block of this prompt is in the cache,
            root first; of a recurrent state, whether it was kept at the block's end.

    Raises:
        InputError: without groups, or without a row for each of them.

    Example:
        >>> groups = [full_attention(4), recurrent_state(8)]
        >>> reusable(groups, [[True, True, True], [True]]).tokens
        8
        >>> reusable(groups, [[True, False, True], [True]])
        Reuse(tokens=0, alone=(4, 8), limiting=('full attention', 'recurrent state'))
    """
    if not groups or len(groups) != len(resident):
        raise InputError(
            f"{len(resident)} rows of blocks for {len(groups)} groups; give one or "
            "more groups and a row for each."
        )
    points = [
        resume_points(group, np.asarray(row, bool))
        for group, row in zip(groups, resident, strict=True)
    ]
    tokens = _last_common(points)
    limiting = tuple(
        group.name
        for i, group in enumerate(groups)
        if len(groups) > 1 and _last_common(points[:i] + points[i + 1 :]) > tokens
    )
    return Reuse(tokens, tuple(int(p[-1]) for p in points), limiting)


def resume_points(group: Group, resident: np.ndarray) -> np.ndarray:
    """Tokens i64[...] at which a group alone can resume, rising, 0 among them.

    Args:
        group: the layers.
        resident: bool[n], of the blocks of one prompt.
    """
    ends = np.arange(len(resident) + 1)
    gaps = np.where(np.append(True, ~resident), ends, 0)
    run = ends - np.maximum.accumulate(gaps)  # resident blocks right before each end
    if group.reach_tokens is None:
        needed = ends
    else:
        needed = np.minimum(ends, -(-group.reach_tokens // group.block_tokens))
    return ends[run >= needed] * group.block_tokens


def _last_common(points: list[np.ndarray]) -> int:
    return int(reduce(np.intersect1d, points)[-1])


def hybrid_hits(
    trace: Trace, attention_hits: np.ndarray, checkpoint: np.ndarray
) -> np.ndarray:
    """Leading blocks that a model with attention and recurrent layers reuses.

    A request resumes after the deepest of its attention hits at whose end an earlier
    request kept a state. States never leave here; what attention keeps is the
    replay's business. `perc.attribution` names the difference: the cause `hybrid`.

    Args:
        trace: N accesses of R requests.
        attention_hits: i32[R], leading resident blocks, from any replay.
        checkpoint: bool[N], accesses at the end of whose block the state is kept:
            `(trace.depth + 1) % 4 == 0` for every fourth block, for instance.

    Returns:
        i32[R], at most `attention_hits`.

    Raises:
        InputError: for arrays that are not of this trace.
    """
    hits, kept = np.asarray(attention_hits), np.asarray(checkpoint, bool)
    shapes = (hits.shape, kept.shape)
    if shapes != ((trace.n_requests,), (trace.n_accesses,)):
        raise InputError(
            f"hits of shape {shapes[0]} and checkpoints of shape {shapes[1]} for "
            f"{trace.n_requests} requests of {trace.n_accesses} blocks; give one of "
            "each for each."
        )
    usable = _kept_before(trace, kept) & (trace.depth < hits[trace.request])
    resumed = np.zeros(trace.n_requests, np.int32)
    np.maximum.at(resumed, trace.request[usable], trace.depth[usable] + 1)
    return resumed


def _kept_before(trace: Trace, kept: np.ndarray) -> np.ndarray:
    """bool[N], whether an earlier access of the block kept a state."""
    first = np.full(trace.n_blocks, trace.n_accesses, np.int64)
    at = np.flatnonzero(kept)
    np.minimum.at(first, trace.block[at], at)
    return first[trace.block] < np.arange(trace.n_accesses)
