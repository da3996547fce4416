"""The clock against formulas, and the cache against `perc.replay`."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import perc
from perc.hardware import accelerator
from perc.model_shapes import model
from perc.policies.registry import registry
from perc.roofline import roofline
from perc.serving.arrivals import poisson
from perc.serving.settings import Server
from perc.serving.simulate import simulate
from perc.traces.build import Columns, build_trace

COST = roofline(model("llama-3.1-8b"), accelerator("h100"))


def uniform(n: int, prompt: int, answer: int, *, gap_s: float = 1e6):
    """Requests that share nothing."""
    blocks = -(-prompt // 16)
    columns = Columns(
        arrival_s=np.arange(n) * gap_s,
        input_tokens=np.full(n, prompt),
        output_tokens=np.full(n, answer),
        ids=np.arange(n * blocks),
        lengths=np.full(n, blocks),
    )
    return build_trace(columns, block_tokens=16, source="uniform")


def test_alone_a_request_takes_what_the_roofline_says():
    found = simulate(uniform(3, 1000, 50), registry["lru"](), Server(10**4), COST)
    ttft = float(COST.prefill_s(1000))
    decode = sum(float(COST.decode_s(1, 1000 + j)) for j in range(1, 50))
    assert found.first_token_s - found.arrived_s == pytest.approx(ttft, rel=1e-7)
    assert found.ended_s - found.first_token_s == pytest.approx(decode, rel=1e-7)


def test_a_batch_decodes_at_the_rooflines_speed():
    """Sixty-four answers of equal length, started together."""
    trace = uniform(64, 256, 400, gap_s=0.0)
    server = Server(10**4, max_running=64, token_budget=64 * 256)
    found = simulate(trace, registry["lru"](), server, COST)
    together = sum(float(COST.decode_s(64, 256 + j)) for j in range(1, 400))
    assert found.ended_s - found.first_token_s == pytest.approx(together, rel=1e-7)


def test_a_server_that_falls_behind_is_followed_to_its_end():
    trace = uniform(200, 4096, 40, gap_s=0.05)
    server = Server(10**6, max_running=2)
    found = simulate(trace, registry["lru"](), server, COST, samples=64)
    time_s, queued = found.series[:, 0], found.series[:, 2]
    end_s = found.ended_s.max()
    assert end_s > 3 * 1.25 * trace.arrival_s[-1]  # far beyond the even points
    assert len(time_s) > 50 and np.all(np.diff(time_s) > 0)
    assert time_s[-1] == pytest.approx(end_s, rel=0.05)
    assert np.diff(time_s).max() < 0.3 * end_s
    late = time_s > trace.arrival_s[-1] + 1.0
    assert np.all(np.diff(queued[late]) <= 0) and queued[-1] == 0


def test_chunks_read_the_weights_again():
    trace = uniform(1, 4096, 1)
    whole, cut = (
        simulate(
            trace, registry["lru"](), Server(10**4, max_running=1, token_budget=b), COST
        ).first_token_s[0]
        for b in (4096, 16)
    )
    least = 256 * float(COST.weight_bytes) / float(COST.bytes_per_s)
    assert cut > least > whole


def test_waiting_time_is_that_of_m_d_1():
    """One server, equal service, Poisson arrivals: Pollaczek and Khinchine.

    W = rho * service / (2 (1 - rho)); the mean of 4,000 waits at half load is that
    within 6 %, for these seeds together.
    """
    trace = uniform(4000, 512, 1)
    service, rho = float(COST.prefill_s(512)), 0.5
    server = Server(64, max_running=1, token_budget=512)
    waited = []
    for seed in range(3):
        traffic = poisson(trace, rho / service, seed=seed)
        found = simulate(traffic, registry["lru"](), server, COST)
        waited.append((found.admitted_s - found.arrived_s).mean())
        assert found.totals["busy_s"] == pytest.approx(4000 * service, rel=1e-6)
    assert np.mean(waited) == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.06)


def test_little_s_law():
    """Mean requests in service = arrival rate x mean time in service, exactly."""
    chat = perc.make("chat", requests=200)
    found = simulate(chat, registry["lru"](), Server(4000), COST)
    inside = (found.ended_s - found.admitted_s).sum()
    assert found.totals["running_s"] == pytest.approx(inside, rel=1e-9)


@pytest.mark.parametrize(
    "name", ["lru", "fifo", "filo", "perc_decay", "priority", "lfu"]
)
@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
def test_hits_without_overlap_are_those_of_replay(name, share):
    """So slow that nobody meets anybody, answers of one token: a plain cache."""
    chat = perc.make("chat", requests=300, seed=1)
    # Decided at the trace's own times; served far apart.
    order = perc.ranks(chat, perc.scores(registry[name](), chat))
    slow = dataclasses.replace(
        chat,
        arrival_s=np.arange(chat.n_requests) * 1e4,
        output_tokens=np.ones(chat.n_requests, np.int32),
    )
    hits_equal_replay(slow, order, name, int(chat.n_blocks * share))


def hits_equal_replay(trace, order, name, size):
    from perc.serving.outputs import without_outputs
    from perc.serving.simulate import simulate_order

    capacity = max(size, int(-(-trace.input_tokens.max() // trace.block_tokens)))
    refresh = registry[name]().refresh
    found = simulate_order(
        without_outputs(trace), order, Server(capacity), COST, refresh=refresh
    )
    plain = perc.replay(trace, order, [capacity], refresh=refresh)
    assert np.array_equal(found.hit_blocks, plain.blocks[0])
    assert found.totals["evictions"] == plain.evictions[0]


@pytest.mark.real_trace
@pytest.mark.parametrize("name", ["lru", "perc_decay"])
def test_hits_on_mooncake_are_those_of_replay(name):
    folder = os.environ.get("PERC_TRACES")
    if not folder:
        pytest.skip("PERC_TRACES is not set")
    trace = perc.load(Path(folder) / "mooncake_conversation_trace.jsonl.gz")
    order = perc.ranks(trace, perc.scores(registry[name](), trace))
    slow = dataclasses.replace(
        trace,
        arrival_s=np.arange(trace.n_requests) * 1e4,
        output_tokens=np.ones(trace.n_requests, np.int32),
    )
    for size in (1000, 9139):
        hits_equal_replay(slow, order, name, size)


def test_runs_are_bit_identical():
    chat = perc.make("chat", requests=200)
    a, b = (simulate(chat, registry["perc_decay"](), Server(900), COST) for _ in "ab")
    for field in dataclasses.fields(a):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            assert x.tobytes() == y.tobytes(), field.name
    assert a.totals == b.totals
