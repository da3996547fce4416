"""Quantise pages while they leave a pool, and restore them in place.

`evict` reads scattered pages once and writes one contiguous buffer of rows, ready for
one transfer to the host. `restore` writes such rows back into any pages of a pool.
`formats.py` has the layout of a row, `quantised.py` the arithmetic.
"""

import jax
import jax.numpy as jnp

from perc.kernels import launch as launching
from perc.kernels.formats import CEILING, SCALE_BYTES, Format, Page, layout
from perc.kernels.launch import Backend, Buffer, Launch, chosen
from perc.kernels.pages import check_table, gather_reference, is_page, scatter_reference
from perc.kernels.quantised import dequantise, parts, quantise, rows

ELEMENTS = 8192  # that one program quantises
FLOATS = ("float32", "float16", "bfloat16")


def evict(
    pool: jax.Array, table: jax.Array, form: Format, *, backend: Backend = "auto"
) -> jax.Array:
    """Pages `pool[table]`, quantised into one contiguous buffer.

    Args:
        pool: bf16, fp16 or fp32 [P, B, H, D].
        table: i32[n], pages to read; rows of -1 are zero bytes.
        form: how to store them.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Returns:
        u8[n, row_bytes]; `layout(form, (B, H, D))` says what is where.

    Raises:
        ValueError: if the pool or the format does not fit.

    Example:
        >>> pool = jnp.ones((4, 8, 2, 64), jnp.bfloat16)
        >>> evict(pool, jnp.array([3, -1]), Format("int8"), backend="jnp").shape
        (2, 1088)
    """
    table = check_table("evict", table)
    _check_pool("evict", pool)
    layout(form, pool.shape[1:])
    if chosen(backend) == "jnp":
        return evict_reference(pool, table, form)
    fp8 = _hardware_fp8(form, chosen(backend))
    return launching.run(evict_launch(pool, table, form, fp8=fp8), chosen(backend))[0]


def restore(
    pool: jax.Array,
    table: jax.Array,
    stored: jax.Array,
    form: Format,
    *,
    backend: Backend = "auto",
) -> jax.Array:
    """The pool with stored pages written back to pages `table[i]`; -1 is skipped.

    In place where the pool is donated to jit. A page must not be named twice.

    Args:
        pool: bf16, fp16 or fp32 [P, B, H, D].
        table: i32[n], pages to write.
        stored: u8[n, row_bytes], from `evict` with the same format and page shape.
        form: how they are stored.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Example:
        >>> pool = jnp.ones((4, 8, 2, 64), jnp.bfloat16)
        >>> stored = evict(pool, jnp.array([3]), Format("int4"), backend="jnp")
        >>> back = restore(0 * pool, jnp.array([1]), stored, Format("int4"))
        >>> back[:, 0, 0, 0].tolist()
        [0.0, 1.0, 0.0, 0.0]
    """
    table = check_table("restore", table)
    _check_pool("restore", pool)
    expected = (len(table), layout(form, pool.shape[1:]).row_bytes)
    if stored.shape != expected or stored.dtype != jnp.uint8:
        raise ValueError(
            f"restore: stored pages are {stored.dtype}{stored.shape}, must be "
            f"uint8{expected} for this pool, table and format."
        )
    if chosen(backend) == "jnp":
        return restore_reference(pool, table, stored, form)
    fp8 = _hardware_fp8(form, chosen(backend))
    plan = restore_launch(pool, table, stored, form, fp8=fp8)
    return launching.run(plan, chosen(backend))[0]


def evict_reference(pool: jax.Array, table: jax.Array, form: Format) -> jax.Array:
    """What `evict` means, in jnp."""
    page = pool.shape[1:]
    stored = rows(quantise(gather_reference(pool, table), form), form, page)
    return jnp.where(is_page(table, pool)[:, None], stored, jnp.uint8(0))


def restore_reference(
    pool: jax.Array, table: jax.Array, stored: jax.Array, form: Format
) -> jax.Array:
    """What `restore` means, in jnp."""
    page = pool.shape[1:]
    pages = dequantise(parts(stored, form, page), form, page, pool.dtype)
    return scatter_reference(pool, table, pages)


def evict_launch(
    pool: Buffer, table: Buffer, form: Format, *, fp8: bool = True
) -> Launch:
    """The launch of `evict`; `fp8` = the GPU converts E4M3 itself."""
    at = layout(form, pool.shape[1:])
    out = jax.ShapeDtypeStruct((len(table), at.row_bytes), jnp.uint8)
    constants = _constants(pool, form, fp8)
    constants |= {
        "STEP": form.step,
        "LEAST": form.least,
        "FLOOR": form.floor,
        "CEILING": CEILING,
        "BLANK": form.blank,
        "END": at.end,
    }
    grid = (len(table), _tiles(form, pool))
    return Launch(
        "quantised_triton", "evict_pages", (pool, table), (), (out,), grid, constants
    )


def restore_launch(
    pool: Buffer,
    table: Buffer,
    stored: Buffer,
    form: Format,
    *,
    fp8: bool = True,
) -> Launch:
    """The launch of `restore`; `fp8` = the GPU converts E4M3 itself."""
    constants = _constants(pool, form, fp8)
    grid = (len(table), _tiles(form, pool))
    return Launch(
        "quantised_triton",
        "restore_pages",
        (stored, table),
        (pool,),
        (),
        grid,
        constants,
    )


def line_tile(form: Format, page: Page) -> tuple[int, int, int]:
    """One plane of a line of codes: its groups, their elements, planes that share one.

    Lines are covered by tiles of powers of two, so other head sizes mask some lanes.
    """
    at = layout(form, page)
    share = max(1, form.planes // form.groups)
    groups = max(1, form.groups // form.planes)
    return groups, at.width // groups, share


def row_constants(form: Format, page: Page, fp8: bool) -> dict:
    """What a kernel needs to know to read and write the rows of a format.

    Args:
        form: the format.
        page: shape of a page.
        fp8: whether the hardware converts fp8; else the kernel does.
    """
    at = layout(form, page)
    groups, group, share = line_tile(form, page)
    return {
        "WIDTH": at.width,
        "GROUPS": form.groups,
        "LINE_GROUPS": groups,
        "GROUP": group,
        "SHARE": share,
        "BITS": form.bits,
        "FP8": 0 if form.kind != "fp8" else 1 if fp8 else 2,
        "SIGNED": form.signed,
        "SYMMETRIC": form.symmetric,
        "OFFSET": form.offset,
        "SCALE": list(SCALE_BYTES).index(form.scale_dtype),
        "SCALE_AT": at.scale_at,
        "ZERO_AT": at.zero_at,
        "ROW": at.row_bytes,
    }


def power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def _tile(form: Format, pool: Buffer) -> tuple[int, int, int, int]:
    """Shape of one plane's tile: outer, groups, group, inner."""
    page = pool.shape[1:]
    at = layout(form, page)
    groups, group, _ = line_tile(form, page)
    groups, group = power_of_two(groups), power_of_two(group)
    room = max(1, ELEMENTS // (form.planes * groups * group))
    outer, inner = power_of_two(at.outer), power_of_two(at.inner)
    return min(outer, room), groups, group, min(inner, room)


def _tiles(form: Format, pool: Buffer) -> int:
    at = layout(form, pool.shape[1:])
    outer, _, _, inner = _tile(form, pool)
    return -(-at.outer // outer) * -(-at.inner // inner)


def _constants(pool: Buffer, form: Format, fp8: bool) -> dict:
    page = pool.shape[1:]
    at = layout(form, page)
    outer_tile, groups_tile, group_tile, inner_tile = _tile(form, pool)
    return {
        "PAGES": pool.shape[0],
        "OUTER": at.outer,
        "LENGTH": at.length,
        "INNER": at.inner,
        **row_constants(form, page, fp8),
        "T_OUTER": outer_tile,
        "T_GROUPS": groups_tile,
        "T_GROUP": group_tile,
        "T_INNER": inner_tile,
    }


def _check_pool(op: str, pool: jax.Array) -> None:
    if pool.ndim != 4 or pool.dtype.name not in FLOATS:
        raise ValueError(
            f"{op}: the pool is {pool.dtype}{pool.shape}, must be [pages, tokens, KV "
            f"heads, head size] of {', '.join(FLOATS)}."
        )


def _hardware_fp8(form: Format, backend: str) -> bool:
    if form.kind != "fp8" or backend == "interpret":
        return True
    return launching.has_fp8(launching.here())
