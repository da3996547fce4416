"""The Triton kernel of victim selection; see `victims.py`."""

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

from perc.kernels.codes_triton import ordered


@triton.jit
def lowest(
    features,
    weights,
    pinned,
    keys,
    slots,
    FEATURES: tl.constexpr,
    SLOTS: tl.constexpr,
    KEPT: tl.constexpr,
    TILE: tl.constexpr,
    LARGEST: tl.constexpr,
):
    """Program i: scores of a tile of slots, and its KEPT lowest in order.

    Score and slot are sorted as one integer of 64 bits, so ties go to the lower slot.
    """
    tile = tl.program_id(0)
    slot = tile * TILE + tl.arange(0, TILE)
    real = slot < SLOTS
    score = tl.zeros((TILE,), tl.float32)
    for f in range(FEATURES):
        row = features + f * SLOTS
        term = tl.load(weights + f) * tl.load(row + slot, mask=real, other=0.0)
        clipped = tl.minimum(tl.maximum(term, -LARGEST), LARGEST)
        score += tl.where(term == term, clipped, term)
    key = ordered(tl.where(score == 0, 0.0, score))
    key = tl.where(score == score, key, -0x7FFFFFFF)
    stays = tl.load(pinned + slot, mask=real, other=1) != 0
    key = tl.where(stays, 0x7FFFFFFF, key)
    pair = (key.to(tl.int64) << 32) | slot.to(tl.int64)
    pair = tl.sort(pair)
    at = tl.arange(0, TILE)
    out = tile * KEPT + at
    tl.store(keys + out, (pair >> 32).to(tl.int32), mask=at < KEPT)
    tl.store(slots + out, pair.to(tl.int32), mask=at < KEPT)
