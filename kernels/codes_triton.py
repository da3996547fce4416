"""Rounding, E4M3 and typed views of byte rows inside Triton kernels."""

import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

SHIFT = tl.constexpr(0x4B400000)  # the bits of 1.5 * 2^23


@triton.jit
def as_float(bits):
    """The float32 with these bits."""
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def ordered(x):
    """Integers in the order of these floats, NaN beyond the infinities."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def unordered(key):
    """The bits that `ordered` made a key of."""
    return key ^ ((key >> 31) & 0x7FFFFFFF)


@triton.jit
def shifted(x):
    """SHIFT + the nearest whole number, ties to even, of |x| < 2^22: one addition.

    1.5 * 2^23 + x has the whole number in its low bits. For compilers that keep IEEE
    additions only: XLA cancels the constant, so the reference uses `jnp.round`.
    """
    return (x + 12582912.0).to(tl.int32, bitcast=True)


@triton.jit
def nearest(x):
    """The nearest whole number, ties to even, of |x| < 2^22."""
    return shifted(x) - SHIFT


@triton.jit
def quotient(x):
    """1 / x, rounded as IEEE has it."""
    return tl.math.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def floats(row, AT: tl.constexpr, SCALE: tl.constexpr):
    """Byte AT of a row as a pointer to fp32 (SCALE 0), fp16 (1) or bf16 (2)."""
    if SCALE == 0:
        typed = (row + AT).to(tl.pointer_type(tl.float32), bitcast=True)
    elif SCALE == 1:
        typed = (row + AT).to(tl.pointer_type(tl.float16), bitcast=True)
    else:
        typed = (row + AT).to(tl.pointer_type(tl.bfloat16), bitcast=True)
    return typed


@triton.jit
def encode_fp8(y, FP8: tl.constexpr):
    """E4M3 codes of |y| below 464: by the GPU (FP8 1) or in integers (FP8 2)."""
    if FP8 == 1:
        code = y.to(tl.float8e4nv).to(tl.uint8, bitcast=True).to(tl.int32)
    else:
        bits = y.to(tl.int32, bitcast=True)
        a = bits & 0x7FFFFFFF
        # The exponent's bias falls from 127 to 7; 20 of 23 mantissa bits are rounded.
        normal = ((a + 0x7FFFF + ((a >> 20) & 1)) >> 20) - (120 << 3)
        subnormal = nearest(as_float(a) * 512.0)
        code = tl.where(a >= 0x3C800000, normal, subnormal) | ((bits >> 24) & 0x80)
    return code


@triton.jit
def decode_fp8(code, FP8: tl.constexpr):
    """The float32 of E4M3 codes, NaN included."""
    if FP8 == 1:
        value = code.to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        a = code & 0x7F
        bits = ((code & 0x80) << 24) | (a << 20)
        value = as_float(bits) * 1.329227995784916e36  # 2^120: the bias again
        value = tl.where(a == 0x7F, float("nan"), value)
    return value
