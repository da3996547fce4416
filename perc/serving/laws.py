"""What must hold of every run, whatever the options.

submitted = completed + rejected + still there
pinned and private blocks are held by running requests only
the totals of blocks are what is found by counting, on the GPU and below
a block that may leave stands in the order of victims, and no other
what was found in the cache had been computed
every token of an answer is made once: completed answers are whole
time does not run backwards: arrived <= admitted <= first token <= ended
of every tier below the GPU: bytes in = bytes out + resident
"""

import numpy as np

from perc.serving.state import COMPLETED, REJECTED, WAITING
from perc.serving.tier_metrics import tier_laws

SLACK_S = 1e-9


def broken_laws(served) -> list[str]:
    """The laws that a `Served` breaks, none if all is well.

    A broken law is a fault of perc, never of the input.
    """
    status, totals = served.status, served.totals
    there = int((status == WAITING).sum())
    not_yet = int(np.isnan(served.arrived_s).sum())
    done = status == COMPLETED
    in_use = totals["pinned"] + totals["private"]
    inter = int(np.maximum(served.made_tokens - 1, 0).sum())
    checks = {
        "submitted = completed + rejected + still there": there
        == totals["running"] + totals["queued"] + not_yet,
        "blocks fit": 0 <= totals["size"]
        and totals["size"] + in_use <= served.server.capacity_blocks,
        "no running request, no block in use": totals["running"] > 0 or in_use == 0,
        "tokens": totals["tokens"] == served.made_tokens.sum(dtype=np.int64),
        "gaps between tokens": totals["itls"] == inter == served.itl_counts.sum(),
        "completed answers have ended": not np.isnan(served.ended_s[done]).any(),
        "what was found had been computed": bool(
            (served.cached_tokens <= served.known_tokens).all()
        ),
        "the rejected made nothing": not served.made_tokens[status == REJECTED].any(),
        "time runs forwards": _ordered(served),
    }
    checks |= _block_laws(served)
    if served.below is not None:
        checks |= tier_laws(served.below)
    return [law for law, holds in checks.items() if not holds]


def check_laws(served) -> None:
    """Raises if a run broke a law.

    Raises:
        AssertionError: which law, for which policy.
    """
    broken = broken_laws(served)
    if broken:
        raise AssertionError(f"{served.policy}: {'; '.join(broken)}")


def _block_laws(served) -> dict[str, bool]:
    """Totals of the loop against `counted`."""
    found, totals, below = served.counted, served.totals, served.below
    laws = {
        "cached blocks are those counted": totals["size"] == found.ranks
        and found.ranks == found.cached,
        "pinned blocks are those counted": totals["pinned"] == found.pinned,
        "victims come from the blocks that may leave": found.in_order
        == found.may_leave,
    }
    if below is not None:
        laws["blocks of tiers are those counted"] = np.array_equal(
            below.resident, found.below
        ) and np.array_equal(found.below, found.below_in_order)
    return {law: bool(holds) for law, holds in laws.items()}


def _ordered(served) -> bool:
    done = served.status == COMPLETED
    stages = (served.arrived_s, served.admitted_s, served.first_token_s, served.ended_s)
    return all(
        bool((later[done] >= earlier[done] - SLACK_S).all())
        for earlier, later in zip(stages, stages[1:], strict=False)
    )
