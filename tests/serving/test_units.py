"""The parts by themselves: heap, clock, metrics, laws, and the loop's copies."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.policies.registry import registry
from perc.serving import heap
from perc.serving.arrivals import gaps_s, next_turns
from perc.serving.engine import serve
from perc.serving.metrics import (
    Limits,
    by_group,
    intervals,
    itl,
    latencies,
    meets,
    recompute_s,
    summary,
)
from perc.serving.offload import LowerTier, Offload
from perc.serving.outputs import without_outputs
from perc.serving.pricing import changing_order
from perc.serving.settings import Retention, Server, rules
from perc.serving.simulate import simulate
from perc.serving.state import columns, start
from perc.serving.timing import Line, span_s, steps_until
from perc.traces.build import Columns, build_trace
from tests.serving.common import machine
from tests.test_replay_hlo import state_copies


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 2.0, np.inf]))))
def test_heap_is_a_table_of_minima(moves):
    with jax.enable_x64(True):
        tree, table = heap.build(np.full(5, np.inf)), [np.inf] * 5
        for item, key in moves:
            tree = heap.put(tree, jnp.int32(item), jnp.float64(key))
            table[item] = key
            assert float(tree.least) == min(table)
            if min(table) < np.inf:
                assert int(heap.first(tree)) == table.index(min(table))


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1e-4, 1.0),
    st.sampled_from([0.0, 1e-12, 1e-7, 1e-3]),
    st.floats(0.0, 300.0),
)
def test_steps_until_is_the_fewest(begin, rise, wait):
    with jax.enable_x64(True):
        line = Line(jnp.float64(begin), jnp.float64(rise))
        steps = steps_until(line, jnp.float64(wait))
        assert float(span_s(line, steps)) >= wait
        assert steps == 1 or float(span_s(line, steps - 1)) < wait


@pytest.fixture(scope="module")
def run():
    """A trace, what became of it, and the price of a step."""
    trace = perc.make("chat", requests=120, seed=2)
    cost = machine()._replace(bytes_per_s=1e6, flops_per_s=1e8)
    return trace, simulate(trace, registry["lru"](), Server(900), cost), cost


def test_metrics_are_those_of_the_definitions(run):
    trace, served, cost = run
    found = latencies(served)
    i = int(np.argmax(served.made_tokens))
    e2e = served.ended_s[i] - served.arrived_s[i]
    ttft = served.first_token_s[i] - served.arrived_s[i]
    expected = (e2e - ttft) / (served.made_tokens[i] - 1)
    assert found["tpot_s"][i] == pytest.approx(expected)
    figures = summary(trace, served, cost)
    assert figures["ttft_s"].p99 == pytest.approx(np.percentile(found["ttft_s"], 99))
    assert figures["goodput_per_s"] == figures["throughput_per_s"]
    pooled = itl(served)
    assert pooled.n == (served.made_tokens - 1).sum()
    assert pooled.mean == pytest.approx(served.totals["itl_s"] / pooled.n)


def test_goodput_wants_every_limit(run):
    trace, served, cost = run
    found = latencies(served)
    half = {name: np.nanmedian(values) for name, values in found.items()}
    by_ttft = meets(served, Limits(ttft_s=half["ttft_s"]))
    by_e2e = meets(served, Limits(e2e_s=half["e2e_s"]))
    both = meets(served, Limits(ttft_s=half["ttft_s"], e2e_s=half["e2e_s"]))
    assert np.array_equal(both, by_ttft & by_e2e)
    assert 0 < both.sum() < min(by_ttft.sum(), by_e2e.sum())
    assert not meets(served, Limits(tpot_s=0.0))[served.made_tokens > 1].any()


def test_recompute_is_nothing_where_everything_stays(run):
    trace, served, cost = run
    small = recompute_s(served, cost)
    slow = dataclasses.replace(trace, arrival_s=np.arange(trace.n_requests) * 1e7)
    roomy = simulate(slow, registry["lru"](), Server(10**6), cost)
    assert small.sum() > 0
    assert not recompute_s(roomy, cost).any()


def test_recompute_is_of_what_the_run_had_computed():
    """Not of what a rejected request asks for, nor of what another is computing."""
    alike = [0, 1, 2, 3]
    columns = Columns(
        arrival_s=np.array([0.0, 10.0, 10.0, 1e4, 2e4, 2e4]),
        input_tokens=np.full(6, 16),
        output_tokens=np.array([100, 1, 1, 1, 1, 1]),  # the first can never fit
        ids=np.array([*alike, *alike, *alike, 4, 5, 6, 7, *alike, *alike]),
        lengths=np.full(6, 4),
    )
    trace = build_trace(columns, block_tokens=4, source="alike")
    cost = machine()
    served = simulate(trace, registry["lru"](), Server(5, max_running=2), cost)
    assert served.status.tolist() == [2, 1, 1, 1, 1, 1]
    assert served.known_tokens.tolist() == [0, 0, 0, 0, 15, 15]
    assert served.cached_tokens[4:].max() < 15
    twice = cost.prefill_flops(15, served.cached_tokens[4:]) / cost.flops_per_s
    assert recompute_s(served, cost) == pytest.approx([0, 0, 0, 0, *twice])


def test_intervals_hold_the_figure(run):
    trace, served, cost = run
    figures = summary(trace, served, cost)
    sure = intervals(trace, served, cost, seed=1)
    for name, value in (
        ("ttft_p50_s", figures["ttft_s"].p50),
        ("goodput_per_s", figures["goodput_per_s"]),
        ("recompute_s", figures["recompute_s"]),
    ):
        low, high = sure[name]
        assert low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9), name
    assert sure == intervals(trace, served, cost, seed=1)


def test_groups_share_the_requests_out(run):
    trace, served, _ = run
    groups = by_group(trace, served, "turn")
    assert sum(group.n for group in groups.values()) == trace.n_requests


def test_gaps_leave_service_out():
    chat = perc.make("chat", requests=200)
    cost = machine()._replace(bytes_per_s=1e9, flops_per_s=1e12)
    follower, gap = next_turns(chat), gaps_s(chat, cost)
    r = int(np.flatnonzero(follower >= 0)[0])
    apart = chat.arrival_s[follower[r]] - chat.arrival_s[r]
    assert 0 < gap[r] < apart
    assert np.isinf(gap[follower < 0]).all()


@pytest.mark.parametrize(
    "tiers, shields, changing",
    [
        (0, False, None),
        (2, False, None),
        (0, True, None),
        (0, False, "perc"),
        (0, False, "workload_aware"),
    ],
)
def test_the_loop_updates_in_place(tiers, shields, changing):
    """No copy of an array that grows with the trace, in the compiled program."""
    trace = perc.make("chat", requests=300)
    below = tuple(LowerTier(str(t), 100, 0.1) for t in range(tiers))
    server = Server(500, max_running=4, offload=Offload(below))
    none = np.full(trace.n_requests, -1, np.int32)
    if shields:
        server = Server(500, max_running=4, closed_loop=True, retention=Retention())
        none = next_turns(trace)
    order = perc.ranks(trace, np.zeros(trace.n_accesses, np.float32))
    lines = None
    if changing:
        order, found = changing_order(registry[changing](), trace)
        lines = found.lines
    with jax.enable_x64(True):
        c = columns(
            trace,
            order,
            without_outputs(trace).prompt_stop,
            server,
            none,
            np.full(trace.n_requests, np.inf),
            machine(),
            refresh=True,
            lines=lines,
        )
        begin = start(
            trace,
            none,
            n_slots=4,
            samples=8,
            tiers=tiers,
            retention=shields,
            lines=lines,
        )
        how = rules(server, machine(), until_s=np.inf, sample_s=1.0)
        program = serve.lower(c, how, begin, trace.block_tokens)
        text = program.compile().as_text()
    assert text is not None
    large = {x.shape[0] for x in jax.tree.leaves(begin) if x.ndim and x.shape[0] > 100}
    large |= {c.accesses.block.shape[0], c.requests.shape[0]}
    loops = text[: text.index("ENTRY ")]  # what is copied outside is copied once
    assert state_copies(loops, large) == []
    assert "xla_cpu_small_call" in text
