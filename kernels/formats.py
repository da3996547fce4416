"""How pages of a KV cache are stored in fewer bytes: the formats and their layout.

A pool is `[P, B, H, D]`: pages, tokens a page, KV heads, head size. A stored page is
one row of bytes, so that many of them are one contiguous buffer for one transfer:

    codes | scales | zero points (asymmetric formats) | 0 to 15 zero bytes

Every part begins on a multiple of 16 bytes. A page is seen as [outer, length, inner]:
scales are shared along `length`, which is the head size (`axis="token"`, one scale a
token and head) or the page's tokens (`axis="channel"`, one a head and channel).

    value = (code + zero) * scale

Codes of less than a byte are packed in planes: byte j of a line of `length` codes
holds elements j, j + width, j + 2 width ... from its low bits up, with width = length *
bits / 8. So both sides are contiguous vectors and nothing is shuffled.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["int8", "fp8", "int4", "int2"]
Axis = Literal["token", "channel"]
Page = tuple[int, ...]  # (B, H, D)
BITS = {"int8": 8, "fp8": 8, "int4": 4, "int2": 2}
SCALE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
ALIGN = 16  # bytes; Triton declares every pointer aligned to this many
FP8_MAX = 448.0  # largest finite E4M3
CEILING = 2.0**96  # largest scale; the inverse of larger ones may be subnormal


@dataclass(frozen=True)
class Format:
    """One way to store pages.

    Attributes:
        kind: what a code is; `fp8` is E4M3 (one sign, four exponent, three mantissa
            bits, no infinity).
        axis: along which elements share a scale: `token` = a head's channels at one
            token, `channel` = a channel's tokens in one page.
        symmetric: codes centred on 0; otherwise a zero point follows the lowest value.
        groups: scales along that axis: 1 = one for all of it.
        scale_dtype: how scales and zero points are stored.

    Raises:
        ValueError: if a choice is unknown, or fp8 is to have zero points.

    Example:
        >>> layout(Format("int8"), (16, 8, 128)).row_bytes  # 32,768 bytes in bf16
        16896
    """

    kind: Kind
    axis: Axis = "token"
    symmetric: bool = True
    groups: int = 1
    scale_dtype: str = "float32"

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, BITS)
        _one_of("axis", self.axis, ("token", "channel"))
        _one_of("scale_dtype", self.scale_dtype, SCALE_BYTES)
        if self.kind == "fp8" and not self.symmetric:
            raise ValueError("Format: fp8 has no zero points; take symmetric=True.")
        if self.groups < 1:
            raise ValueError(f"Format: groups is {self.groups}, must be 1 or more.")

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return BITS[self.kind]

    @property
    def planes(self) -> int:
        """Codes in a byte."""
        return 8 // self.bits

    @property
    def signed(self) -> bool:
        """Whether codes are bytes in two's complement (symmetric int8)."""
        return self.kind == "int8" and self.symmetric

    @property
    def offset(self) -> int:
        """The zero point of a symmetric format: int4 stores -7..7 as 1..15."""
        return 0 if self.bits == 8 else -(1 << (self.bits - 1))

    @property
    def blank(self) -> int:
        """The code of a group that cannot be stored: it means 0."""
        return -self.offset if self.symmetric else 0

    @property
    def step(self) -> float:
        """Scale of a group whose largest magnitude (symmetric) or range is 1.

        Asymmetric scales are wider by more than their own rounding, so that lowest and
        highest value round to codes that are at most 2^bits - 1 apart.
        """
        if self.kind == "fp8":
            return 1 / FP8_MAX
        if self.symmetric:
            return 1 / ((1 << (self.bits - 1)) - 1)
        margin = 2.0**-7 if self.scale_dtype == "bfloat16" else 2.0**-10
        return (1 + margin) / ((1 << self.bits) - 1)

    @property
    def least(self) -> float:
        """Least scale of an asymmetric group, as a share of its largest magnitude.

        Zero points are then at most 1 / least, which `scale_dtype` holds exactly.
        """
        return 2.0**-7 if self.scale_dtype == "bfloat16" else 2.0**-10

    @property
    def floor(self) -> float:
        """Least scale at all, that of a group of zeros: far above subnormal numbers."""
        return 2.0**-14 if self.scale_dtype == "float16" else 2.0**-96


class Layout(NamedTuple):
    """Where a page's codes and scales lie in its row; sizes in elements or bytes."""

    outer: int
    length: int
    inner: int
    group: int  # elements that share a scale
    width: int  # bytes of a line of `length` codes
    scale_at: int  # byte in the row
    zero_at: int  # byte in the row; where there are no zero points, the end of scales
    end: int  # bytes in use
    row_bytes: int


def layout(form: Format, page: Page) -> Layout:
    """The layout of a page of shape (B, H, D).

    Raises:
        ValueError: if codes do not fill bytes, or groups not the axis.
    """
    tokens, heads, size = page
    if form.axis == "token":
        outer, length, inner = tokens * heads, size, 1
    else:
        outer, length, inner = 1, tokens, heads * size
    _check_fit(form, page, length)
    width = length // form.planes
    scales = outer * form.groups * inner * SCALE_BYTES[form.scale_dtype]
    scale_at = _aligned(outer * width * inner)
    zero_at = scale_at + (scales if form.symmetric else _aligned(scales))
    end = zero_at + (0 if form.symmetric else scales)
    group = length // form.groups
    return Layout(
        outer, length, inner, group, width, scale_at, zero_at, end, _aligned(end)
    )


def bytes_saved(form: Format, page: Page, element_bytes: int) -> float:
    """How many times fewer bytes a stored page has than one of the pool.

    Example:
        >>> round(bytes_saved(FORMATS["int4_token"], (16, 8, 128), 2), 2)
        3.56
    """
    return math.prod(page) * element_bytes / layout(form, page).row_bytes


def _check_fit(form: Format, page: Page, length: int) -> None:
    what = "the head size" if form.axis == "token" else "tokens a page"
    if length % form.planes or length % form.groups:
        raise ValueError(
            f"{form.kind} with {form.groups} groups per {form.axis}: {what} is "
            f"{length} in a page {page}, must be a multiple of {form.planes} and of "
            "the groups."
        )
    if form.groups % form.planes and form.planes % form.groups:
        raise ValueError(
            f"{form.kind} packs {form.planes} codes a byte: groups is {form.groups}, "
            f"must divide {form.planes} or be a multiple of it."
        )


def _one_of(name: str, value: object, allowed: object) -> None:
    if value not in allowed:  # type: ignore[operator]
        words = ", ".join(map(str, allowed))  # type: ignore[call-overload]
        raise ValueError(f"Format: {name} is {value!r}, must be one of {words}.")


def _aligned(n: int) -> int:
    return -(-n // ALIGN) * ALIGN


FORMATS = {
    "int8_token": Format("int8"),
    "int8_channel": Format("int8", "channel", scale_dtype="float16"),
    "fp8_token": Format("fp8"),
    "fp8_channel": Format("fp8", "channel", scale_dtype="float16"),
    "int4_token": Format("int4", groups=4, scale_dtype="float16"),
    "int4_token_asymmetric": Format("int4", "token", False, 4, "float16"),
    "int4_channel": Format("int4", "channel", scale_dtype="float16"),
    # KIVI: keys of two bits a channel, values of two bits a token
    "int2_keys": Format("int2", "channel", False, scale_dtype="float16"),
    "int2_values": Format("int2", "token", False, 4, "float16"),
}
