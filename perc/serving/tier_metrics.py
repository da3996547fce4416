"""What tiers below the GPU did: hits, moved bytes, busy links, waits.

hit blocks     loaded for requests on their first admission
read           loaded to the GPU, or moved up by prefetch
written        from the GPU, from the tier above, or moved up by prefetch
read, write share   of the run that the link carried blocks in that direction
load wait      from a request's admission until its blocks were there
stall          the engine had nothing to do but wait for loads
"""

from typing import Any

import numpy as np

from perc.serving.offload import total_bytes
from perc.serving.served import Offloaded, Served

BYTES_HELD = "bytes in = bytes out + resident"


def tier_rows(served: Served, duration_s: float) -> list[dict[str, Any]]:
    """One row of plain numbers a tier, none without tiers."""
    below = served.below
    if below is None:
        return []
    read, written = (total_bytes(below.tiers, x) for x in (below.read, below.stored))
    return [
        {
            "tier": tier.name,
            "capacity_blocks": tier.capacity_blocks,
            "resident_blocks": int(below.resident[t]),
            "hit_blocks": int(below.hits[t]),
            "read_bytes": float(read[t]),
            "written_bytes": float(written[t]),
            "read_share": float(below.read_s[t] / duration_s),
            "write_share": float(below.write_s[t] / duration_s),
        }
        for t, tier in enumerate(below.tiers)
    ]


def tier_figures(served: Served, duration_s: float) -> dict[str, Any]:
    """The same in one row, with the waits; nothing without tiers."""
    below = served.below
    if below is None:
        return {}
    found: dict[str, Any] = {
        "load_wait_s": float(below.wait_s.sum()),
        "load_stall_s": below.stall_s,
        "declined_blocks": below.declined,
    }
    for row in tier_rows(served, duration_s):
        name = row.pop("tier")
        found |= {f"tier_{name}_{key}": value for key, value in row.items()}
    return found


def tier_laws(below: Offloaded) -> dict[str, bool]:
    """What must hold of tiers, by name."""
    into = total_bytes(below.tiers, below.stored)
    out = total_bytes(below.tiers, below.gone + below.taken)
    resident = total_bytes(below.tiers, below.resident)
    capacity = np.array([tier.capacity_blocks for tier in below.tiers])
    return {
        BYTES_HELD: bool((into == out + resident).all()),
        "tiers hold what fits": bool(
            ((below.resident >= 0) & (below.resident <= capacity)).all()
        ),
        "no waits below zero": bool((below.wait_s >= 0).all() and below.stall_s >= 0),
        "loads were hits": bool(
            below.loaded_blocks.sum(dtype=np.int64) == below.hits.sum()
        ),
    }
