"""FIFO at many capacities in one pass: one vector lane a capacity.

FIFO is no stack algorithm, but its state is one number a block: how many insertions
had happened when the block was inserted. With C slots it is resident as long as no more
than C insertions happened since. So K caches are a row of K numbers a block, and an
access is a handful of vector instructions on that row.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.ranks import lru_ranks
from perc.shapes import bucket, pad
from perc.types import Trace

LANES = 256  # capacities a pass; a row of them is 1 KB
NEVER_INSERTED = -(2**30)


def fifo_curve(
    trace: Trace,
    capacities: Sequence[int],
    *,
    weights: np.ndarray | None = None,
    warmup_requests: int = 0,
) -> np.ndarray:
    """Hits of FIFO with bypass at K capacities: the request's own blocks may leave.

    Args:
        trace: N accesses of M distinct blocks.
        capacities: K sizes in blocks.
        weights: whole numbers [W, N], what a hit counts, less than 2**32 a request;
            None counts blocks, [1, N].
        warmup_requests: the first ones fill the cache and count nothing.

    Returns:
        i64[W, K], equal to `perc.replay` with `bypass=True, refresh=False`.
    """
    sizes = np.asarray(capacities, np.int64).clip(0, trace.n_accesses)
    weight = np.ones((1, trace.n_accesses)) if weights is None else np.asarray(weights)
    if not trace.n_accesses or not len(sizes):
        return np.zeros((len(weight), len(sizes)), np.int64)
    weight = np.where(trace.request >= warmup_requests, weight, 0).astype(np.uint32)
    order = lru_ranks(trace)  # inside a request the tail is inserted first
    row, n_rows = _rows(trace)
    begins = np.append(True, np.diff(trace.request) > 0)
    columns = _Columns(
        *(
            jnp.asarray(pad(column, 0))
            for column in (row[order], begins, trace.depth[order] == 0, weight.T[order])
        )
    )
    found = []
    for begin in range(0, len(sizes), LANES):
        lanes = sizes[begin : begin + LANES].astype(np.int32)
        width = min(bucket(len(lanes), 8), LANES)
        low, high = _count(
            columns,
            jnp.asarray(np.pad(lanes, (0, width - len(lanes)))),
            trace.n_accesses,
            bucket(n_rows),
        )
        total = np.asarray(high, np.int64) * 2**32 + np.asarray(low, np.int64)
        found.append(total[:, : len(lanes)])
    return np.concatenate(found, axis=1)


class _Columns(NamedTuple):
    row: jax.Array  # i32[N], row of the block, 0 = of none
    begins: jax.Array  # bool[N], tail of its request, which comes first here
    ends: jax.Array  # bool[N], root of its request
    weight: jax.Array  # u32[N, W]


def _rows(trace: Trace) -> tuple[np.ndarray, int]:
    """The row of each access i32[N], and how many there are.

    Blocks that are used once never hit: they share row 0, which stands for no block.
    """
    reused = np.zeros(trace.n_blocks, bool)
    reused[trace.block[trace.next >= 0]] = True
    row_of = np.where(reused, np.cumsum(reused), 0).astype(np.int32)
    return row_of[trace.block], int(reused.sum()) + 1


@functools.partial(jax.jit, static_argnames="n_rows")
def _count(c: _Columns, capacity, n, n_rows):
    """Sums the weights of leading runs, u32[W, K], and their carries i32[W, K]."""
    shape = (c.weight.shape[1], capacity.shape[0])

    def access(i, carry):
        rows, count, before, run, low, high = carry
        mine = c.row[i]
        row = peek(rows, mine)
        # All look-ups of a request see the cache as it was before the request.
        before = jnp.where(c.begins[i], count, before)
        resident = (before - row <= capacity) & (mine > 0)
        rows = rows.at[mine].set(jnp.where(resident, row, count))
        count = count + jnp.where(resident, 0, 1)
        # From the tail upwards: what is resident extends the run below it.
        run = jnp.where(c.begins[i], jnp.uint32(0), run)
        run = jnp.where(resident, run + c.weight[i][:, None], 0)
        total = low + jnp.where(c.ends[i], run, 0)
        return rows, count, before, run, total, high + (total < low)

    zero, none = jnp.zeros(shape[1], jnp.int32), jnp.zeros(shape, jnp.uint32)
    inserted = jnp.full((n_rows, shape[1]), NEVER_INSERTED, jnp.int32)
    carry = (inserted, zero, zero, none, none, none.astype(jnp.int32))
    return lax.fori_loop(0, n, access, carry)[4:]
