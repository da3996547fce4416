"""The conversions that stand in for the interpreter's own: to nearest even."""

import ml_dtypes
import numpy as np
import pytest
import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

from perc.kernels import interpreter
from perc.kernels.memory import HostTensor, Memory

TARGETS = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@triton.jit
def convert(source, target, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(target + at, tl.load(source + at).to(target.dtype.element_ty))


def converted(source, dtype):
    target = np.zeros(len(source), dtype)
    tensors = [HostTensor(source), HostTensor(target)]
    with interpreter.patched(Memory(tensors)):
        convert[(1,)](*tensors, N=len(source))  # pyright: ignore
    return target


@pytest.mark.parametrize("dtype", TARGETS.values(), ids=TARGETS)
def test_float32_rounds_to_nearest_even(dtype):
    rng = np.random.default_rng(0)
    source = np.concatenate(
        [rng.normal(size=2048), rng.normal(size=2044) * 1e-6, [0, 1e38, np.inf, np.nan]]
    ).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = source.astype(dtype)
    assert np.array_equal(converted(source, dtype), expected, equal_nan=True)


def test_fp8_rounds_to_nearest_even_and_saturates():
    rng = np.random.default_rng(1)
    source = (rng.normal(size=4096) * 100).astype(np.float32)
    source[:4] = 449.75, -1e6, 1e-9, -0.0
    expected = np.clip(source, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    got = converted(source, ml_dtypes.float8_e4m3fn)
    assert np.array_equal(got.view(np.uint8), expected.view(np.uint8))
    back = converted(got, np.float32)
    assert np.array_equal(back, expected.astype(np.float32))
