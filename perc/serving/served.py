"""What a simulated server did, as people read it."""

from dataclasses import dataclass

import numpy as np

from perc.serving import state as columns_of
from perc.serving.below import READ, WRITE
from perc.serving.counted import Counted
from perc.serving.engine import BelowKept, Kept, RetainedKept
from perc.serving.offload import LowerTier
from perc.serving.settings import Server
from perc.types import Trace

POOL = ("size", "pinned", "private", "evictions")  # of `engine.Kept.pool`


@dataclass(frozen=True)
class Served:
    """What a server did, request by request, in the order of the trace.

    Times are seconds from the trace's start, nan where it did not come to that.
    """

    policy: str
    server: Server
    status: np.ndarray  # i32[R]: 0 = still there, 1 = completed, 2 = rejected
    arrived_s: np.ndarray  # f64[R]
    admitted_s: np.ndarray  # f64[R], the first time
    first_token_s: np.ndarray  # f64[R]
    ended_s: np.ndarray  # f64[R], also of the rejected
    hit_blocks: np.ndarray  # i32[R], leading computed blocks found on admission
    cached_tokens: np.ndarray  # i32[R], of the prompt, not computed
    known_tokens: np.ndarray  # i32[R], of it, that the run had computed by then
    made_tokens: np.ndarray  # i32[R], of the answer
    preemptions: np.ndarray  # i32[R]
    again_tokens: np.ndarray  # i32[R], computed again after preemptions
    reread_blocks: np.ndarray  # i32[R], found again after preemptions
    itl_counts: np.ndarray  # i64[B], gaps between tokens by `state.note_gap`'s bins
    series: np.ndarray  # f64[T, 7], columns `state.SERIES`
    totals: dict[str, float]  # of `state.Sums`, and what is in the pool at the end
    counted: Counted  # numpy's, what was found in the pool and below at the end
    below: "Offloaded | None" = None  # None: no tiers
    retained: "Shielded | None" = None  # None: no retention


@dataclass(frozen=True)
class Shielded:
    """What retention did."""

    shields: int  # turns whose prefix was shielded
    in_time: int  # next turns that were admitted under the shield
    late: int  # next turns that came to the server's memory without one
    expired: int
    released: int  # broken for want of room
    refused: int  # ended because the next turn was rejected
    blocks: int  # shielded at the end
    ttl_s: np.ndarray  # f64[R], given at the end of each turn, 0 = none


@dataclass(frozen=True)
class Offloaded:
    """What T tiers below the GPU did, in blocks."""

    tiers: tuple[LowerTier, ...]
    resident: np.ndarray  # i64[T], at the end
    stored: np.ndarray  # i64[T], that came: written, or moved up or down
    gone: np.ndarray  # i64[T], that had to leave, down or for good
    taken: np.ndarray  # i64[T], that were moved up
    read: np.ndarray  # i64[T], that were loaded or moved up
    hits: np.ndarray  # i64[T], loaded for requests on their first admission
    read_s: np.ndarray  # f64[T], that the link was busy with reads
    write_s: np.ndarray  # f64[T]
    declined: int  # blocks that were there, and computed: quicker, or by the rule
    stall_s: float  # that the engine did nothing but wait for loads
    wait_s: np.ndarray  # f64[R], that each request waited for its loads
    loaded_blocks: np.ndarray  # i32[R], on the first admission


def served_by(found: Kept, trace: Trace, name: str, server: Server) -> Served:
    """The answer from what the compiled loop kept of one server."""
    n = trace.n_requests
    times = np.where(np.isinf(found.times), np.nan, found.times)[:n]
    counts = np.asarray(found.counts)[:n]
    made = counts[:, columns_of.MADE].copy()
    here = np.asarray(found.requests) >= 0
    made[np.asarray(found.requests)[here]] = np.asarray(found.made)[here]
    series = np.asarray(found.series)
    totals = {key: value.item() for key, value in found.sums._asdict().items()}
    totals |= dict(zip(POOL, found.pool.tolist(), strict=True))
    totals |= {
        "now_s": found.now.item(),
        "running": found.running.item(),
        "queued": found.queued.item(),
    }
    return Served(
        policy=name,
        server=server,
        status=counts[:, columns_of.STATUS],
        arrived_s=times[:, columns_of.ARRIVED],
        admitted_s=times[:, columns_of.ADMITTED],
        first_token_s=times[:, columns_of.FIRST],
        ended_s=times[:, columns_of.ENDED],
        hit_blocks=counts[:, columns_of.HIT],
        cached_tokens=counts[:, columns_of.CACHED],
        known_tokens=counts[:, columns_of.KNOWN],
        made_tokens=made,
        preemptions=counts[:, columns_of.PREEMPTED],
        again_tokens=counts[:, columns_of.AGAIN],
        reread_blocks=counts[:, columns_of.REREAD],
        itl_counts=np.asarray(found.itl_bins),
        series=series[~np.isnan(series[:, 0])],
        totals=totals,
        counted=found.counted,
        below=_offloaded(found.below, server, n),
        retained=_shielded(found.retained, n),
    )


def _shielded(found: RetainedKept | None, n: int) -> Shielded | None:
    if found is None:
        return None
    counts = (int(count) for count in found.counts)
    return Shielded(
        *counts, blocks=int(found.shielded), ttl_s=np.asarray(found.ttl_s)[:n]
    )


def _offloaded(found: BelowKept | None, server: Server, n: int) -> Offloaded | None:
    if found is None or server.offload is None:
        return None
    return Offloaded(
        tiers=server.offload.used,
        resident=np.asarray(found.size, np.int64),
        stored=np.asarray(found.stored),
        gone=np.asarray(found.gone),
        taken=np.asarray(found.taken),
        read=np.asarray(found.read),
        hits=np.asarray(found.hits),
        read_s=np.asarray(found.busy_s)[:, READ],
        write_s=np.asarray(found.busy_s)[:, WRITE],
        declined=int(found.declined),
        stall_s=float(found.stall_s),
        wait_s=np.asarray(found.wait_s)[:n],
        loaded_blocks=np.asarray(found.loaded)[:n],
    )
