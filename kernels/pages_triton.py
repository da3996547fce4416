"""Triton kernels that move whole pages; `pages.py` says what they compute."""

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore


@triton.jit
def gather_pages(
    pool, table, pages, PAGES: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Program (i, tile): one tile of page `table[i]` into page i of the output."""
    i = tl.program_id(0).to(tl.int64)
    page = tl.load(table + i).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    # A limit instead of `mask & scalar`, which the interpreter takes for integers.
    there = at < tl.where((page >= 0) & (page < PAGES), SIZE, 0)
    values = tl.load(pool + page * SIZE + at, mask=there, other=0.0)
    tl.store(pages + i * SIZE + at, values, mask=at < SIZE)


@triton.jit
def scatter_pages(
    pages, table, pool, PAGES: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Program (i, tile): one tile of page i of the input into page `table[i]`."""
    i = tl.program_id(0).to(tl.int64)
    page = tl.load(table + i).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    there = at < tl.where((page >= 0) & (page < PAGES), SIZE, 0)
    values = tl.load(pages + i * SIZE + at, mask=there)
    tl.store(pool + page * SIZE + at, values, mask=there)


@triton.jit
def copy_pages(
    source, target, pool, PAGES: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr
):
    """Program (i, tile): one tile of page `source[i]` into page `target[i]`."""
    i = tl.program_id(0)
    origin = tl.load(source + i).to(tl.int64)
    goal = tl.load(target + i).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    both = (origin >= 0) & (origin < PAGES) & (goal >= 0) & (goal < PAGES)
    there = at < tl.where(both, SIZE, 0)
    values = tl.load(pool + origin * SIZE + at, mask=there)
    tl.store(pool + goal * SIZE + at, values, mask=there)
