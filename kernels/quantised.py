"""The arithmetic of the formats in jnp: the definition that kernels are held to.

    scale = max(largest magnitude * step, floor), rounded to its stored dtype
    code  = round(value * (1 / scale)) - zero
    value = (code + zero) * scale

Rounding is to nearest, ties to even. No product feeds a sum, so no compiler can
contract two roundings into one. Nothing depends on subnormal numbers, which XLA
flushes on the CPU.

A group that holds NaN or an infinity, or whose scale is above 2^96 or overflows its
dtype, gets codes that mean 0 and scale infinity, and so comes back as NaN in whole:
nothing that was lost looks like a value. `tests/oracles/quantised.py` says the same in
plain Python.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.kernels.formats import CEILING, FP8_MAX, Format, Layout, Page, layout

INFINITY_BITS = 0x7F800000


class Quantised(NamedTuple):
    """Stored pages in their parts; `rows` packs them, `parts` takes them out."""

    codes: jax.Array  # u8[n, outer, width, inner], packed
    scale: jax.Array  # scale dtype[n, outer, groups, inner]
    zero: jax.Array | None  # as scale, whole numbers; None = symmetric


def quantise(pages: jax.Array, form: Format) -> Quantised:
    """Quantises float pages [n, B, H, D]."""
    n, page = pages.shape[0], pages.shape[1:]
    at = layout(form, page)
    x = pages.astype(jnp.float32)
    x = x.reshape(n, at.outer, form.groups, at.group, at.inner)
    scale, low = _scale(x, form)
    inverse = 1.0 / scale.astype(jnp.float32)  # 0 where the scale is infinite
    kept = scale < jnp.inf
    y = x * inverse
    if form.kind == "fp8":
        y = jnp.clip(y, -FP8_MAX, FP8_MAX).astype(jnp.float8_e4m3fn)
        codes, zero = lax.bitcast_convert_type(y, jnp.uint8), jnp.int32(0)
    else:
        zero = _zero(low, inverse, kept, form)
        codes = jnp.round(y).astype(jnp.int32) - zero
        codes = (codes & ((1 << form.bits) - 1)).astype(jnp.uint8)
    codes = _pack(jnp.where(kept, codes, jnp.uint8(form.blank)), form, at)
    scale = jnp.squeeze(scale, 3)
    if form.symmetric:
        return Quantised(codes, scale, None)
    zero = jnp.squeeze(zero.astype(jnp.float32).astype(scale.dtype), 3)
    return Quantised(codes, scale, zero)


def dequantise(
    stored: Quantised, form: Format, page: Page, dtype: jnp.dtype
) -> jax.Array:
    """Float pages [n, B, H, D] of `dtype` from stored ones; `page` is (B, H, D)."""
    at = layout(form, page)
    codes = _unpack(stored.codes, form, at)
    if form.kind == "fp8":
        values = lax.bitcast_convert_type(codes, jnp.float8_e4m3fn)
        values = values.astype(jnp.float32)
    else:
        codes = lax.bitcast_convert_type(codes, jnp.int8) if form.signed else codes
        values = codes.astype(jnp.float32)
        if stored.zero is not None:
            values += jnp.expand_dims(stored.zero.astype(jnp.float32), 3)
        else:
            values += form.offset
    values *= jnp.expand_dims(stored.scale.astype(jnp.float32), 3)
    return values.astype(dtype).reshape(-1, *page)


def rows(stored: Quantised, form: Format, page: Page) -> jax.Array:
    """One row of bytes a page, u8[n, row_bytes]."""
    at, n = layout(form, page), stored.codes.shape[0]
    parts = [(stored.codes, at.scale_at), (stored.scale, at.zero_at)]
    if stored.zero is not None:
        parts[1:] = [(stored.scale, at.zero_at), (stored.zero, at.end)]
    flat, at_byte = [], 0
    for part, stop in [*parts, (jnp.zeros((n, 0), jnp.uint8), at.row_bytes)]:
        data = _bytes(part)
        flat += [data, jnp.zeros((n, stop - at_byte - data.shape[1]), jnp.uint8)]
        at_byte = stop
    return jnp.concatenate(flat, axis=1)


def parts(stored: jax.Array, form: Format, page: Page) -> Quantised:
    """Takes rows u8[n, row_bytes] apart."""
    at, n = layout(form, page), stored.shape[0]
    shape = (n, at.outer, form.groups, at.inner)
    count = at.outer * at.width * at.inner
    codes = stored[:, :count].reshape(n, at.outer, at.width, at.inner)
    scale = _floats(stored, at.scale_at, shape, form.scale_dtype)
    zero = None
    if not form.symmetric:
        zero = _floats(stored, at.zero_at, shape, form.scale_dtype)
    return Quantised(codes, scale, zero)


def _scale(x: jax.Array, form: Format) -> tuple[jax.Array, jax.Array | None]:
    """Stored scale [n, outer, groups, 1, inner] of each group, and its lowest value."""
    magnitude = lax.bitcast_convert_type(x, jnp.int32) & 0x7FFFFFFF
    magnitude = jnp.max(magnitude, axis=3, keepdims=True)  # NaN is above infinity
    most = lax.bitcast_convert_type(magnitude, jnp.float32)
    low = None
    if form.symmetric:
        wanted = most * jnp.float32(form.step)
    else:
        low = jnp.min(x, axis=3, keepdims=True)
        span = jnp.max(x, axis=3, keepdims=True) - low
        wanted = span * jnp.float32(form.step)
        wanted = jnp.maximum(wanted, most * jnp.float32(form.least))
    wanted = jnp.maximum(wanted, jnp.float32(form.floor))
    usable = (magnitude < INFINITY_BITS) & (wanted <= CEILING)
    wanted = jnp.where(usable, wanted, jnp.inf)
    return wanted.astype(form.scale_dtype), low


def _zero(
    low: jax.Array | None, inverse: jax.Array, kept: jax.Array, form: Format
) -> jax.Array:
    """Zero points, i32 and shaped as the scales."""
    if low is None:
        return jnp.int32(form.offset)
    return jnp.where(kept, jnp.round(low * inverse), 0).astype(jnp.int32)


def _pack(codes: jax.Array, form: Format, at: Layout) -> jax.Array:
    n = codes.shape[0]
    codes = codes.reshape(n, at.outer, form.planes, at.width, at.inner)
    packed = codes[:, :, 0]
    for plane in range(1, form.planes):
        packed |= codes[:, :, plane] << (plane * form.bits)
    return packed


def _unpack(packed: jax.Array, form: Format, at: Layout) -> jax.Array:
    """Codes u8[n, outer, groups, group, inner]."""
    mask = jnp.uint8((1 << form.bits) - 1)
    planes = [(packed >> (p * form.bits)) & mask for p in range(form.planes)]
    codes = jnp.stack(planes, axis=2)
    return codes.reshape(-1, at.outer, form.groups, at.group, at.inner)


def _bytes(part: jax.Array) -> jax.Array:
    if part.dtype != jnp.uint8:
        part = lax.bitcast_convert_type(part, jnp.uint8)
    return part.reshape(part.shape[0], -1)


def _floats(stored: jax.Array, start: int, shape: tuple, dtype: str) -> jax.Array:
    size = jnp.dtype(dtype).itemsize
    count = shape[1] * shape[2] * shape[3]
    data = stored[:, start : start + count * size].reshape(*shape, size)
    return lax.bitcast_convert_type(data, jnp.dtype(dtype))
