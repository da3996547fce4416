"""Accelerators and links: what their data sheets state, and what is usually reached.

FLOPs are DENSE. Data sheets of NVIDIA print the figure with 2:4 sparsity, twice as
much; it is of no use to a dense model. Bandwidths are decimal bytes a second in ONE
direction; "900 GB/s NVLink" is the sum of both. Memory is in bytes of the GiB that the
data sheet calls GB: dies of HBM hold powers of two.
"""

from dataclasses import dataclass

import numpy as np

from perc.catalogue import index, look_up
from perc.errors import InputError, check_number
from perc.floats import Array, floats

GIB = 2**30


@dataclass(frozen=True)
class Link:
    """A way for bytes between two memories.

    Raises:
        InputError: for a bandwidth of 0, or an efficiency outside of 0..1.
    """

    name: str
    bytes_per_s: float  # nominal, one way
    latency_s: float
    efficiency: float  # share of the nominal bandwidth that large copies reach
    duplex: bool = True  # both directions at once, each at full bandwidth
    aliases: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        check_number(self.name, "bytes_per_s", self.bytes_per_s, above=True)
        check_number(self.name, "latency_s", self.latency_s)
        check_number(self.name, "efficiency", self.efficiency, above=True, high=1.0)

    def time_s(self, size_bytes: Array, *, efficiency: float | None = None) -> Array:
        """Seconds [...] for one copy: latency + bytes / (bandwidth * efficiency).

        Args:
            size_bytes: [...] of the copy; 0 bytes are not sent and take no time.
            efficiency: share of the nominal bandwidth, 1 for the nominal time.

        Raises:
            InputError: for an efficiency outside of 0..1, or a size that is NumPy's
                and below 0 or NaN; JAX's gives NaN.

        Example:
            >>> float(link("pcie5").time_s(2 * 2**30, efficiency=1.0).round(6))
            0.033559
        """
        share = self.efficiency if efficiency is None else efficiency
        check_number(self.name, "efficiency", share, above=True, high=1.0)
        xp, size = floats(size_bytes)
        if xp is np and not (size >= 0).all():
            raise InputError(f"{self.name}: a copy of {size} bytes, must be 0 or more.")
        seconds = self.latency_s + size / (self.bytes_per_s * share)
        return xp.where(size > 0, seconds, xp.where(size == 0, 0.0, xp.nan))

    def exchange_s(self, out_bytes: Array, in_bytes: Array) -> Array:
        """Seconds [...] for a copy each way: at once where the link is duplex.

        >>> way, size = link("nvme4"), 2**30
        >>> float(way.exchange_s(size, size) / way.time_s(size))
        2.0
        """
        xp, out, back = floats(self.time_s(out_bytes), self.time_s(in_bytes))
        return xp.maximum(out, back) if self.duplex else out + back


@dataclass(frozen=True)
class Accelerator:
    """A card or module that holds weights and cache.

    Raises:
        InputError: for a size of 0 or below.
    """

    name: str
    memory_gib: float
    bytes_per_s: float  # of its memory
    bf16_flops: float  # dense, float32 accumulation
    fp8_flops: float | None  # None: it has no such units
    int8_ops: float | None
    scale_up: str  # link to its peers, a name in LINKS
    host: str  # link to the host's memory
    usd_per_hour: float | None = None  # None: no price with a source
    aliases: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("memory_gib", "bytes_per_s", "bf16_flops"):
            check_number(self.name, name, getattr(self, name), above=True)
        for name in ("fp8_flops", "int8_ops", "usd_per_hour"):
            if getattr(self, name) is not None:
                check_number(self.name, name, getattr(self, name), above=True)

    @property
    def memory_bytes(self) -> float:
        """The memory in bytes."""
        return self.memory_gib * GIB

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on BF16 work is bound by compute.

        >>> round(accelerator("h100").ridge, 1)
        295.3
        """
        return self.bf16_flops / self.bytes_per_s


def accelerator(name: str) -> Accelerator:
    """An accelerator by its name.

    Raises:
        InputError: for an unknown one; it lists near names.
    """
    names = [card.name for card in ACCELERATORS]
    return look_up(name, _CARDS, names, what="accelerator")


def link(name: str) -> Link:
    """A link by its name.

    Raises:
        InputError: for an unknown one; it lists near names.
    """
    return look_up(name, _WAYS, [way.name for way in LINKS], what="link")


# Latencies of PCIe 5, NVLink 4, InfiniBand and Ethernet are those of perc's reference
# cases; other generations take them over. Efficiencies: PCIe 4 measured at 24.8 of
# 32 GB/s on A100 (NVIDIA developer forum, thread 352186, nvbandwidth 0.8), PCIe 5 at
# 55.6 of 64 (NVIDIA's blog on nvbandwidth), EDR at 96.6 of 100 Gbit/s (NVIDIA forum,
# thread 273376, ib_write_bw), A100's NVLink at 0.65 in calculon's a100_80g.json. Where
# none was found, "assumed" is said; replace it by what you measure.
ASSUMED = 0.8

LINKS = [
    Link("pcie3", 16e9, 5e-6, ASSUMED, source="PCI-SIG 3.0, x16; assumed"),
    Link("pcie4", 32e9, 5e-6, 24.8 / 32, source="PCI-SIG 4.0, x16; measured"),
    Link("pcie5", 64e9, 5e-6, 55.6 / 64, source="PCI-SIG 5.0, x16; measured"),
    Link("pcie6", 128e9, 5e-6, ASSUMED, source="PCI-SIG 6.0, x16; assumed"),
    Link("nvlink3", 300e9, 2e-6, 0.65, source="NVIDIA A100 data sheet, 600 both ways"),
    Link(
        "nvlink4", 450e9, 2e-6, ASSUMED, source="NVIDIA H100 data sheet, 900; assumed"
    ),
    Link("nvlink5", 900e9, 2e-6, ASSUMED, source="NVIDIA Blackwell, 1,800; assumed"),
    Link(
        "nvlink-c2c",
        450e9,
        2e-6,
        ASSUMED,
        source="NVIDIA Grace Hopper, 900 both ways; assumed",
    ),
    Link(
        "infinity-fabric",
        448e9,
        2e-6,
        ASSUMED,
        aliases=("xgmi",),
        source="AMD MI300X data sheet, 7 links of 128 both ways; assumed",
    ),
    Link(
        "infinity-fabric4",
        537.6e9,
        2e-6,
        ASSUMED,
        source="AMD MI355X data sheet, 7 links of 153.6 both ways; assumed",
    ),
    Link(
        "gaudi-roce",
        525e9,
        3e-6,
        ASSUMED,
        source="Intel Gaudi 3 white paper, 21 of 24 ports of 200 Gbit/s; assumed",
    ),
    Link("rdma-100g", 12.5e9, 3e-6, 0.966, aliases=("edr",), source="IB EDR; measured"),
    Link("rdma-200g", 25e9, 3e-6, 0.966, aliases=("hdr",), source="IB HDR; as EDR"),
    Link("rdma-400g", 50e9, 3e-6, 0.966, aliases=("ndr",), source="IB NDR; as EDR"),
    Link("rdma-800g", 100e9, 3e-6, 0.966, aliases=("xdr",), source="IB XDR; as EDR"),
    Link("ethernet-25g", 3.125e9, 10e-6, ASSUMED, source="IEEE 802.3by; assumed"),
    Link("ethernet-100g", 12.5e9, 10e-6, ASSUMED, source="IEEE 802.3bm; assumed"),
    Link("ethernet-400g", 50e9, 10e-6, ASSUMED, source="IEEE 802.3bs; assumed"),
    Link(
        "nvme4",
        7e9,
        100e-6,
        ASSUMED,
        duplex=False,
        source="Samsung PM1733, sequential reads; latency and efficiency assumed",
    ),
    Link(
        "nvme5",
        13e9,
        100e-6,
        ASSUMED,
        duplex=False,
        source="Samsung PM1743, sequential reads; latency and efficiency assumed",
    ),
]

# usd_per_hour: CachePilot's catalogue, an hour of one card, undated: give your own.
ACCELERATORS = [
    Accelerator(
        "l4",
        *(24, 300e9, 121e12, 242.5e12, 242.5e12, "pcie4", "pcie4", 0.80),
        source="NVIDIA L4 data sheet (242 / 485 / 485 with sparsity)",
    ),
    Accelerator(
        "a10",
        *(24, 600e9, 125e12, None, 250e12, "pcie4", "pcie4", None),
        source="NVIDIA A10 data sheet",
    ),
    Accelerator(
        "a10g",
        *(24, 600e9, 70e12, None, 140e12, "pcie4", "pcie4", 0.60),
        source="NVIDIA A10G product brief, by llm-analysis' a10g-pcie-24gb.json",
    ),
    Accelerator(
        "a30",
        *(24, 933e9, 165e12, None, 330e12, "pcie4", "pcie4", None),
        source="NVIDIA A30 data sheet",
    ),
    Accelerator(
        "a100-sxm-40",
        *(40, 1555e9, 312e12, None, 624e12, "nvlink3", "pcie4", 0.90),
        aliases=("a100-40", "a100-40gb"),
        source="NVIDIA A100 data sheet",
    ),
    Accelerator(
        "a100-sxm-80",
        *(80, 2039e9, 312e12, None, 624e12, "nvlink3", "pcie4", 1.29),
        aliases=("a100", "a100-80", "a100-80gb", "a100-sxm"),
        source="NVIDIA A100 80GB data sheet",
    ),
    Accelerator(
        "a100-pcie-80",
        *(80, 1935e9, 312e12, None, 624e12, "pcie4", "pcie4", None),
        aliases=("a100-pcie",),
        source="NVIDIA A100 80GB data sheet",
    ),
    Accelerator(
        "l40s",
        *(48, 864e9, 362.05e12, 733e12, 733e12, "pcie4", "pcie4", None),
        source="NVIDIA L40S data sheet",
    ),
    Accelerator(
        "rtx-3090",
        *(24, 936e9, 71e12, None, 284e12, "pcie4", "pcie4", 0.25),
        source="NVIDIA Ampere GA102 white paper, appendix A",
    ),
    Accelerator(
        "rtx-4090",
        *(24, 1008e9, 165.2e12, 330.3e12, 660.6e12, "pcie4", "pcie4", 0.50),
        source="NVIDIA Ada GPU architecture white paper, appendix A",
    ),
    Accelerator(
        "rtx-5090",
        *(32, 1792e9, 209.5e12, 419e12, 838e12, "pcie5", "pcie5", None),
        source="NVIDIA RTX Blackwell GPU architecture white paper, appendix A",
    ),
    Accelerator(
        "rtx-pro-6000",
        *(96, 1792e9, 467.8e12, 935.6e12, 935.6e12, "pcie5", "pcie5", None),
        source="aiconfigurator's rtx_pro_6000_server.yaml",
    ),
    Accelerator(
        "h100-pcie",
        *(80, 2000e9, 756.5e12, 1513e12, 1513e12, "pcie5", "pcie5", 2.06),
        source="NVIDIA H100 data sheet (1,513 / 3,026 with sparsity)",
    ),
    Accelerator(
        "h100-sxm",
        *(80, 3350e9, 989.4e12, 1978.9e12, 1978.9e12, "nvlink4", "pcie5", 2.49),
        aliases=("h100", "h100-80", "h100-80gb", "h100-sxm-80"),
        source="NVIDIA H100 data sheet (1,979 / 3,958 with sparsity)",
    ),
    Accelerator(
        "h200",
        *(141, 4800e9, 989.4e12, 1978.9e12, 1978.9e12, "nvlink4", "pcie5", 5.00),
        aliases=("h200-sxm", "h200-141"),
        source="NVIDIA H200 data sheet (1,979 / 3,958 with sparsity)",
    ),
    Accelerator(
        "h20",
        *(96, 4000e9, 148e12, 296e12, 296e12, "nvlink4", "pcie5", None),
        source="NVIDIA H20, as listed by willitrunai.com, h20-96gb",
    ),
    Accelerator(
        "b200",
        *(180, 7700e9, 2250e12, 4500e12, 4500e12, "nvlink5", "pcie6", None),
        aliases=("b200-sxm",),
        source="NVIDIA HGX B200 data sheet, an eighth; aiconfigurator's b200_sxm.yaml",
    ),
    Accelerator(
        "gb200",
        *(186, 8000e9, 2500e12, 5000e12, 5000e12, "nvlink5", "nvlink-c2c", None),
        source="NVIDIA GB200 NVL72 data sheet; aiconfigurator's gb200.yaml",
    ),
    Accelerator(
        "b300",
        *(268.6, 7750e9, 2250e12, 4500e12, 153.5e12, "nvlink5", "pcie6", None),
        aliases=("b300-sxm",),
        source="NVIDIA HGX B300 data sheet; aiconfigurator's b300_sxm.yaml",
    ),
    Accelerator(
        "mi300x",
        *(192, 5300e9, 1307.4e12, 2614.9e12, 2614.9e12, "infinity-fabric", "pcie5"),
        source="AMD Instinct MI300X data sheet",
    ),
    Accelerator(
        "mi325x",
        *(256, 6000e9, 1307.4e12, 2614.9e12, 2614.9e12, "infinity-fabric", "pcie5"),
        source="AMD Instinct MI325X data sheet",
    ),
    Accelerator(
        "mi355x",
        *(288, 8000e9, 2516.6e12, 5033.2e12, 5033.2e12, "infinity-fabric4", "pcie5"),
        source="AMD Instinct MI355X data sheet",
    ),
    Accelerator(
        "gaudi3",
        *(128, 3670e9, 1835e12, 1835e12, None, "gaudi-roce", "pcie5"),
        source="Intel Gaudi 3 white paper, August 2024",
    ),
]

_CARDS = index((n, card) for card in ACCELERATORS for n in (card.name, *card.aliases))
_WAYS = index((n, way) for way in LINKS for n in (way.name, *way.aliases))
