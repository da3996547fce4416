"""Tiers below the GPU's cache: what they hold, how fast they are, what goes there.

A block that leaves the GPU can be kept in host memory, on a disk or on another machine.
Below the GPU it is in one tier at most; what a tier has no room for moves to the next.

    placement  inclusive: a copy stays below when a block is loaded, and what has one is
               not written again; exclusive: it leaves for the GPU
    write      back: when the GPU drops a block; through: as soon as it is computed
    store      all; likely: only if p * (recompute_s - reload_s) > write_s, where p is
               how often blocks of as many uses were used again (`perc.plan_break_even`)
    load       reload; recompute: never; cheapest: what is quicker now, with the wait
               for the link
    prefetch   what arrives moves its blocks from the slower tiers to the first one

A link carries one block after another: `block_s` each, which is bytes / (bandwidth *
efficiency) and the conversion to the tier's format, and a block is there `latency_s`
later. Writes share the link with reads unless it is duplex.

References:
    Qin et al. 2025, "Mooncake" (FAST '25), for pools of host memory and remote ones.
    Liu et al. 2025, "LMCache", for tiers and prefetch from the slower ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from perc.errors import InputError, check_number, check_whole
from perc.floats import Array
from perc.hardware import Link
from perc.kv_memory import block_bytes
from perc.models import ModelShape

Placement = Literal["inclusive", "exclusive"]
Write = Literal["back", "through"]
Store = Literal["all", "likely"]
Load = Literal["reload", "recompute", "cheapest"]
RELOAD, RECOMPUTE, CHEAPEST = range(3)
MOST_TIERS = 4


@dataclass(frozen=True)
class LowerTier:
    """A memory below the GPU's. Seconds are of a block on one accelerator's link.

    Raises:
        InputError: for a number out of range.
    """

    name: str
    capacity_blocks: int  # 0 = as if it were not there
    block_s: float  # on the link, conversion included
    latency_s: float = 0.0
    duplex: bool = True  # reads do not wait for writes
    block_bytes: float = 1.0  # in the tier's format, on all accelerators together

    def __post_init__(self) -> None:
        owner = f"tier {self.name!r}"
        check_whole(owner, "capacity_blocks", self.capacity_blocks, 0, 2**30)
        check_number(owner, "block_s", self.block_s)
        check_number(owner, "latency_s", self.latency_s)
        check_number(owner, "block_bytes", self.block_bytes, above=True)


@dataclass(frozen=True)
class Offload:
    """Tiers, the fastest first, and what moves between them.

    Raises:
        InputError: for options that exclude each other, or too many tiers.
    """

    tiers: tuple[LowerTier, ...]
    placement: Placement = "inclusive"
    write: Write = "back"
    store: Store = "all"
    load: Load = "reload"
    prefetch: bool = False

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if value not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise InputError(f"offload: no {name} {value!r}; there are {known}.")
        if len(self.tiers) > MOST_TIERS:
            raise InputError(f"offload: {len(self.tiers)} tiers; give {MOST_TIERS}.")
        if self.placement == "exclusive" and self.write == "through":
            raise InputError(
                "offload: an exclusive tier holds what the GPU dropped, so nothing is "
                "written through; give write back, or an inclusive tier."
            )
        if self.prefetch and len(self.used) < 2:
            raise InputError(
                "offload: prefetch moves blocks from slower tiers to the first; give "
                "two tiers or more."
            )

    @property
    def used(self) -> tuple[LowerTier, ...]:
        """Tiers that hold anything."""
        return tuple(tier for tier in self.tiers if tier.capacity_blocks)


KINDS = {"placement": Placement, "write": Write, "store": Store, "load": Load}


class TierRules(NamedTuple):
    """`Offload` as the compiled loop reads it; T tiers."""

    capacity: Array  # i32[T]
    block_s: Array  # f64[T]
    latency_s: Array  # f64[T]
    duplex: Array  # bool[T]
    exclusive: Array  # bool[]
    through: Array  # bool[]
    likely: Array  # bool[]
    load: Array  # i32[], one of the three above
    prefetch: Array  # bool[]


def tier_rules(offload: Offload | None) -> TierRules | None:
    """Lays tiers out for the loop; None if there are none that hold anything."""
    if offload is None or not offload.used:
        return None
    tiers = offload.used
    return TierRules(
        capacity=np.array([tier.capacity_blocks for tier in tiers], np.int32),
        block_s=np.array([tier.block_s for tier in tiers], np.float64),
        latency_s=np.array([tier.latency_s for tier in tiers], np.float64),
        duplex=np.array([tier.duplex for tier in tiers], np.bool_),
        exclusive=np.bool_(offload.placement == "exclusive"),
        through=np.bool_(offload.write == "through"),
        likely=np.bool_(offload.store == "likely"),
        load=np.int32(get_args(Load).index(offload.load)),
        prefetch=np.bool_(offload.prefetch),
    )


def n_tiers(offload: Offload | None) -> int:
    """Tiers that hold anything."""
    return 0 if offload is None else len(offload.used)


def lower_tier(
    name: str,
    capacity_bytes: float,
    way: Link,
    model: ModelShape,
    block_tokens: int,
    *,
    gpu_kv: str = "fp16",
    kv: str | None = None,
    tp: int = 1,
    memory_bytes_per_s: float = np.inf,
) -> LowerTier:
    """A tier of a model's blocks behind a link of the catalogue.

    Each of `tp` accelerators moves its share of a block over a link of its own; the
    capacity is that of all. In another format than the GPU's, a block is converted
    there: read in one and written in the other, at the speed of the GPU's memory.

    Raises:
        InputError: for an unknown format, or a tier that cannot hold one block but is
            not empty.

    Example:
        >>> from perc.hardware import link
        >>> from perc.model_shapes import model
        >>> llama = model("llama-3.1-8b")
        >>> host = lower_tier("cpu", 64 * 2**30, link("pcie5"), llama, 16)
        >>> host.capacity_blocks, f"{1e6 * host.block_s:.1f} us"
        (32768, '37.7 us')
    """
    check_number(f"tier {name!r}", "bytes", capacity_bytes)
    mine = block_bytes(model, block_tokens, kv or gpu_kv, tp)
    wide = block_bytes(model, block_tokens, gpu_kv, tp)
    blocks = int(capacity_bytes // (mine * tp))
    if capacity_bytes and not blocks:
        raise InputError(
            f"tier {name!r}: {capacity_bytes:,.0f} bytes cannot hold one block of "
            f"{mine * tp:,.0f} bytes. Give it room for a block or more, or 0 bytes to "
            "go without it."
        )
    converts = (kv or gpu_kv) != gpu_kv
    convert_s = (wide + mine) / memory_bytes_per_s if converts else 0.0
    wire_s = mine / (way.bytes_per_s * way.efficiency)
    return LowerTier(
        name, blocks, wire_s + convert_s, way.latency_s, way.duplex, mine * tp
    )


class NamedTier(NamedTuple):
    """A tier as it is written on the command line."""

    name: str
    size_bytes: float
    way: str  # a name of `perc.hardware`
    kv: str | None  # None: the GPU's


UNITS = {f"{k}iB": 2.0 ** (10 * n) for n, k in enumerate("KMGT", 1)}
UNITS |= {f"{k}B": 10.0 ** (3 * n) for n, k in enumerate("KMGT", 1)}


def parse_tier(text: str) -> NamedTier:
    """Reads name:size:link or name:size:link:format.

    Raises:
        InputError: for anything else.

    Example:
        >>> parse_tier("cpu:64GiB:pcie5:fp8")
        NamedTier(name='cpu', size_bytes=68719476736.0, way='pcie5', kv='fp8')
    """
    words = text.split(":")
    if len(words) not in (3, 4) or not all(words):
        raise InputError(
            f"tier {text!r}: give name:size:link, such as cpu:64GiB:pcie5, and after "
            "that a format if not the GPU's."
        )
    name, size, way, *kv = words
    digits = size.rstrip("BiKMGT")
    unit = size[len(digits) :]
    try:
        number = float(digits) * UNITS[unit]
    except (ValueError, KeyError):
        raise InputError(
            f"tier {text!r}: a size of {size!r}; give such as 64GiB, 2TiB or 500GB."
        ) from None
    return NamedTier(name, number, way, kv[0] if kv else None)


def total_bytes(tiers: Sequence[LowerTier], blocks: np.ndarray) -> np.ndarray:
    """Bytes f64[T] of so many blocks [T]."""
    return blocks * np.array([tier.block_bytes for tier in tiers])
