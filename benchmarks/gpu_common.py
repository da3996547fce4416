"""What the checks of a GPU share: perc's kernels without perc, sizes and times.

Import this before `perc.kernels`: a GPU image has JAX, but not what perc asks for.
"""

import importlib.metadata
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

ROOT = Path(__file__).resolve().parents[1]
if "perc" not in sys.modules:  # else a test has imported it
    for name, folder in (("perc", "perc"), ("perc.kernels", "kernels")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(ROOT / folder)]

Function = Callable[..., Any]
DTYPES = ("bfloat16", "float16", "float32")


class Size(NamedTuple):
    """How much is moved: of everything a power of two."""

    pool: int  # pages
    moved: int  # pages
    page: tuple[int, int, int]
    checked: tuple[tuple[str, tuple[int, int, int]], ...]  # dtype and page
    sequences: int  # whose scores are made, over all moved pages
    slots: int  # that victims are chosen from
    batches: int
    calls: int  # of a batch
    stream: int  # float32s of an array of the stream triad
    matrix: int  # rows and columns, of what is multiplied beside a copy


HOPPER = (16, 8, 128)  # 2 GiB of pages, 1 GiB moved, far beyond 60 MB of cache
CHECKED = (*((dtype, HOPPER) for dtype in DTYPES), ("bfloat16", (16, 2, 80)))
REAL = Size(65536, 32768, HOPPER, CHECKED, 32, 1 << 20, 5, 20, 1 << 28, 4096)
TINY = (8, 2, 64)
DRY = Size(8, 4, TINY, (("bfloat16", TINY),), 2, 1000, 1, 1, 1 << 10, 16)


def seconds(step: Function, state: Any, size: Size) -> tuple[float, Any]:
    """Median time of `state = step(state)`, and the last state."""
    state = jax.block_until_ready(step(state))
    taken = []
    for _ in range(size.batches):
        began = time.perf_counter()
        for _ in range(size.calls):
            state = step(state)
        jax.block_until_ready(state)
        taken.append((time.perf_counter() - began) / size.calls)
    return statistics.median(taken), state


def conditions(dry: bool) -> dict[str, Any]:
    """The device and the versions that the numbers belong to."""
    versions = {"python": sys.version.split()[0]}
    for name in ("jax", "jaxlib", "triton", "jax-triton", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    return {
        "device": jax.devices()[0].device_kind,
        "dry": dry,
        "versions": versions,
    }
