"""Does `hazard` reach what was measured by another program, and what does it cost?

    python benchmarks/hazard.py conversation_trace.jsonl

Survival is fitted to the first half of the requests; it fills the cache and is not
counted. Prints, on the Mooncake conversation trace, (a) the fitted probabilities of a
return and (b) block hit ratios of the second half, beside the reference values, which
come from a simulation in plain Python; on any other trace, what was measured alone. The
last rows are `hazard` as `perc compare` runs it, which learns while the traffic runs.
"""

import time
from pathlib import Path

import common
import jax.numpy as jnp
import tyro

import perc
from perc.policies.hazard import fit_hazard, hazard, return_within
from perc.policies.registry import registry
from perc.types import Features, Now, OnlinePolicy, Policy, Trace

CAPACITIES = (3000, 10_000, 30_000)
WITHIN_S = (60.0, 120.0, 300.0, 600.0, 1500.0)
HORIZONS_S = (60.0, 200.0, 600.0)
CONVERSATION = (12_031, 288_500)  # requests and accesses of the reference's trace
KNOWN_RETURNS = {  # turn: P(return within WITHIN_S)
    1: (0.050, 0.120, 0.197, 0.256, 0.276),
    2: (0.069, 0.177, 0.317, 0.395, 0.410),
    3: (0.119, 0.275, 0.452, 0.531, 0.545),
    4: (0.179, 0.327, 0.483, 0.576, 0.576),
    5: (0.123, 0.291, 0.569, 0.667, 0.716),
    6: (0.256, 0.470, 0.659, 0.753, 0.768),
}
KNOWN_HITS = {
    "lru": (0.0656, 0.2151, 0.3368),
    "H 60 s": (0.1307, 0.2243, 0.3362),
    "H 200 s": (0.1268, 0.2290, 0.3397),
    "H 600 s": (0.1263, 0.2291, 0.3401),
    "H 60 s, leaf": (0.1318, 0.2256, 0.3382),
    "H 200 s, leaf": (0.1269, 0.2309, 0.3397),
    "H 600 s, leaf": (0.1262, 0.2311, 0.3401),
}


def main(
    trace: tyro.conf.Positional[Path | None] = None,
    *,
    block_tokens: int | None = None,
) -> None:
    """Fits, replays, and prints measured beside known values.

    Args:
        trace: a file of traffic; without one, the embedded chat traffic.
        block_tokens: tokens of a block, where the file does not tell.
    """
    traffic = common.open_trace(trace, block_tokens)
    common.print_conditions(traffic, seed=0)
    known = (traffic.n_requests, traffic.n_accesses) == CONVERSATION
    fits = {
        f"H {horizon:g} s{', leaf' * closed}": fit_hazard(
            traffic, share=0.5, horizon_s=horizon, closed=closed
        )
        for closed in (False, True)
        for horizon in HORIZONS_S
    }
    print_returns(fits["H 60 s"], known)
    policies = {"lru": registry["lru"](), **fits}
    policies |= {f"H {h:g} s, on the way": hazard(horizon_s=h) for h in HORIZONS_S}
    print_hits(traffic, policies, known)


def print_returns(policy: OnlinePolicy, known: bool) -> None:
    """Table (a): P(return within T | no idle time) by turn, kind 0."""
    table = common.table(
        "(a) fitted P(return within T)" + ", reference in brackets" * known,
        "turn",
        *(f"{within:g} s" for within in WITHIN_S),
    )
    now = Now(jnp.int32(0), jnp.float32(0), ())
    for turn, expected in KNOWN_RETURNS.items():
        f = Features(time_s=jnp.float32(0), kind=jnp.int32(0), turn=jnp.int32(turn))
        cells = []
        for within, value in zip(WITHIN_S, expected, strict=True):
            params = policy.params | {"horizon_s": jnp.float32(within)}
            p = float(return_within(params, params["survival"], f, now))
            cells.append(f"{p:.3f}" + f" ({value:.3f})" * known)
        table.add_row(str(turn), *cells)
    common.console.print(table)


def print_hits(
    trace: Trace, policies: dict[str, Policy | OnlinePolicy], known: bool
) -> None:
    """Table (b): block hit ratios of the second half, and CPU seconds."""
    table = common.table(
        "(b) block hit ratio, second half" + ", reference in brackets" * known,
        "policy",
        *(f"{size:,}" for size in CAPACITIES),
        "CPU s",
    )
    worst = 0.0
    for label, policy in policies.items():
        began = time.process_time()
        hits = perc.compare(trace, [policy], CAPACITIES, warmup=0.5).rows
        taken = time.process_time() - began
        cells = []
        for k, row in enumerate(hits):
            cell = f"{row.block_hit_ratio:.4f}"
            if known and label in KNOWN_HITS:
                expected = KNOWN_HITS[label][k]
                worst = max(worst, abs(row.block_hit_ratio - expected))
                cell += f" ({expected:.4f})"
            cells.append(cell)
        table.add_row(label, *cells, f"{taken:.1f}")
    common.console.print(table)
    if known:
        common.say(f"largest difference from the reference: {worst:.5f}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
