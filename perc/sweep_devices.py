"""Replays as many configurations at a time as JAX has CPU devices, with `shard_map`.

The loops of `perc.levels` are programs for CPUs, and stay so where JAX has a GPU.
Inside `shard_map` they still update in place: two configurations on two devices take
the CPU time of two calls (measured on jax 0.10.2 and 0.12), and whole numbers make the
rows the same bit for bit. JAX has one CPU device unless told otherwise:

    XLA_FLAGS=--xla_force_host_platform_device_count=4
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perc.levels import Requests, pad, passes, replay_levels, requests_of
from perc.types import Trace

Order = tuple[np.ndarray, np.ndarray]  # ranks i32[N], and those of the accesses before
AXIS = "configurations"


class Placed(NamedTuple):
    """A trace where it is replayed."""

    mesh: Mesh
    requests: Requests  # on every device
    capacities: list[jax.Array]  # in groups, on every device
    n_sizes: int
    n_requests: int


def place(trace: Trace, sizes: Sequence[int]) -> Placed:
    """Puts what all replays of a trace share on every CPU device."""
    mesh = Mesh(np.array(jax.devices("cpu")), (AXIS,))
    everywhere = NamedSharding(mesh, PartitionSpec())
    groups = passes(sizes, trace.n_accesses)
    return Placed(
        mesh,
        jax.device_put(requests_of(trace), everywhere),
        [jax.device_put(group, everywhere) for group in groups],
        len(sizes),
        trace.n_requests,
    )


def replay_orders(
    placed: Placed, orders: Sequence[Order], bypass: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Hits i32[K, R] and evictions i32[K] of each order, at most one a device."""
    n = placed.mesh.size
    filled = [*orders, *[orders[-1]] * (n - len(orders))]
    ranks, before = (
        jax.device_put(
            np.stack([pad(order[part]) for order in filled]),
            NamedSharding(placed.mesh, PartitionSpec(AXIS)),
        )
        for part in (0, 1)
    )
    program = _program(placed.mesh, bypass)
    found = [
        program(before, ranks, placed.requests, group) for group in placed.capacities
    ]
    hits, evictions = (
        np.concatenate([np.asarray(group[part]) for group in found], axis=1)
        for part in (0, 1)
    )
    hits = hits[:, : placed.n_sizes, : placed.n_requests]
    return list(zip(hits, evictions[:, : placed.n_sizes], strict=True))[: len(orders)]


@lru_cache
def _program(mesh: Mesh, bypass: bool):
    """`replay_levels` for one configuration a device, compiled once."""

    def replay_mine(before, ranks, requests, capacities):
        found = replay_levels(before[0], ranks[0], requests, capacities, bypass)
        return jax.tree.map(lambda array: jnp.expand_dims(array, 0), found)

    mine, everyone = PartitionSpec(AXIS), PartitionSpec()
    sharded = jax.shard_map(
        replay_mine,
        mesh=mesh,
        in_specs=(mine, mine, everyone, everyone),
        out_specs=mine,
        check_vma=False,  # the loops start from constants, which belong to no device
    )
    return jax.jit(sharded)
