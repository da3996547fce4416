"""What the tests of the simulator share: a small machine, and oracle runs."""

import numpy as np

from perc.roofline import Roofline
from perc.serving.arrivals import gaps_s, next_turns
from perc.serving.orders import places
from perc.serving.outputs import with_outputs, without_outputs
from perc.serving.programs import before_of, kept_tokens, turns_of
from tests.oracles import serving as oracle
from tests.strategies import rows_of


def machine(*, window: float = np.inf, overhead_s: float = 0.0) -> Roofline:
    """A slow accelerator, whose steps take about a tenth of a second.

    Short contexts are bound by weights, long ones by either, so that every branch of
    the clock is met by small traces.
    """
    return Roofline(
        token_flops=100.0,
        prefill_pair_flops=np.array([3.0, 2.0]),
        decode_pair_flops=np.array([3.0, 2.0]),
        window_tokens=np.array([np.inf, window]),
        kv_token_bytes=np.array([1.0, 0.5]),
        weight_bytes=100.0,
        expert_bytes=0.0,
        expert_share=0.0,
        flops_per_s=5003.0,
        bytes_per_s=1009.0,
        overhead_s=overhead_s,
        reduce_bytes=0.0,
        reduces=0.0,
        reduce_bytes_per_s=1.0,
        reduce_latency_s=0.0,
        ranks=1.0,
    )


def named(trace, server):
    return with_outputs(trace) if server.cache_outputs else without_outputs(trace)


def back_s(chosen, server, cost):
    """Seconds f64[R] to have back what each request leaves, once it has left."""
    compute_s = cost.prefill_s(kept_tokens(chosen.trace, chosen.prompt_stop))
    if server.offload is None or not server.offload.used:
        return compute_s
    tier = server.offload.used[0]
    blocks = chosen.trace.stop - chosen.trace.start
    move_s = blocks * tier.block_s + tier.latency_s
    return {
        "reload": move_s,
        "recompute": compute_s,
        "cheapest": np.minimum(move_s, compute_s),
    }[server.offload.load]


def serve_in_python(trace, order, server, cost, **options):
    """The oracle's machine and jobs; `order` numbers the accesses of `named`."""
    chosen = named(trace, server)
    blocks = rows_of(chosen.trace, chosen.trace.block)
    ranks = rows_of(chosen.trace, order)
    band, place = places(trace, server.order)
    follower, gap = next_turns(trace), gaps_s(trace, cost)
    followed = follower if server.closed_loop else np.full(trace.n_requests, -1)
    before, turn = before_of(followed), turns_of(followed)
    reload_s = back_s(chosen, server, cost)
    jobs, waits = [], set()
    for r in range(trace.n_requests):
        prompt = int(chosen.prompt_stop[r] - chosen.trace.start[r])
        after = int(follower[r]) if server.closed_loop else -1
        waits.add(after)
        jobs.append(
            oracle.Job(
                r,
                blocks[r][:prompt],
                blocks[r][prompt:],
                ranks[r],
                max(int(trace.input_tokens[r]), 1),
                max(int(trace.output_tokens[r]), 1),
                following=after if after >= 0 else None,
                gap_s=float(gap[r]),
                deadline_s=float(trace.deadline_s[r]),
                band=float(band[r]),
                place=float(place[r]),
                before=int(before[r]) if before[r] >= 0 else None,
                tool=int(trace.kind[r]),
                turn=int(turn[r]),
                reload_s=float(reload_s[r]),
            )
        )
    starts = [(float(t), r) for r, t in enumerate(trace.arrival_s) if r not in waits]
    found = oracle.serve(jobs, starts, server, cost, trace.block_tokens, **options)
    return found, jobs
