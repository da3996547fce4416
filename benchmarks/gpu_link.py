"""How fast is the link to host memory, and does it work while the GPU computes?"""

import statistics
import time
from typing import Any, NamedTuple

import gpu_common
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from perc.kernels import staging
from perc.kernels.formats import FORMATS

MOST_PRODUCTS = 100_000


def time_staging(backend: Any, size: gpu_common.Size) -> list[dict[str, Any]]:
    """Speed of the link to host memory: bytes that cross it, and bytes of pages."""
    pool = jnp.ones((size.pool, *size.page), jnp.bfloat16)
    order = np.random.default_rng(3).permutation(size.pool)[: size.moved]
    table = jnp.asarray(order.astype(np.int32))
    payload = size.moved * pool[0].nbytes
    found = []
    print("| staged as | out, GB/s on the link | of pages | back, GB/s on the link | "
          "of pages |\n|---|---|---|---|---|")  # fmt: skip
    for name in (None, "int8_token", "int4_token"):
        form = FORMATS[name] if name else None
        held = staging.evict(pool, table, form, backend=backend)  # compiles
        pool = staging.restore(pool, table, held, backend=backend)
        jax.block_until_ready(pool)
        wire, memory = held.nbytes, held.chunks[0].sharding.memory_kind
        out, back = [], []
        for _ in range(size.batches):
            began = time.perf_counter()
            held = staging.evict(pool, table, form, backend=backend)
            jax.block_until_ready(held.chunks)
            out.append(time.perf_counter() - began)
            began = time.perf_counter()
            pool = staging.restore(pool, table, held, backend=backend)
            jax.block_until_ready(pool)
            back.append(time.perf_counter() - began)
        took = statistics.median(out), statistics.median(back)
        row = {"name": name, "memory": memory, "out_s": took[0], "back_s": took[1]}
        found.append(row | {"wire_bytes": wire, "payload_bytes": payload})
        cells = [f"{n / t / 1e9:.1f}" for t in took for n in (wire, payload)]
        print(f"| {name or 'bfloat16'} | {' | '.join(cells)} |", flush=True)
    return found


class Overlap(NamedTuple):
    """Seconds of a copy over the link and of work on the device, and of both."""

    copy_s: float
    compute_s: float
    both_s: float

    @property
    def share(self) -> float:
        """Of the shorter one, what the longer one hid: 1 = all, 0 = none.

        >>> Overlap(4.0, 10.0, 11.0).share
        0.75
        """
        hidden = self.copy_s + self.compute_s - self.both_s
        return hidden / min(self.copy_s, self.compute_s)


def work(matrix: jax.Array, products: jax.Array) -> jax.Array:
    """So many products of a matrix with itself, one after the other."""

    def multiply(_, held):
        return (held @ matrix) / matrix.shape[0]

    return jax.lax.fori_loop(0, products, multiply, matrix)


def time_overlap(size: gpu_common.Size) -> list[dict[str, Any]]:
    """Copies each way alone, products alone for as long, and both at once."""
    device = jax.devices()[0]
    host = SingleDeviceSharding(device, memory_kind="pinned_host")
    here = SingleDeviceSharding(device, memory_kind=device.default_memory().kind)
    pages = jax.random.normal(jax.random.key(5), (size.moved, *size.page), jnp.bfloat16)
    matrix = jnp.ones((size.matrix, size.matrix), jnp.bfloat16)
    compute = jax.jit(work)
    found = []
    print("\n| direction | copy ms | compute ms | both ms | of the shorter hidden |")
    print("|---|---|---|---|---|")
    for name, start, to in (
        ("out", jax.block_until_ready(pages), host),
        ("back", jax.block_until_ready(jax.device_put(pages, host)), here),
    ):
        taken, moved = _overlap(size, start, to, compute, matrix)
        equal = np.array_equal(np.asarray(moved), np.asarray(pages))
        row = taken._asdict() | {"direction": name, "share": taken.share}
        found.append(row | {"equal": equal, "bytes": pages.nbytes})
        times = " | ".join(f"{1e3 * value:.2f}" for value in taken)
        print(f"| {name} | {times} | {100 * taken.share:.0f} % |", flush=True)
    print()
    return found


def _overlap(size: gpu_common.Size, start, to, compute, matrix):
    """Medians, and what arrived."""

    def copy():
        return jax.device_put(start, to)

    def timed(*calls) -> float:
        jax.block_until_ready([call() for call in calls])  # compiled, and warm
        taken = []
        for _ in range(size.batches):
            began = time.perf_counter()
            jax.block_until_ready([call() for call in calls])
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    copy_s = timed(copy)
    ten_s = timed(lambda: compute(matrix, 10))
    products = min(max(round(10 * copy_s / ten_s), 1), MOST_PRODUCTS)

    def busy():
        return compute(matrix, products)

    return Overlap(copy_s, timed(busy), timed(copy, busy)), copy()
