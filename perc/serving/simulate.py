"""A trace through a server: the one call that most people need."""

from collections.abc import Sequence

import jax
import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError, check_number, check_whole
from perc.ranks import ranks, scores
from perc.roofline import Roofline
from perc.serving.arrivals import gaps_s, next_turns
from perc.serving.engine import serve_each
from perc.serving.offload import n_tiers
from perc.serving.outputs import Named, with_outputs, without_outputs
from perc.serving.pricing import Changing, can_price, changing_order, watches_of
from perc.serving.served import Served, served_by
from perc.serving.settings import Server, rules
from perc.serving.state import columns, even_points, start
from perc.shapes import bucket
from perc.types import AnyPolicy, Policy, Trace

SAMPLES = 512


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
        InputError: for a policy whose order depends on what the cache did, a price
            that is no number, or a trace without requests.

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
        InputError: if they differ there, or there is none; if a price is no number.
    """
    trace, server = named.trace, _one_kind(servers)
    watches = [None for _ in servers]
    if changing is not None:
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
        served_by(jax.tree.map(lambda column, i=i: column[i], found), trace, name, each)
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
