"""Formats of stored pages in plain Python, one group of elements at a time."""

import math

import ml_dtypes
import numpy as np

SCALES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def e4m3(code):
    """The value of one E4M3 code: sign, four bits of exponent, three of mantissa."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


FINITE = {code: e4m3(code) for code in range(256) if code & 0x7F != 0x7F}


def nearest_e4m3(value):
    """The code of the nearest finite value; ties go to the even code, -0 stays -0."""
    negative = math.copysign(1.0, value) < 0
    candidates = [code for code in FINITE if bool(code & 0x80) == negative]
    return min(candidates, key=lambda c: (abs(FINITE[c] - value), c & 1))


def quantise_group(values, form):
    """Codes 0 to 2^bits - 1, scale and zero point of values that share a scale."""
    values = [np.float32(v) for v in values]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        scale, low = _scale(values, form)
        if not math.isfinite(scale):
            zero = 0 if low is not None else form.offset
            return [-zero] * len(values), math.inf, zero
        inverse = np.float32(1) / np.float32(scale)
        if form.kind == "fp8":
            return [nearest_e4m3(float(v * inverse)) for v in values], float(scale), 0
        zero = form.offset if low is None else round(float(low * inverse))
        codes = [round(float(v * inverse)) - zero for v in values]
    top = 1 << form.bits
    if not form.signed:
        assert all(0 <= code < top for code in codes), (codes, scale)
    return [code % top for code in codes], float(scale), zero


def restore_group(codes, scale, zero, form):
    """What the codes stand for, as float32."""
    if not math.isfinite(scale):
        return [np.float32(math.nan)] * len(codes)
    if form.kind == "fp8":
        plain = [e4m3(code) for code in codes]
    elif form.signed:
        plain = [code - 256 if code > 127 else code for code in codes]
    else:
        plain = [code + zero for code in codes]
    return [np.float32(p) * np.float32(scale) for p in plain]


def groups_of(page, form):
    """Index lists into a flat page [B, H, D], one a group, in the order of scales."""
    tokens, heads, size = page
    at = np.arange(tokens * heads * size).reshape(page)
    if form.axis == "token":
        return at.reshape(-1, size // form.groups).tolist()
    lines = at.reshape(form.groups, tokens // form.groups, heads * size)
    return lines.transpose(0, 2, 1).reshape(-1, tokens // form.groups).tolist()


def _scale(values, form):
    most = np.float32(max((abs(v) for v in values), default=0))
    low = None
    if any(not np.isfinite(v) for v in values):
        return math.inf, None if form.symmetric else values[0]
    if form.symmetric:
        wanted = most * np.float32(form.step)
    else:
        low = min(values)
        wanted = (max(values) - low) * np.float32(form.step)
        wanted = max(wanted, most * np.float32(form.least))
    wanted = max(wanted, np.float32(form.floor))
    if wanted > 2.0**96:
        return math.inf, low
    return float(SCALES[form.scale_dtype](wanted)), low
