"""How much of the card's bandwidth do a copy and a triad reach, as XLA compiles them?

    copy   c = a          2 arrays moved
    triad  c = a + s b    3 arrays moved

References:
    McCalpin 1995, "Memory bandwidth and machine balance in current high performance
    computers": STREAM.
"""

from typing import Any

import gpu_common
import jax
import jax.numpy as jnp
import numpy as np

from perc.hardware import Accelerator, accelerator

BAR = 0.7  # of the card's figure
SCALE = 3.0
CARDS = {  # what the driver calls them: what perc.hardware does
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA H20": "h20",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
    "NVIDIA GB200": "gb200",
}


def card_of(kind: str) -> Accelerator | None:
    """The card of a device by the name that its driver gives; None if perc has none.

    >>> card_of("NVIDIA H200").bytes_per_s, card_of("cpu")
    (4800000000000.0, None)
    """
    return accelerator(CARDS[kind]) if kind in CARDS else None


def copy(a: jax.Array, b: jax.Array) -> jax.Array:
    """What `b` holds is not read; a copy of `a` is written."""
    return jnp.copy(a)


def triad(a: jax.Array, b: jax.Array) -> jax.Array:
    return a + SCALE * b


def time_memory(size: gpu_common.Size) -> list[dict[str, Any]]:
    """Speeds, each after its result was compared with NumPy's."""
    kind = jax.devices()[0].device_kind
    card = card_of(kind)
    keys = jax.random.split(jax.random.key(4))
    # Small whole numbers, so that a fused product rounds as two steps do.
    a, b = (
        jax.random.randint(key, (size.stream,), -999, 999).astype(jnp.float32)
        for key in keys
    )
    wanted = {"copy": np.asarray(a), "triad": np.asarray(a) + SCALE * np.asarray(b)}
    found = []
    print(
        f"| float32 on {kind} | us | GB/s | of the card's figure |\n|---|---|---|---|"
    )
    for name, function, arrays in (("copy", copy, 2), ("triad", triad, 3)):
        call = jax.jit(function)
        taken, last = gpu_common.seconds(lambda _, call=call: call(a, b), None, size)
        speed = arrays * a.nbytes / taken
        share = speed / card.bytes_per_s if card else None
        row = {"name": name, "bytes": arrays * a.nbytes, "seconds": taken}
        row |= {"equal": np.array_equal(np.asarray(last), wanted[name])}
        found.append(row | {"of_the_card": share})
        shown = f"{100 * share:.0f} %" if share is not None else "not known"
        low = ", below the bar of 70 %" if share is not None and share < BAR else ""
        print(f"| {name} | {taken * 1e6:.0f} | {speed / 1e9:.0f} | {shown}{low} |")
    print(flush=True)
    return found
