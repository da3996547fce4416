"""The Triton kernel of attention scores over paged keys; see `scores.py`."""

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

from perc.kernels.codes_triton import decode_fp8, floats


@triton.jit
def paged_scores(
    query,
    keys,
    tables,
    lengths,
    out,
    SCALE_BY: tl.constexpr,
    PAGES: tl.constexpr,
    TABLE: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    QUERIES: tl.constexpr,
    LINES: tl.constexpr,
    T_LINES: tl.constexpr,
    T_QUERIES: tl.constexpr,
    STORED: tl.constexpr,
    CHANNEL: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    LINE_GROUPS: tl.constexpr,
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
    T_GROUPS: tl.constexpr,
    T_GROUP: tl.constexpr,
):
    """Program (s * HEADS + h, tile): lines of one sequence's pages for one KV head.

    A line is what one token has in a row, or one row of packed tokens; lines of several
    pages make a tile, so that small pages fill the matrix unit too.
    """
    s = (tl.program_id(0) // HEADS).to(tl.int64)
    h = tl.program_id(0) % HEADS
    v = tl.program_id(1) * T_LINES + tl.arange(0, T_LINES)
    line = v % LINES
    page = tl.load(tables + s * TABLE + v // LINES, mask=v < TABLE * LINES, other=-1)
    page = page.to(tl.int64)
    there = (page >= 0) & (page < PAGES)
    lane = tl.arange(0, T_GROUPS * T_GROUP)
    n = lane // T_GROUP
    if CHANNEL:
        w = lane
        real = lane < SIZE
        LINE: tl.constexpr = SIZE
    else:
        w = n * GROUP + lane % T_GROUP
        real = (n < LINE_GROUPS) & (lane % T_GROUP < GROUP)
        LINE: tl.constexpr = WIDTH
    mask = there[:, None] & real[None, :]
    at = (line[:, None] * HEADS + h) * LINE + w[None, :]
    row = keys + page[:, None] * ROW
    packed = tl.load(row + at, mask=mask, other=0)
    g = tl.arange(0, T_QUERIES)
    heads = s * (HEADS * QUERIES) + h * QUERIES + g
    length = tl.load(lengths + s)
    total = tl.zeros((T_QUERIES, T_LINES), tl.float32)
    PLANES: tl.constexpr = 8 // BITS
    for p in tl.static_range(PLANES):
        if STORED:
            if CHANNEL:
                group = (p * WIDTH + line) // (GROUP * SHARE)
                at_scale = group[:, None] * (HEADS * SIZE) + h * SIZE + w[None, :]
            else:
                group = (p // SHARE) * LINE_GROUPS + tl.arange(0, T_GROUPS)
                at_scale = (line[:, None] * HEADS + h) * GROUPS + group[None, :]
            scale = _of_lanes(
                floats(row, SCALE_AT, SCALE) + at_scale, group < GROUPS, there, mask,
                CHANNEL, T_LINES, T_GROUPS, T_GROUP,
            )  # fmt: skip
            code = packed.to(tl.int32) >> (BITS * p)
            if FP8 > 0:
                value = decode_fp8(code & 0xFF, FP8)
            elif SIGNED:
                value = code.to(tl.int8).to(tl.float32)
            else:
                value = (code & ((1 << BITS) - 1)).to(tl.float32)
                if SYMMETRIC:
                    value += OFFSET
                else:
                    value += _of_lanes(
                        floats(row, ZERO_AT, SCALE) + at_scale,
                        group < GROUPS, there, mask,
                        CHANNEL, T_LINES, T_GROUPS, T_GROUP,
                    )  # fmt: skip
            key = (value * scale).to(query.dtype.element_ty)
        else:
            key = packed
        at_query = w if CHANNEL else p * WIDTH + w
        q = tl.load(
            query + heads[:, None] * SIZE + at_query[None, :],
            mask=(g < QUERIES)[:, None] & real[None, :],
            other=0.0,
        )
        product = tl.dot(q, tl.trans(key), input_precision="ieee")
        if CHANNEL:
            position = (v // LINES) * TOKENS + p * WIDTH + line
            _put(
                out, product, heads, g, position, length, there,
                SCALE_BY, QUERIES, TABLE * TOKENS, TABLE * LINES, v,
            )  # fmt: skip
        else:
            total += product
    if not CHANNEL:
        _put(
            out, total, heads, g, v, length, there,
            SCALE_BY, QUERIES, TABLE * TOKENS, TABLE * LINES, v,
        )  # fmt: skip


@triton.jit
def _of_lanes(
    at,
    known,
    there,
    mask,
    CHANNEL: tl.constexpr,
    T_LINES: tl.constexpr,
    T_GROUPS: tl.constexpr,
    T_GROUP: tl.constexpr,
):
    """Scales or zero points of a tile as float32: one a lane, or read once a group."""
    if CHANNEL:
        values = tl.load(at, mask, other=0.0).to(tl.float32)
    else:
        values = tl.load(at, there[:, None] & known[None, :], other=0.0)
        if T_GROUPS > 1:
            values = tl.expand_dims(values, 2)
            values = tl.broadcast_to(values, (T_LINES, T_GROUPS, T_GROUP))
            values = tl.reshape(values, (T_LINES, T_GROUPS * T_GROUP))
        values = values.to(tl.float32)
    return values


@triton.jit
def _put(
    out,
    product,
    heads,
    g,
    position,
    length,
    there,
    SCALE_BY: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDTH: tl.constexpr,
    LINES: tl.constexpr,
    v,
):
    """Writes scores of lines v at their positions, -inf where nothing is cached."""
    seen = there & (position < length)
    values = tl.where(seen[None, :], product * SCALE_BY, float("-inf"))
    at = heads[:, None] * WIDTH + position[None, :]
    tl.store(out + at, values, mask=(g < QUERIES)[:, None] & (v < LINES)[None, :])
