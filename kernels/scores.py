"""Attention scores of queries against paged keys that are dequantised as they are read.

    score[s, h, t] = scale * sum over d of query[s, h, d] * key[p, t % B, h // G, d]

with page p = table[s, t // B], for G = HQ / H query heads a KV head (grouped-query
attention). Keys may lie in the pool
as floats or as the rows that `evict` writes; they are rounded to the query's dtype and
multiplied in it, with sums in float32.
"""

import jax
import jax.numpy as jnp

from perc.kernels import launch as launching
from perc.kernels.evict import line_tile, power_of_two, row_constants
from perc.kernels.formats import Format, Page, layout
from perc.kernels.launch import Backend, Buffer, Launch, chosen
from perc.kernels.pages import is_page
from perc.kernels.quantised import dequantise, parts

TOKENS = 64  # that one program reads


def scores(
    query: jax.Array,
    keys: jax.Array,
    tables: jax.Array,
    lengths: jax.Array,
    *,
    scale: float = 1.0,
    form: Format | None = None,
    page: Page | None = None,
    backend: Backend = "auto",
) -> jax.Array:
    """Scores of every query head against every token of its sequence's pages.

    Args:
        query: bf16, fp16 or fp32 [S, HQ, D], one token a sequence.
        keys: a pool [P, B, H, D] typed as the query, or u8[P, row_bytes] with `form`.
        tables: i32[S, N], pages of each sequence, -1 = none.
        lengths: i32[S], tokens of each sequence.
        scale: factor of all scores, usually 1 / sqrt(D).
        form: how stored keys are stored; None = a pool of floats.
        page: (B, H, D) of stored keys.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Returns:
        f32[S, HQ, N * B]; -inf past a sequence's length and where there is no page.

    Raises:
        ValueError: if shapes or dtypes do not fit.

    Example:
        >>> keys = jnp.ones((2, 8, 1, 64), jnp.bfloat16)
        >>> query = jnp.ones((1, 4, 64), jnp.bfloat16)
        >>> out = scores(query, keys, jnp.array([[1, -1]]), jnp.array([2]), scale=0.125)
        >>> out.shape, out[0, 0, :3].tolist()
        ((1, 4, 16), [8.0, 8.0, -inf])
    """
    page = _check(query, keys, tables, lengths, form, page)
    tables, lengths = tables.astype(jnp.int32), lengths.astype(jnp.int32)
    if chosen(backend) == "jnp":
        return scores_reference(query, keys, tables, lengths, scale, form, page)
    fp8 = chosen(backend) == "interpret" or launching.has_fp8(launching.here())
    plan = scores_launch(query, keys, tables, lengths, scale, form, page, fp8=fp8)
    return launching.run(plan, chosen(backend))[0]


def scores_reference(
    query: jax.Array,
    keys: jax.Array,
    tables: jax.Array,
    lengths: jax.Array,
    scale: float,
    form: Format | None,
    page: Page,
) -> jax.Array:
    """What `scores` means, in jnp; equal up to the order of sums."""
    if form is not None:
        keys = dequantise(parts(keys, form, page), form, page, query.dtype)
    tokens, heads, _ = page
    count, n = tables.shape
    there = is_page(tables, keys)
    read = keys[jnp.where(there, tables, 0)].astype(jnp.float32)
    grouped = query.astype(jnp.float32).reshape(count, heads, -1, query.shape[2])
    out = jnp.einsum("shgd,snthd->shgnt", grouped, read, precision="highest") * scale
    out = out.reshape(count, query.shape[1], n * tokens)
    position = jnp.arange(n * tokens)
    seen = (position < lengths[:, None]) & jnp.repeat(there, tokens, axis=1)
    return jnp.where(seen[:, None], out, -jnp.inf)


def scores_launch(
    query: Buffer,
    keys: Buffer,
    tables: Buffer,
    lengths: Buffer,
    scale: float,
    form: Format | None,
    page: Page,
    *,
    fp8: bool = True,
) -> Launch:
    """The launch of `scores`; `fp8` = the GPU converts E4M3 itself."""
    tokens, heads, size = page
    count, n = tables.shape
    group = query.shape[1] // heads
    packed = form is not None and form.axis == "channel"
    planes = form.planes if form is not None else 1
    lines = tokens // planes if packed else tokens
    tile = min(TOKENS, 2 * TOKENS // planes) if packed else TOKENS
    constants = {
        "SCALE_BY": float(scale),
        "PAGES": keys.shape[0],
        "TABLE": n,
        "TOKENS": tokens,
        "HEADS": heads,
        "SIZE": size,
        "QUERIES": group,
        "LINES": lines,
        "T_LINES": tile,
        "T_QUERIES": max(16, power_of_two(group)),
    } | _stored(form, page, fp8)
    out = jax.ShapeDtypeStruct((count, query.shape[1], n * tokens), jnp.float32)
    grid = (count * heads, -(-n * lines // tile))
    inputs = (query, keys, tables, lengths)
    return Launch("scores_triton", "paged_scores", inputs, (), (out,), grid, constants)


def _stored(form: Format | None, page: Page, fp8: bool) -> dict:
    """What the kernel needs to know of the format; floats are lines of one plane."""
    if form is None:
        line = {"STORED": False, "CHANNEL": False, "WIDTH": page[2], "GROUP": page[2]}
        line |= {"GROUPS": 1, "LINE_GROUPS": 1, "SHARE": 1, "BITS": 8, "FP8": 0}
        line |= {"SIGNED": True, "SYMMETRIC": True, "OFFSET": 0, "SCALE": 0}
        line |= {"SCALE_AT": 0, "ZERO_AT": 0, "ROW": page[0] * page[1] * page[2]}
        return line | {"T_GROUPS": 1, "T_GROUP": power_of_two(page[2])}
    groups, group, _ = line_tile(form, page)
    if form.axis == "channel":  # lanes are channels, each with its own scale
        lanes = (1, power_of_two(page[2]))
    else:
        lanes = (power_of_two(groups), power_of_two(group))
    return {
        "STORED": True,
        "CHANNEL": form.axis == "channel",
        **row_constants(form, page, fp8),
        "T_GROUPS": lanes[0],
        "T_GROUP": max(lanes[1], 16 // lanes[0]),
    }


def _check(
    query: jax.Array,
    keys: jax.Array,
    tables: jax.Array,
    lengths: jax.Array,
    form: Format | None,
    page: Page | None,
) -> Page:
    if form is None:
        if keys.ndim != 4 or keys.dtype != query.dtype:
            raise ValueError(
                f"scores: keys are {keys.dtype}{keys.shape}, must be a pool [pages, "
                f"tokens, KV heads, head size] of {query.dtype} like the query; give "
                "`form` and `page` for stored keys."
            )
        page = keys.shape[1:]
    elif page is None or keys.dtype != jnp.uint8 or keys.ndim != 2:
        raise ValueError(
            "scores: stored keys are u8[pages, row_bytes] and need `page`."
        )
    elif keys.shape[1] != layout(form, page).row_bytes:
        raise ValueError(
            f"scores: rows have {keys.shape[1]} bytes, must have "
            f"{layout(form, page).row_bytes} for pages {page} in this format."
        )
    assert page is not None
    _, heads, size = page
    if query.ndim != 3 or query.shape[2] != size or query.shape[1] % heads:
        raise ValueError(
            f"scores: the query is {query.shape}, must be [sequences, a multiple of "
            f"{heads} heads, {size}]."
        )
    count = query.shape[0]
    if tables.ndim != 2 or len(tables) != count or lengths.shape != (count,):
        raise ValueError(
            f"scores: tables {tables.shape} and lengths {lengths.shape} must be "
            f"[{count}, pages] and [{count}] for {count} queries."
        )
    return page
