"""One kernel launch as data, and the three ways to carry it out.

Each wrapper describes its call as a `Launch`. The same description is launched on a
GPU (`triton`), run in Triton's interpreter (`interpret`) and compiled without a GPU by
the tests, so argument order, grid and aliases are written once.

Triton is imported only here and only when a launch is carried out.
"""

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

Backend = Literal["auto", "jnp", "triton", "interpret"]
Buffer = jax.Array | jax.ShapeDtypeStruct  # launches are described by shapes alone
# fp32 products and sums stay apart in PTX, as the references round them; the newest
# PTX that Triton writes is ahead of the ptxas that XLA runs; without a stated limit
# ptxas spills at 64 registers to fit more programs on a core.
OPTIONS = {"enable_fp_fusion": False, "ptx_version": 87, "maxnreg": 168}


@dataclass(frozen=True)
class Launch:
    """One call of one kernel, which takes inputs, updated and outputs in this order."""

    source: str  # module under perc.kernels that holds the kernel
    kernel: str
    inputs: tuple[Buffer, ...]
    updated: tuple[Buffer, ...]  # buffers changed in place: their new values come first
    outputs: tuple[jax.ShapeDtypeStruct, ...]
    grid: tuple[int, ...]
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 1


def chosen(backend: Backend) -> str:
    """The backend that `auto` means here: Triton on CUDA, jnp elsewhere.

    Raises:
        ValueError: if there is no such backend.
    """
    if backend not in get_args(Backend):
        allowed = ", ".join(get_args(Backend))
        raise ValueError(f"backend is {backend!r}, must be one of {allowed}.")
    if backend != "auto":
        return backend
    on_cuda = jax.default_backend() == "gpu" and "rocm" not in _platform_version()
    return "triton" if on_cuda and _has_triton() else "jnp"


def run(launch: Launch, backend: str) -> tuple[jax.Array, ...]:
    """Carries out a launch; gives updated buffers, then outputs."""
    if not all(launch.grid):  # nothing to do, and CUDA has no empty grid
        given = tuple(jnp.asarray(b) for b in launch.updated)
        return (*given, *(jnp.zeros(o.shape, o.dtype) for o in launch.outputs))
    if backend == "interpret":
        interpreter = importlib.import_module("perc.kernels.interpreter")
        return interpreter.run(launch)
    return run_triton(launch)


def kernel(launch: Launch) -> Any:
    """The `@triton.jit` function of a launch."""
    module = importlib.import_module(f"perc.kernels.{launch.source}")
    return getattr(module, launch.kernel)


def run_triton(
    launch: Launch, compute_capability: int | None = None
) -> tuple[jax.Array, ...]:
    """Launches through jax-triton, under jit or not.

    Args:
        launch: what to run.
        compute_capability: of the GPU to lower for, 90 = Hopper; None = the one here.
    """
    compat = importlib.import_module("perc.kernels.compat")
    jax_triton = compat.jax_triton()
    if compute_capability is None:
        compute_capability = _compute_capability()
    buffers = (*launch.inputs, *launch.updated)
    first = len(launch.inputs)
    shapes = [jax.ShapeDtypeStruct(b.shape, b.dtype) for b in launch.updated]
    with compat.quiet():
        return tuple(
            jax_triton.triton_call(
                *buffers,
                kernel=kernel(launch),
                out_type=(*shapes, *launch.outputs),
                grid=launch.grid,
                num_warps=launch.warps,
                num_stages=launch.stages,
                compute_capability=compute_capability,
                backend_options=OPTIONS,
                input_output_aliases={first + i: i for i in range(len(shapes))},
                **launch.constants,
            )
        )


def has_fp8(compute_capability: int | None) -> bool:
    """Whether a GPU converts E4M3 itself; others get the same in integer arithmetic."""
    return compute_capability is not None and compute_capability >= 89


def here() -> int | None:
    """Compute capability of the GPU in use, None without a CUDA one."""
    if jax.default_backend() != "gpu" or "rocm" in _platform_version():
        return None
    return _compute_capability()


def _compute_capability() -> int | None:
    if jax.default_backend() != "gpu":
        return None
    text = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    return int(text.replace(".", "")) if text.replace(".", "").isdigit() else None


def _platform_version() -> str:
    return getattr(jax.local_devices()[0].client, "platform_version", "").lower()


def _has_triton() -> bool:
    return all(importlib.util.find_spec(name) for name in ("triton", "jax_triton"))
