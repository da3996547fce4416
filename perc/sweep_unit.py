"""One trace of a sweep: what its configurations share, and how one becomes rows.

A unit of work is one policy with its parameters, at all capacities. What a unit holds
does not grow with the number of units: one score, one order, one hit count a request
and capacity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np

from perc.capacities import in_blocks
from perc.compare import check_blocks, resolve
from perc.curves import lru_curve
from perc.grid import Configuration, Grid, TraceSpec, describe, digest
from perc.metrics import measure_rows, ratio, warmup_requests
from perc.online import Layouts, replay_online
from perc.replay import replay
from perc.sweep_devices import Placed, place, replay_orders
from perc.sweep_order import Scored, order, scored
from perc.traces.hashing import hash_of
from perc.types import Policy, Trace

Row = dict[str, Any]
Counts = tuple[np.ndarray, np.ndarray]  # hits i32[K, R], evictions i32[K]


_READY: dict[tuple[str, str], "_Ready"] = {}  # of the last job: it comes in pieces


@dataclass(frozen=True)
class Job:
    """A trace to be swept, as it is sent to whoever does the work."""

    sha256: str  # of the trace
    trace: Trace
    grid: Grid


class _Ready(NamedTuple):
    sizes: list[int]  # capacities in blocks, rising
    skip: int  # requests that are not counted
    made: Scored
    placed: Placed
    lru: list[float]  # block hit ratio at each size
    bounds: dict[bool, list[float]]  # the same of the clairvoyant bound, by bypass
    layouts: Layouts  # of the trace, for online policies


def open_trace(spec: TraceSpec, seed: int | None) -> Trace:
    """Reads or makes a trace of a grid.

    Raises:
        InputError: if that fails, or if the trace has no blocks to replay.
    """
    from perc.traces import load
    from perc.workloads import make

    if spec.made is not None:
        trace = spec.made
    elif spec.path is not None:
        trace = load(spec.path, **spec.options)
    else:
        seeds = {} if seed is None else {"seed": seed}
        trace = make(str(spec.workload), **seeds, **spec.options)
    check_blocks(trace, required=trace.n_requests > 0)
    return trace


def make_job(grid: Grid, trace: Trace) -> Job:
    """What a worker must know of a trace."""
    return Job(hash_of(trace), trace, grid)


def run_units(job: Job, units: Sequence[Configuration]) -> Iterator[list[Row]]:
    """The rows of each unit, in order; as many units at a time as there are devices."""
    with jax.default_device(jax.devices("cpu")[0]):
        ready = _get_ready(job)
        width = ready.placed.mesh.size
        for _, group in groupby(units, key=lambda unit: unit.policy):
            same = list(group)
            for i in range(0, len(same), width):
                yield from _run_batch(job, ready, same[i : i + width])


def _run_batch(
    job: Job, ready: _Ready, batch: Sequence[Configuration]
) -> Iterator[list[Row]]:
    spec = job.grid.policies[batch[0].policy]
    policies = [spec.build(unit.params, unit.seed) for unit in batch]
    found = _replays(job, ready, policies)
    for unit, policy, counts in zip(batch, policies, found, strict=True):
        yield _rows(job, ready, unit, policy, counts)


def _get_ready(job: Job) -> _Ready:
    key = (job.sha256, digest(describe(job.grid)))
    if key not in _READY:
        _READY.clear()  # first, so that two large traces never meet
        _READY[key] = _prepare(job)
    return _READY[key]


def _prepare(job: Job) -> _Ready:
    trace, grid = job.trace, job.grid
    sizes = in_blocks(trace, grid.capacities)
    skip = warmup_requests(trace, grid.warmup)
    asked = int((trace.stop - trace.start)[skip:].sum())
    hits = lru_curve(trace, warmup_requests=skip)
    lru = [ratio(hits[min(size, trace.n_blocks)], asked) for size in sizes]
    return _Ready(
        sizes,
        skip,
        scored(trace, grid.cost),
        place(trace, sizes),
        lru,
        bounds={},
        layouts={},
    )


def _bound(job: Job, ready: _Ready, bypass: bool) -> list[float]:
    """The clairvoyant bound of the same residency, computed when first asked for."""
    if bypass not in ready.bounds:
        (bound,) = resolve(["belady_bypass" if bypass else "belady"])
        ((hits, _),) = _replays(job, ready, [bound])
        ready.bounds[bypass] = [
            metrics.block_hit_ratio
            for metrics in measure_rows(job.trace, hits, warmup_requests=ready.skip)
        ]
    return ready.bounds[bypass]


def _replays(job: Job, ready: _Ready, policies: Sequence[Any]) -> Sequence[Counts]:
    """Hits and evictions of policies of one kind, at most one a device."""
    first = policies[0]
    if not isinstance(first, Policy):  # its scores depend on what the cache holds
        shared: dict[str, Any] = dict(cost=job.grid.cost, shared=ready.layouts)
        hits = [replay_online(job.trace, p, ready.sizes, **shared) for p in policies]
        return [(np.asarray(h.blocks), np.asarray(h.evictions)) for h in hits]
    orders = [order(ready.made, policy) for policy in policies]
    if first.refresh:
        return replay_orders(ready.placed, orders, first.bypass)
    # What a hit leaves as it was depends on the capacity: no levels.
    found = [
        replay(job.trace, ranks, ready.sizes, bypass=first.bypass, refresh=False)
        for ranks, _ in orders
    ]
    return [(np.asarray(hits.blocks), np.asarray(hits.evictions)) for hits in found]


def _rows(
    job: Job, ready: _Ready, unit: Configuration, policy: Policy | Any, counts: Counts
) -> list[Row]:
    """One row a capacity."""
    hits, evictions = counts
    bounds = _bound(job, ready, getattr(policy, "bypass", False))
    measured = measure_rows(
        job.trace, hits, warmup_requests=ready.skip, cost=job.grid.cost
    )
    rows = []
    for k, (size, found) in enumerate(zip(ready.sizes, measured, strict=True)):
        lru, bound = ready.lru[k], bounds[k]
        gain = found.block_hit_ratio - lru
        rows.append(
            {
                "trace": job.trace.source,
                "trace_sha256": job.sha256,
                "seed": unit.seed,
                "policy": job.grid.policies[unit.policy].name,
                **unit.params,
                "capacity_blocks": size,
                "warmup": job.grid.warmup,
                **asdict(found),
                "lru_block_hit_ratio": lru,
                "bound_block_hit_ratio": bound,
                "gap_closed": ratio(gain, bound - lru) if bound > lru else None,
                "evictions": int(evictions[k]),
                "config": unit.id,
            }
        )
    return rows
