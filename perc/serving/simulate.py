"""A trace through a server: the one call that most people need."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError, check_number, check_whole
from perc.ranks import ranks, scores
from perc.roofline import Roofline
from perc.serving import state as columns_of
from perc.serving.arrivals import gaps_s, next_turns
from perc.serving.below import READ, WRITE
from perc.serving.engine import BelowKept, Kept, RetainedKept, serve_each
from perc.serving.offload import LowerTier, n_tiers
from perc.serving.outputs import Named, with_outputs, without_outputs
from perc.serving.pricing import Changing, can_price, changing_order, watches_of
from perc.serving.settings import Server, rules
from perc.serving.state import columns, even_points, start
from perc.shapes import bucket
from perc.types import AnyPolicy, Policy, Trace

SAMPLES = 512
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
    made_tokens: np.ndarray  # i32[R], of the answer
    preemptions: np.ndarray  # i32[R]
    again_tokens: np.ndarray  # i32[R], computed again after preemptions
    reread_blocks: np.ndarray  # i32[R], found again after preemptions
    itl_counts: np.ndarray  # i64[B], gaps between tokens by `state.note_gap`'s bins
    series: np.ndarray  # f64[T, 7], columns `state.SERIES`
    totals: dict[str, float]  # of `state.Sums`, and what is in the pool at the end
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
    declined: int  # blocks that were there, and computed because that was quicker
    stall_s: float  # that the engine did nothing but wait for loads
    wait_s: np.ndarray  # f64[R], that each request waited for its loads
    loaded_blocks: np.ndarray  # i32[R], on the first admission


def simulate(
    trace: Trace,
    policy: AnyPolicy,
    server: Server,
    cost: Roofline,
    *,
    prefill: PrefillCost = DEFAULT_COST,
    until_s: float = np.inf,
    samples: int = SAMPLES,
) -> Served:
    """Plays a trace through a server.

    Args:
        trace: the traffic; `perc.serving.arrivals` makes it faster or random.
        policy: one whose order does not depend on the cache (`perc.ranks`), or one
            that prices blocks as they idle (`perc.serving.pricing`).
        server: its options.
        cost: of a step, from `perc.roofline`.
        prefill: prices the feature `recompute_s` of a policy that reads it.
        until_s: stop there; what runs then is neither completed nor rejected.
        samples: points of the time series.

    Raises:
        InputError: for a policy whose order depends on what the cache did, one that
            prices blocks as they idle together with tiers or retention, a price that
            is no number, or a trace without requests.

    Example:
        >>> import perc
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> from perc.policies.lru import lru
        >>> from perc.roofline import roofline
        >>> cost = roofline(model("llama-3.1-8b"), accelerator("h100"))
        >>> chat = perc.make("chat", requests=50)
        >>> served = simulate(chat, lru(), Server(2000), cost)
        >>> int((served.status == 1).sum())
        50
    """
    _check(trace, policy, until_s, samples)
    named = with_outputs(trace) if server.cache_outputs else without_outputs(trace)
    changing = None
    if isinstance(policy, Policy):
        order = ranks(named.trace, scores(policy, named.trace, cost=prefill))
    elif named.trace.n_accesses:
        order, changing = changing_order(policy, named.trace, cost=prefill)
    else:  # nothing is looked up
        order = np.zeros(0, np.int32)
    return simulate_order(
        named,
        order,
        server,
        cost,
        name=policy.name,
        refresh=getattr(policy, "refresh", True),
        changing=changing,
        until_s=until_s,
        samples=samples,
    )


def simulate_order(
    named: Named,
    order: np.ndarray,
    server: Server,
    cost: Roofline,
    *,
    name: str = "order",
    refresh: bool = True,
    changing: Changing | None = None,
    until_s: float = np.inf,
    samples: int = SAMPLES,
) -> Served:
    """Like `simulate`, from ranks i32[N] that were computed before.

    Or from `perc.serving.pricing.changing_order`, which gives `changing` as well.
    """
    (served,) = simulate_servers(
        named,
        order,
        [server],
        cost,
        name=name,
        refresh=refresh,
        changing=changing,
        until_s=until_s,
        samples=samples,
    )
    return served


def simulate_servers(
    named: Named,
    order: np.ndarray,
    servers: Sequence[Server],
    cost: Roofline,
    *,
    name: str = "order",
    refresh: bool = True,
    changing: Changing | None = None,
    until_s: float = np.inf,
    samples: int = SAMPLES,
) -> list[Served]:
    """Many servers in one compiled call, each as `simulate_order` alone would give.

    Args:
        servers: they may differ in all but `order`, `closed_loop` and `cache_outputs`,
            which shape the traffic.

    Raises:
        InputError: if they differ there, or there is none; if the order changes while
            blocks idle and there are tiers, retention, or a price that is no number.
    """
    trace, server = named.trace, _one_kind(servers)
    watches = [None for _ in servers]
    if changing is not None:
        _check_changing(name, server)
        sizes = [each.capacity_blocks for each in servers]
        watches = watches_of(changing, named, sizes)
    following = np.full(trace.n_requests, -1, np.int32)
    gap = np.full(trace.n_requests, np.inf)
    if server.closed_loop:
        following, gap = next_turns(trace), gaps_s(trace, cost)
    horizon_s = min(until_s, max(float(trace.arrival_s[-1]), 1.0) * 1.25)
    sample_s = horizon_s / max(even_points(samples), 1)
    slots = max(each.max_running for each in servers)
    with jax.enable_x64(True):
        how = [
            rules(each, cost, until_s=until_s, sample_s=sample_s)._replace(watch=watch)
            for each, watch in zip(servers, watches, strict=True)
        ]
        lines = changing and changing.lines
        traffic = columns(
            trace,
            order,
            named.prompt_stop,
            server,
            following,
            gap,
            cost,
            refresh=refresh,
            lines=lines,
        )
        begin = start(
            trace,
            following,
            n_slots=bucket(slots, smallest=4),
            samples=samples,
            tiers=n_tiers(server.offload),
            retention=server.retention is not None,
            lines=lines,
        )
        stacked = jax.tree.map(lambda *rows: np.stack(rows), *how)
        found = serve_each(traffic, stacked, begin, trace.block_tokens)
    found = jax.device_get(found)
    if found.bad is not None and found.bad.any():
        raise InputError(
            f"policy {name}: {found.bad.sum()} of its prices are no number. Are its "
            "parameters too large?"
        )
    return [
        _served(jax.tree.map(lambda column, i=i: column[i], found), trace, name, each)
        for i, each in enumerate(servers)
    ]


def _one_kind(servers: Sequence[Server]) -> Server:
    if not servers:
        raise InputError("no server to simulate; give one or more.")
    kinds = {
        (
            s.order,
            s.closed_loop,
            s.cache_outputs,
            n_tiers(s.offload),
            s.retention is None,
        )
        for s in servers
    }
    if len(kinds) > 1:
        raise InputError(
            "the servers differ in order, closed_loop or cache_outputs, which shape "
            "the traffic, or in the number of tiers, or some have retention and some "
            "have not; simulate them in a call for each."
        )
    return servers[0]


def _check_changing(name: str, server: Server) -> None:
    if n_tiers(server.offload) or server.retention is not None:
        what = "retention" if server.retention is not None else "tiers below the GPU"
        raise InputError(
            f"policy {name!r}: its order changes while blocks idle, which is not "
            f"simulated together with {what}. Leave them out, or take a policy whose "
            "order does not change, such as lru or perc_decay."
        )


def _served(found: Kept, trace: Trace, name: str, server: Server) -> Served:
    n = trace.n_requests
    times = np.where(np.isinf(found.times), np.nan, found.times)[:n]
    counts = np.asarray(found.counts)[:n]
    made = counts[:, columns_of.MADE].copy()
    here = np.asarray(found.requests) >= 0
    made[np.asarray(found.requests)[here]] = np.asarray(found.made)[here]
    series = np.asarray(found.series)
    totals = {key: value.item() for key, value in found.sums._asdict().items()}
    totals |= dict(
        zip(
            ("size", "pinned", "private", "evictions"), found.pool.tolist(), strict=True
        )
    )
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
        made_tokens=made,
        preemptions=counts[:, columns_of.PREEMPTED],
        again_tokens=counts[:, columns_of.AGAIN],
        reread_blocks=counts[:, columns_of.REREAD],
        itl_counts=np.asarray(found.itl_bins),
        series=series[~np.isnan(series[:, 0])],
        totals=totals,
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


def check_policy(policy: AnyPolicy) -> None:
    """Checks that the simulator can follow a policy.

    Raises:
        InputError: if its order depends on what the cache did.
    """
    if not isinstance(policy, Policy) and not can_price(policy):
        raise InputError(
            f"policy {policy.name!r}: its order depends on what the cache did, which "
            "perc simulate does not follow. Take one that scores a use or prices an "
            "idle block, such as lru, perc_decay, perc or workload_aware."
        )


def _check(trace: Trace, policy: AnyPolicy, until_s: float, samples: int) -> None:
    check_policy(policy)
    if not trace.n_requests:
        raise InputError(f"{trace.source} has no requests: there is nothing to serve.")
    if until_s != np.inf:
        check_number("simulate", "until_s", until_s)
    check_whole("simulate", "samples", samples, 2, 2**20)
