"""Triton kernels that quantise pages into rows and restore them; see `quantised.py`.

One source serves both axes: a page is [outer, length, inner], with inner = 1 where
scales are per token and outer = 1 where they are per channel. A tile has the shape
[outer, groups, group, inner] and covers one plane of `length`: as many elements as the
line has bytes. Planes are tuples of tiles, so packing needs no shuffle.
"""

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

from perc.kernels.codes_triton import (
    SHIFT,
    as_float,
    decode_fp8,
    encode_fp8,
    floats,
    nearest,
    ordered,
    quotient,
    shifted,
    unordered,
)


@triton.jit
def evict_pages(
    pool,
    table,
    stored,
    PAGES: tl.constexpr,
    OUTER: tl.constexpr,
    LENGTH: tl.constexpr,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUPS: tl.constexpr,
    LINE_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    SHARE: tl.constexpr,
    BITS: tl.constexpr,
    FP8: tl.constexpr,
    SIGNED: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    OFFSET: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_AT: tl.constexpr,
    ZERO_AT: tl.constexpr,
    ROW: tl.constexpr,
    T_OUTER: tl.constexpr,
    T_GROUPS: tl.constexpr,
    T_GROUP: tl.constexpr,
    T_INNER: tl.constexpr,
    STEP: tl.constexpr,
    LEAST: tl.constexpr,
    FLOOR: tl.constexpr,
    CEILING: tl.constexpr,
    BLANK: tl.constexpr,
    END: tl.constexpr,
):
    """Program (i, tile): a tile of page `table[i]` into row i, read once."""
    i = tl.program_id(0).to(tl.int64)
    page = tl.load(table + i).to(tl.int64)
    there = (page >= 0) & (page < PAGES)
    FULL: tl.constexpr = GROUP == T_GROUP
    o, n, g, c = _indices(INNER, T_OUTER, T_GROUPS, T_GROUP, T_INNER)
    inside = (o < OUTER) & (n < LINE_GROUPS) & (g < GROUP) & (c < INNER)
    readable = (o < tl.where(there, OUTER, 0)) & inside
    line = n * GROUP + g
    start = pool + page * (OUTER * LENGTH * INNER) + (o * LENGTH + line) * INNER + c
    PLANES: tl.constexpr = 8 // BITS
    planes = ()
    for p in tl.static_range(PLANES):
        x = tl.load(start + p * WIDTH * INNER, mask=readable, other=0.0)
        planes = planes + (x.to(tl.float32),)
    row = stored + i * ROW
    packed = tl.zeros(inside.shape, tl.int32)
    scale_mask = (o < OUTER) & (n < LINE_GROUPS) & (c < INNER)
    ONES: tl.constexpr = ((1 << BITS * SHARE) - 1) // ((1 << BITS) - 1)
    for q in tl.static_range(PLANES // SHARE):
        if SYMMETRIC:
            magnitude = _magnitude(planes, q * SHARE, SHARE)
            low = as_float(magnitude)  # not used
            wanted = as_float(magnitude) * STEP
        else:
            low, high, magnitude = _range(planes, q * SHARE, SHARE, inside, FULL)
            wanted = tl.maximum((high - low) * STEP, as_float(magnitude) * LEAST)
        wanted = tl.maximum(wanted, FLOOR)
        usable = (magnitude < 0x7F800000) & (wanted <= CEILING)
        wanted = tl.where(usable, wanted, float("inf"))
        scale = floats(row, SCALE_AT, SCALE).dtype.element_ty
        kept_scale = wanted.to(scale)
        inverse = quotient(kept_scale.to(tl.float32))
        kept = kept_scale.to(tl.float32) < float("inf")
        at_scale = (o * GROUPS + q * LINE_GROUPS + n) * INNER + c
        tl.store(
            floats(row, SCALE_AT, SCALE) + at_scale,
            tl.where(there, kept_scale.to(tl.float32), 0.0).to(scale),
            mask=scale_mask,
        )
        zero = tl.full(kept.shape, OFFSET, tl.int32)
        if not SYMMETRIC:
            zero = tl.where(kept, nearest(low * inverse), 0)
            tl.store(
                floats(row, ZERO_AT, SCALE) + at_scale,
                tl.where(there, zero.to(tl.float32), 0.0).to(scale),
                mask=scale_mask,
            )
        part = tl.zeros(inside.shape, tl.int32)
        for s in tl.static_range(SHARE):
            y = planes[q * SHARE + s] * inverse
            if FP8 > 0:
                part = encode_fp8(y, FP8)
            else:
                part += shifted(y) << (BITS * (q * SHARE + s))
        if FP8 == 0:
            # Codes are in range, so zeros may leave once a byte instead of once a code.
            part -= (zero + SHIFT) * (ONES << (BITS * q * SHARE))
        blank = tl.where(there, BLANK * (ONES << (BITS * q * SHARE)), 0)
        packed |= tl.where(kept & there, part & 0xFF, blank)
    at = (o * WIDTH + line) * INNER + c
    tl.store(row + at, packed.to(tl.uint8), mask=inside)
    if tl.program_id(1) == 0:
        _clear(row, OUTER * WIDTH * INNER, SCALE_AT)
        SCALES: tl.constexpr = OUTER * GROUPS * INNER * (4 if SCALE == 0 else 2)
        if not SYMMETRIC:
            _clear(row, SCALE_AT + SCALES, ZERO_AT)
        _clear(row, END, ROW)


@triton.jit
def restore_pages(
    stored,
    table,
    pool,
    PAGES: tl.constexpr,
    OUTER: tl.constexpr,
    LENGTH: tl.constexpr,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUPS: tl.constexpr,
    LINE_GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    SHARE: tl.constexpr,
    BITS: tl.constexpr,
    FP8: tl.constexpr,
    SIGNED: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    OFFSET: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_AT: tl.constexpr,
    ZERO_AT: tl.constexpr,
    ROW: tl.constexpr,
    T_OUTER: tl.constexpr,
    T_GROUPS: tl.constexpr,
    T_GROUP: tl.constexpr,
    T_INNER: tl.constexpr,
):
    """Program (i, tile): a tile of row i into page `table[i]`."""
    i = tl.program_id(0).to(tl.int64)
    page = tl.load(table + i).to(tl.int64)
    there = (page >= 0) & (page < PAGES)
    o, n, g, c = _indices(INNER, T_OUTER, T_GROUPS, T_GROUP, T_INNER)
    inside = (n < LINE_GROUPS) & (g < GROUP) & (c < INNER)
    inside = (o < tl.where(there, OUTER, 0)) & inside
    scale_mask = (o < tl.where(there, OUTER, 0)) & (n < LINE_GROUPS) & (c < INNER)
    line = n * GROUP + g
    row = stored + i * ROW
    packed = tl.load(row + (o * WIDTH + line) * INNER + c, mask=inside, other=0)
    packed = packed.to(tl.int32)
    start = pool + page * (OUTER * LENGTH * INNER) + (o * LENGTH + line) * INNER + c
    PLANES: tl.constexpr = 8 // BITS
    for q in tl.static_range(PLANES // SHARE):
        at_scale = (o * GROUPS + q * LINE_GROUPS + n) * INNER + c
        scale = tl.load(
            floats(row, SCALE_AT, SCALE) + at_scale, mask=scale_mask, other=0.0
        ).to(tl.float32)
        zero = tl.full(scale.shape, OFFSET, tl.float32)
        if not SYMMETRIC:
            zero = tl.load(
                floats(row, ZERO_AT, SCALE) + at_scale, mask=scale_mask, other=0.0
            ).to(tl.float32)
        for s in tl.static_range(SHARE):
            code = packed >> (BITS * (q * SHARE + s))
            if FP8 > 0:
                value = decode_fp8(code, FP8)
            elif SIGNED:
                value = code.to(tl.int8).to(tl.float32)
            else:
                value = (code & ((1 << BITS) - 1)).to(tl.float32) + zero
            value = (value * scale).to(pool.dtype.element_ty)
            tl.store(start + (q * SHARE + s) * WIDTH * INNER, value, mask=inside)


@triton.jit
def _indices(
    INNER: tl.constexpr,
    T_OUTER: tl.constexpr,
    T_GROUPS: tl.constexpr,
    T_GROUP: tl.constexpr,
    T_INNER: tl.constexpr,
):
    """This program's places along outer, groups, group and inner, four dimensions."""
    COLUMNS: tl.constexpr = (INNER + T_INNER - 1) // T_INNER
    tile = tl.program_id(1)
    o = (tile // COLUMNS) * T_OUTER + tl.arange(0, T_OUTER)
    c = (tile % COLUMNS) * T_INNER + tl.arange(0, T_INNER)
    n = tl.arange(0, T_GROUPS)
    g = tl.arange(0, T_GROUP)
    return (
        o[:, None, None, None],
        n[None, :, None, None],
        g[None, None, :, None],
        c[None, None, None, :],
    )


@triton.jit
def _magnitude(planes, FIRST: tl.constexpr, SHARE: tl.constexpr):
    """Bits of the largest magnitude of each group; NaN is above infinity."""
    most = planes[FIRST].to(tl.int32, bitcast=True) & 0x7FFFFFFF
    for s in tl.static_range(1, SHARE):
        bits = planes[FIRST + s].to(tl.int32, bitcast=True) & 0x7FFFFFFF
        most = tl.maximum(most, bits)
    return tl.expand_dims(tl.max(most, 2), 2)


@triton.jit
def _range(
    planes, FIRST: tl.constexpr, SHARE: tl.constexpr, inside, FULL: tl.constexpr
):
    """Lowest and highest value of each group, and bits of its largest magnitude.

    Through integers that order as the floats do, so that NaN lies beyond infinity.
    """
    low = ordered(planes[FIRST])
    high = low
    for s in tl.static_range(1, SHARE):
        key = ordered(planes[FIRST + s])
        low = tl.minimum(low, key)
        high = tl.maximum(high, key)
    if not FULL:
        low = tl.where(inside, low, 0x7FFFFFFF)
        high = tl.where(inside, high, -0x7FFFFFFF)
    low = unordered(tl.expand_dims(tl.min(low, 2), 2))
    high = unordered(tl.expand_dims(tl.max(high, 2), 2))
    most = tl.maximum(low & 0x7FFFFFFF, high & 0x7FFFFFFF)
    return as_float(low), as_float(high), most


@triton.jit
def _clear(row, FROM: tl.constexpr, TO: tl.constexpr):
    """Zeroes the bytes between two parts of a row, fewer than 16."""
    if FROM < TO:
        at = FROM + tl.arange(0, 16)
        tl.store(row + at, tl.zeros((16,), tl.uint8), mask=at < TO)
