"""Pages as vLLM keeps them with `kv_cache_dtype="int8_per_token_head"` or fp8.

One block holds keys and values; for each KV head, then each token:

    key codes D | key scale, fp32 | value codes D | value scale, fp32

so a pool of vLLM's is bytes [P, H, B, 2 (D + 4)], in this logical order (vLLM may keep
heads after tokens in memory; its tensor then says so by strides). The codes are those
of perc's `int8_token` and `fp8_token`, so `rows_of` and `blocks_of` only move bytes.
`blocks_from_floats` quantises as vLLM does, which differs from `evict` in three things:
int8 halves are rounded away from zero, the largest magnitude is divided by 127 instead
of multiplied by 1 / 127, and no scale is below 1e-6. NaN and infinities are undefined.
It is the arithmetic of vLLM's source: on a GPU that becomes an approximate division.

Read in vLLM 0.32: `v1/attention/backends/triton_attn.py` and
`v1/attention/ops/triton_reshape_and_cache_flash.py`. Its int4 layout is another one.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from perc.kernels.formats import FORMATS, FP8_MAX, Format, Page
from perc.kernels.quantised import Quantised, parts, rows

Kind = Literal["int8", "fp8"]
SCALE = 4  # bytes of a scale behind its codes
LEAST_SCALE = 1e-6


def blocks_from_floats(keys: jax.Array, values: jax.Array, kind: Kind) -> jax.Array:
    """Quantises pages as vLLM does when it fills its cache.

    Args:
        keys: floats [P, B, H, D].
        values: floats [P, B, H, D].
        kind: `int8` or `fp8`.

    Returns:
        u8[P, H, B, 2 (D + 4)].

    Raises:
        ValueError: if shapes or the kind do not fit.

    Example:
        >>> ones = jnp.ones((3, 16, 2, 64))
        >>> blocks_from_floats(ones, ones, "int8").shape
        (3, 2, 16, 136)
    """
    _form(kind)
    if keys.ndim != 4 or keys.shape != values.shape:
        raise ValueError(
            f"blocks_from_floats: keys are {keys.shape}, values {values.shape}; must "
            "both be [pages, tokens, KV heads, head size]."
        )
    _check_size(keys.shape[3])
    return _joined([_quantised(half, kind) for half in (keys, values)])


def rows_of(blocks: jax.Array, kind: Kind) -> tuple[jax.Array, jax.Array]:
    """Keys and values of blocks as the rows that `restore` and `scores` read.

    Args:
        blocks: u8 or i8 [P, H, B, 2 (D + 4)].
        kind: `int8` or `fp8`.

    Returns:
        u8[P, row_bytes] each, of `FORMATS["int8_token"]` or `FORMATS["fp8_token"]`.

    Example:
        >>> ones = jnp.ones((1, 16, 2, 64))
        >>> keys, values = rows_of(blocks_from_floats(ones, ones, "int8"), "int8")
        >>> keys.shape
        (1, 2176)
    """
    form = _form(kind)
    if blocks.ndim != 4 or blocks.dtype.itemsize != 1 or blocks.shape[3] % 8:
        raise ValueError(
            f"rows_of: blocks are {blocks.dtype}{blocks.shape}, must be bytes [pages, "
            "KV heads, tokens, 2 * (head size + 4)]."
        )
    if blocks.dtype != jnp.uint8:
        blocks = lax.bitcast_convert_type(blocks, jnp.uint8)
    pages, heads, tokens, both = blocks.shape
    size = both // 2 - SCALE
    lines = jnp.swapaxes(blocks, 1, 2).reshape(pages, tokens * heads, 2, size + SCALE)
    found = []
    for half in (0, 1):
        codes = lines[:, :, half, :size, None]
        scale = lax.bitcast_convert_type(lines[:, :, half, size:], jnp.float32)
        stored = Quantised(codes, scale[:, :, None, None], None)
        found.append(rows(stored, form, (tokens, heads, size)))
    return found[0], found[1]


def blocks_of(keys: jax.Array, values: jax.Array, kind: Kind, page: Page) -> jax.Array:
    """Blocks of rows that `evict` wrote: `rows_of` the other way round.

    Args:
        keys: u8[P, row_bytes], of `FORMATS["int8_token"]` or `FORMATS["fp8_token"]`.
        values: the same of values.
        kind: `int8` or `fp8`.
        page: (B, H, D) of the pages.

    Returns:
        u8[P, H, B, 2 (D + 4)].
    """
    form = _form(kind)
    tokens, heads, size = page
    _check_size(size)
    halves = []
    for stored in (keys, values):
        taken = parts(stored, form, page)
        codes = taken.codes.reshape(-1, tokens, heads, size)
        halves.append((codes, taken.scale.reshape(-1, tokens, heads)))
    return _joined(halves)


def _quantised(x: jax.Array, kind: Kind) -> tuple[jax.Array, jax.Array]:
    """Codes u8[P, B, H, D] and scales f32[P, B, H]."""
    x = x.astype(jnp.float32)
    most = jnp.max(jnp.abs(x), axis=3, keepdims=True)
    # XLA would make a product of a division by one number; these may be several.
    largest = jnp.full_like(most, 127.0 if kind == "int8" else FP8_MAX)
    largest = lax.optimization_barrier(largest)
    scale = jnp.maximum(most / largest, LEAST_SCALE)
    y = x * (1.0 / scale)
    if kind == "fp8":
        codes = jnp.clip(y, -FP8_MAX, FP8_MAX).astype(jnp.float8_e4m3fn)
    else:
        # The first clip changes nothing, but keeps product and sum two roundings.
        y = jnp.clip(y, -128.0, 128.0)
        y = jnp.where(y >= 0, y + 0.5, y - 0.5)
        codes = jnp.trunc(jnp.clip(y, -128.0, 127.0)).astype(jnp.int8)
    return lax.bitcast_convert_type(codes, jnp.uint8), scale[..., 0]


def _joined(halves: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
    flat = []
    for codes, scale in halves:
        flat += [codes, lax.bitcast_convert_type(scale, jnp.uint8)]
    return jnp.swapaxes(jnp.concatenate(flat, axis=3), 1, 2)


def _form(kind: str) -> Format:
    if kind not in ("int8", "fp8"):
        raise ValueError(f"kind is {kind!r}, must be int8 or fp8.")
    return FORMATS[f"{kind}_token"]


def _check_size(size: int) -> None:
    if size % SCALE:
        raise ValueError(
            f"vLLM's scales lie at multiples of {SCALE} bytes: the head size is {size}."
        )
