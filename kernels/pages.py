"""Gather, scatter and copy of whole pages by a table of page numbers.

A pool is `[P, ...]`: P pages of any shape and any dtype of 1, 2 or 4 bytes, stored
rows of bytes included. A table is i32[n]; -1, and every number that is no page of the
pool, means "no page", so that tables keep their length under jit.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from perc.kernels.launch import Backend, Buffer, Launch, chosen, run

TILE = 4096  # elements that one program moves


def gather(
    pool: jax.Array, table: jax.Array, *, backend: Backend = "auto"
) -> jax.Array:
    """Pages `pool[table]` as one contiguous array; zeros where there is no page.

    Args:
        pool: [P, ...].
        table: i32[n], pages to read.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Returns:
        [n, ...], dtype of the pool.

    Example:
        >>> gather(jnp.array([[1, 2], [3, 4]]), jnp.array([1, -1]), backend="jnp")
        Array([[3, 4],
               [0, 0]], dtype=int32)
    """
    table = check_table("gather", table)
    if chosen(backend) == "jnp":
        return gather_reference(pool, table)
    moved = run(gather_launch(_raw(pool), table), chosen(backend))[0]
    return _typed(moved, pool.dtype)


def scatter(
    pool: jax.Array, table: jax.Array, pages: jax.Array, *, backend: Backend = "auto"
) -> jax.Array:
    """The pool with `pages[i]` written to page `table[i]`; -1 is skipped.

    In place where the pool is donated to jit. A page must not be named twice.

    Args:
        pool: [P, ...].
        table: i32[n], pages to write.
        pages: [n, ...], shaped and typed as the pool's pages.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Example:
        >>> pool = jnp.zeros((2, 2), jnp.int32)
        >>> scatter(pool, jnp.array([1]), jnp.array([[5, 6]]), backend="jnp")
        Array([[0, 0],
               [5, 6]], dtype=int32)
    """
    table = check_table("scatter", table)
    expected = (len(table), *pool.shape[1:])
    if pages.shape != expected or pages.dtype != pool.dtype:
        raise ValueError(
            f"scatter: pages are {pages.dtype}{pages.shape}, must be "
            f"{pool.dtype}{expected} for this pool and table."
        )
    if chosen(backend) == "jnp":
        return scatter_reference(pool, table, pages)
    plan = scatter_launch(_raw(pool), table, _raw(pages))
    return _typed(run(plan, chosen(backend))[0], pool.dtype)


def copy(
    pool: jax.Array,
    source: jax.Array,
    target: jax.Array,
    *,
    backend: Backend = "auto",
) -> jax.Array:
    """The pool with page `source[i]` copied to page `target[i]`, as copy-on-write does.

    A pair is skipped where either side is no page. No page may be named twice in
    `target`, nor stand in both lists: pages are copied at the same time.

    Args:
        pool: [P, ...].
        source: i32[n].
        target: i32[n].
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Example:
        >>> pool = jnp.array([[1, 2], [0, 0]])
        >>> copy(pool, jnp.array([0]), jnp.array([1]), backend="jnp")
        Array([[1, 2],
               [1, 2]], dtype=int32)
    """
    source, target = check_table("copy", source), check_table("copy", target)
    if source.shape != target.shape:
        raise ValueError(
            f"copy: {len(source)} sources, {len(target)} targets; must be as many."
        )
    if chosen(backend) == "jnp":
        return copy_reference(pool, source, target)
    plan = copy_launch(_raw(pool), source, target)
    return _typed(run(plan, chosen(backend))[0], pool.dtype)


def gather_reference(pool: jax.Array, table: jax.Array) -> jax.Array:
    """What `gather` means, in jnp."""
    there = is_page(table, pool)
    pages = pool[jnp.where(there, table, 0)]
    there = there.reshape(-1, *(1,) * (pool.ndim - 1))
    return jnp.where(there, pages, jnp.zeros((), pool.dtype))


def scatter_reference(pool: jax.Array, table: jax.Array, pages: jax.Array) -> jax.Array:
    """What `scatter` means, in jnp."""
    target = jnp.where(is_page(table, pool), table, pool.shape[0])
    return pool.at[target].set(pages, mode="drop")


def copy_reference(pool: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
    """What `copy` means, in jnp."""
    target = jnp.where(is_page(source, pool), target, -1)
    return scatter_reference(pool, target, gather_reference(pool, source))


def gather_launch(pool: Buffer, table: Buffer) -> Launch:
    """The launch of `gather`."""
    pages = jax.ShapeDtypeStruct((len(table), *pool.shape[1:]), pool.dtype)
    return _launch("gather_pages", pool, (pool, table), (), (pages,))


def scatter_launch(pool: Buffer, table: Buffer, pages: Buffer) -> Launch:
    """The launch of `scatter`."""
    return _launch("scatter_pages", pool, (pages, table), (pool,), ())


def copy_launch(pool: Buffer, source: Buffer, target: Buffer) -> Launch:
    """The launch of `copy`."""
    return _launch("copy_pages", pool, (source, target), (pool,), ())


def is_page(table: jax.Array, pool: jax.Array) -> jax.Array:
    """Whether each number of a table is a page of the pool, bool[n]."""
    return (table >= 0) & (table < pool.shape[0])


def check_table(op: str, table: jax.Array) -> jax.Array:
    """Returns a table of page numbers as i32[n].

    Raises:
        ValueError: if it is not a list of whole numbers.
    """
    table = jnp.asarray(table)
    if table.ndim != 1 or not jnp.issubdtype(table.dtype, jnp.integer):
        raise ValueError(
            f"{op}: a table is {table.dtype}{table.shape}, must be a list of page "
            "numbers, int32[n]."
        )
    return table.astype(jnp.int32)


def _raw(pages: jax.Array) -> jax.Array:
    """Floats of one byte as bytes: not every GPU has the type."""
    if pages.dtype.itemsize == 1 and jnp.issubdtype(pages.dtype, jnp.floating):
        return lax.bitcast_convert_type(pages, jnp.uint8)
    return pages


def _typed(pages: jax.Array, dtype: jnp.dtype) -> jax.Array:
    return pages if pages.dtype == dtype else lax.bitcast_convert_type(pages, dtype)


def _launch(
    kernel: str, pool: Buffer, inputs: tuple, updated: tuple, outputs: tuple
) -> Launch:
    size = math.prod(pool.shape[1:])
    count = len(inputs[1])
    constants = {"PAGES": pool.shape[0], "SIZE": size, "TILE": TILE}
    grid = (count, -(-size // TILE))
    return Launch("pages_triton", kernel, inputs, updated, outputs, grid, constants)
