"""Runs launches in Triton's interpreter: the kernels' own source, on numpy, no GPU.

The interpreter stands in for jax-triton with its calling convention, so that argument
order, grid and aliases are under test too. Beside the results it checks memory: every
lane that is read or written must lie in a buffer that was passed, and no program may
touch a byte that another one writes.

`TRITON_INTERPRET=1` must be set before Triton is first imported: its decorators choose
then, and for the whole process.
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from perc.kernels.launch import Launch, kernel
from perc.kernels.memory import HostTensor, Memory

FLOATS = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
}


def run(launch: Launch) -> tuple[jax.Array, ...]:
    """Carries out a launch in the interpreter, under jit too.

    Returns:
        Updated buffers, then outputs; buffers that are passed stay as they are.

    Raises:
        ValueError: if Triton was imported without `TRITON_INTERPRET=1`.
        AssertionError: if a program leaves its buffers or races with another.
    """
    fresh = [jax.ShapeDtypeStruct(b.shape, b.dtype) for b in launch.updated]
    shapes = (*fresh, *launch.outputs)
    arrays = (*launch.inputs, *launch.updated)

    def on_host(*given: Any) -> tuple[np.ndarray, ...]:
        return execute(launch, [np.asarray(g) for g in given])[0]

    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        return tuple(jax.pure_callback(on_host, shapes, *arrays))
    return tuple(jnp.asarray(a) for a in on_host(*arrays))


def execute(
    launch: Launch, arrays: list[np.ndarray]
) -> tuple[tuple[np.ndarray, ...], Memory]:
    """Runs a launch on numpy arrays: updated buffers and outputs, and what it touched.

    Raises:
        ValueError, AssertionError: as `run`.
    """
    first = len(launch.inputs)
    updated = [a.copy() for a in arrays[first:]]
    outputs = [poisoned(o) for o in launch.outputs]
    tensors = [HostTensor(a) for a in (*arrays[:first], *updated, *outputs)]
    memory = Memory(tensors)
    function = kernel(launch)
    _check_interpreted(function)
    with patched(memory):
        function[launch.grid](*tensors, **launch.constants)
    return (*updated, *outputs), memory


def poisoned(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    """An array of bytes 0xA5, so that lanes nobody wrote are seen."""
    size = int(np.prod(shape.shape)) * np.dtype(shape.dtype).itemsize
    return np.full(size, 0xA5, np.uint8).view(shape.dtype).reshape(shape.shape)


@contextlib.contextmanager
def patched(memory: Memory) -> Iterator[None]:
    """Checks every access, and repairs what the interpreter converts or multiplies.

    Its own conversions truncate to bf16, and lose carries and round ties away in
    E4M3; GPUs round to nearest even. Its product of bf16 matrices multiplies bits.
    """
    from triton.runtime import interpreter  # pyright: ignore

    builder = interpreter.interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store
    convert = interpreter._convert_float
    handle = interpreter.TensorHandle

    def checked_load(ptrs: Any, mask: Any, *rest: Any) -> Any:
        size = interpreter._get_np_dtype(ptrs.get_element_ty()).itemsize
        memory.read(ptrs.data, mask.data, size, builder.grid_idx)
        return load(ptrs, mask, *rest)

    def checked_store(ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        size = interpreter._get_np_dtype(ptrs.get_element_ty()).itemsize
        memory.write(ptrs.data, mask.data, size, builder.grid_idx)
        return store(ptrs, value, mask, *rest)

    def exact_dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        left, right = (as_float32(x.data, str(x.dtype.scalar)) for x in (a, b))
        return handle(np.matmul(left, right) + d.data, d.dtype.scalar)

    builder.create_masked_load, builder.create_masked_store = (
        checked_load,
        checked_store,
    )
    builder.create_dot, interpreter._convert_float = exact_dot, convert_float
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)  # NaN is under test
            yield
    finally:
        del builder.create_masked_load, builder.create_masked_store
        del builder.create_dot
        interpreter._convert_float = convert


def convert_float(data: np.ndarray, source: Any, target: Any, _: Any) -> np.ndarray:
    """Converts between float types to nearest even, E4M3 saturating, as bits."""
    values = data.view(FLOATS[str(source)]).astype(np.float32)
    if str(target) == "fp8e4nv":
        values = np.clip(values, -448.0, 448.0)
    converted = values.astype(FLOATS[str(target)])
    return converted.view(getattr(np, f"uint{target.primitive_bitwidth}"))


def as_float32(data: np.ndarray, dtype: str) -> np.ndarray:
    """Interpreter data of a float type as float32."""
    return data.view(FLOATS[dtype]).astype(np.float32)


def _check_interpreted(function: Any) -> None:
    if type(function).__name__ != "InterpretedFunction":
        raise ValueError(
            "backend='interpret': Triton was imported to compile. Set "
            "TRITON_INTERPRET=1 before the process starts."
        )
