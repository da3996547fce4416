"""Stored pages in host memory: evicted and restored in chunks, two of them in flight.

    device   evict 0 | evict 1 | evict 2 | ...
    link               copy 0  | copy 1  | ...        and the other way round

While one chunk is on the link, the next is quantised or the last one put back. JAX
starts work without waiting for it, so the loops below only bound how much is in flight:
`FLYING` chunks of device memory beside the pool, however many pages go.

Host memory is pinned where the device offers that, so that copies are direct.
"""

import functools
from collections import deque
from dataclasses import dataclass
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from perc.kernels import evict as quantised
from perc.kernels import pages as whole
from perc.kernels.formats import Format
from perc.kernels.launch import Backend
from perc.kernels.pages import check_table

CHUNK = 256  # pages; 4 MiB of int8 pages of 16 tokens, 8 heads of 128
FLYING = 2  # chunks on their way
HOST = ("pinned_host", "unpinned_host")  # memory kinds, best first


@dataclass(frozen=True)
class HostPages:
    """Pages that left a pool, in host memory; the copies may still be under way.

    Attributes:
        chunks: rows of bytes u8[chunk, row_bytes], or pages as they were where there
            is no format; the last chunk is filled up with zeros.
        count: pages held.
        form: how they are stored; None = as they were.
    """

    chunks: tuple[jax.Array, ...]
    count: int
    form: Format | None

    @property
    def nbytes(self) -> int:
        """Bytes held, what fills up the last chunk included."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def rows(self) -> np.ndarray:
        """All pages as one array, once their copies are done."""
        return np.concatenate([np.asarray(c) for c in self.chunks])[: self.count]


def evict(
    pool: jax.Array,
    table: jax.Array,
    form: Format | None = None,
    *,
    chunk: int = CHUNK,
    backend: Backend = "auto",
) -> HostPages:
    """Copies pages `pool[table]` to host memory. Not for use under jit.

    Args:
        pool: [P, B, H, D] on one device.
        table: i32[n], pages to read; -1 = none, which takes up a row of zeros.
        form: how to store them; None = as they are.
        chunk: pages of one copy.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Returns:
        The pages; they stay what they were when the pool changes.

    Raises:
        ValueError: if the pool, the table or the format does not fit.

    Example:
        >>> pool = jnp.arange(6.0).reshape(3, 1, 1, 2)
        >>> evict(pool, jnp.array([2, 0])).rows().ravel().tolist()
        [4.0, 5.0, 0.0, 1.0]
    """
    numbers = _checked("evict", pool, table, chunk)
    host = _memory(pool, HOST)
    flying: deque[jax.Array] = deque()
    chunks = []
    for part in _parts(numbers, chunk):
        if len(flying) == FLYING:  # then the device memory of that chunk is free
            _wait(flying.popleft())
        stored = _taken(pool, part, form=form, backend=backend)
        chunks.append(jax.device_put(stored, host))
        flying.append(chunks[-1])
    return HostPages(tuple(chunks), len(numbers), form)


def restore(
    pool: jax.Array,
    table: jax.Array,
    held: HostPages,
    *,
    backend: Backend = "auto",
) -> jax.Array:
    """Writes held pages back to pages `table[i]` of a pool; -1 is skipped.

    The pool that is given is used up (donated): go on with the one that is returned. A
    page must not be named twice. Chunks that nobody wants are not copied.

    Args:
        pool: [P, B, H, D] on one device.
        table: i32[n], where each held page goes.
        held: from `evict`, of a pool with the same page shape and dtype.
        backend: `auto`, `jnp`, `triton` or `interpret`.

    Raises:
        ValueError: if the table has not one number a held page, or formats do not fit.

    Example:
        >>> pool = jnp.arange(6.0).reshape(3, 1, 1, 2)
        >>> held = evict(pool, jnp.array([2, 0]))
        >>> restore(jnp.zeros((3, 1, 1, 2)), jnp.array([-1, 1]), held).ravel().tolist()
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """
    chunk = len(held.chunks[0]) if held.chunks else CHUNK
    numbers = _checked("restore", pool, table, chunk)
    if len(numbers) != held.count:
        raise ValueError(
            f"restore: the table has {len(numbers)} numbers, must have one for each of "
            f"the {held.count} held pages (-1 = leave it)."
        )
    device = _memory(pool, (None,))
    parts = zip(_parts(numbers, chunk), held.chunks, strict=True)
    flying: deque[jax.Array] = deque()
    for part, stored in parts:
        if (part < 0).all():
            continue
        if len(flying) == FLYING:
            _wait(flying.popleft())
        stored = jax.device_put(stored, device)
        pool, done = _put(pool, part, stored, form=held.form, backend=backend)
        flying.append(done)
    return pool


@functools.partial(jax.jit, static_argnames=("form", "backend"))
def _taken(
    pool: jax.Array, table: Any, *, form: Format | None, backend: Backend
) -> jax.Array:
    if form is None:
        return whole.gather(pool, table, backend=backend)
    return quantised.evict(pool, table, form, backend=backend)


@functools.partial(jax.jit, static_argnames=("form", "backend"), donate_argnums=0)
def _put(
    pool: jax.Array,
    table: Any,
    stored: jax.Array,
    *,
    form: Format | None,
    backend: Backend,
) -> tuple[jax.Array, jax.Array]:
    """The new pool, and something small that is ready when the pool is."""
    if form is None:
        pool = whole.scatter(pool, table, stored, backend=backend)
    else:
        pool = quantised.restore(pool, table, stored, form, backend=backend)
    return pool, jnp.zeros((), jnp.int32)


def _wait(flying: jax.Array) -> None:
    """Waits until a chunk has arrived."""
    flying.block_until_ready()


def _parts(numbers: np.ndarray, chunk: int) -> list[np.ndarray]:
    """A table in tables of one length, the last filled up with -1."""
    count = -(-len(numbers) // chunk)
    filled = np.full(count * chunk, -1, np.int32)
    filled[: len(numbers)] = numbers
    return list(filled.reshape(count, chunk))


def _memory(pool: jax.Array, kinds: tuple[str | None, ...]) -> SingleDeviceSharding:
    """The first of these kinds of memory that the pool's device has; None = its own."""
    (device,) = pool.devices()
    there = {memory.kind for memory in device.addressable_memories()}
    found = [kind for kind in kinds if kind is None or kind in there]
    return SingleDeviceSharding(device, memory_kind=found[0] if found else None)


def _checked(op: str, pool: jax.Array, table: jax.Array, chunk: int) -> np.ndarray:
    """A table on the host, i32[n]."""
    if isinstance(pool, jax.core.Tracer):
        raise ValueError(f"{op}: copies to the host are not for use under jit.")
    if len(pool.devices()) != 1:
        raise ValueError(
            f"{op}: the pool lies on {len(pool.devices())} devices; pass each one's "
            "part on its own."
        )
    if chunk < 1:
        raise ValueError(f"{op}: chunk is {chunk}, must be 1 or more pages.")
    return np.asarray(check_table(op, table))
