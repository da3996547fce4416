"""Many servers in one call."""

import dataclasses

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.serving.outputs import without_outputs
from perc.serving.settings import Server
from perc.serving.simulate import simulate_order, simulate_servers
from tests.serving.common import machine

COST = machine()._replace(bytes_per_s=1e6, flops_per_s=1e8)


def test_many_servers_in_one_call_are_each_alone():
    named = without_outputs(perc.make("chat", requests=80))
    order = perc.ranks(named.trace, np.zeros(named.trace.n_accesses, np.float32))
    servers = [
        Server(blocks, max_running=running, batching=batching)
        for blocks in (500, 900)
        for running in (8, 16)
        for batching in ("max_throughput", "low_latency")
    ]
    many = simulate_servers(named, order, servers, COST)
    assert len({run.totals["busy_s"] for run in many}) > 2
    for server, run in zip(servers, many, strict=True):
        alone = simulate_order(named, order, server, COST)
        assert alone.totals == run.totals
        for field in dataclasses.fields(run):
            mine, other = getattr(run, field.name), getattr(alone, field.name)
            if isinstance(mine, np.ndarray):
                assert np.array_equal(mine, other, equal_nan=mine.dtype == float)


def test_servers_of_other_traffic_are_refused():
    named = without_outputs(perc.make("chat", requests=10))
    order = np.arange(named.trace.n_accesses, dtype=np.int32)
    mixed = [Server(900), Server(900, closed_loop=True)]
    with pytest.raises(InputError, match="shape the traffic"):
        simulate_servers(named, order, mixed, COST)
    with pytest.raises(InputError, match="no server"):
        simulate_servers(named, order, [], COST)
