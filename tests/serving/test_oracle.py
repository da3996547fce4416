"""The compiled loop equals a plain server that takes one step after the other."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.serving.laws import check_laws
from perc.serving.settings import Server
from perc.serving.simulate import simulate_order
from perc.serving.state import SERIES
from perc.traces.build import Columns, build_trace
from tests.serving.common import machine, named, serve_in_python
from tests.strategies import traces

WHOLE = {
    "status": "status",
    "hit": "hit_blocks",
    "cached_tokens": "cached_tokens",
    "known_tokens": "known_tokens",
    "made": "made_tokens",
    "preemptions": "preemptions",
    "again": "again_tokens",
    "reread": "reread_blocks",
}
SECONDS = {
    "arrived": "arrived_s",
    "admitted": "admitted_s",
    "first_token": "first_token_s",
    "ended": "ended_s",
}


def compare(trace, order, server, cost, *, changing=None, prices=None, **options):
    """Asserts that both servers did the same to every request, and overall."""
    served = simulate_order(
        named(trace, server), order, server, cost, changing=changing, **options
    )
    plain, jobs = serve_in_python(trace, order, server, cost, prices=prices, **options)
    check_laws(served)
    for mine, theirs in WHOLE.items():
        assert getattr(served, theirs).tolist() == [getattr(j, mine) for j in jobs], (
            mine
        )
    for mine, theirs in SECONDS.items():
        expected = np.array([getattr(job, mine) for job in jobs])
        assert getattr(served, theirs) == pytest.approx(
            expected, rel=1e-9, abs=1e-9, nan_ok=True
        ), mine
    totals = served.totals
    assert totals["steps"] == plain.steps
    assert totals["evictions"] == plain.evictions
    assert totals["size"] == len(plain.cached)
    assert totals["itls"] == len(plain.gaps) == served.itl_counts.sum()
    assert totals["itl_s"] == pytest.approx(sum(plain.gaps), rel=1e-9)
    assert totals["busy_s"] == pytest.approx(plain.busy_s, rel=1e-9)
    assert totals["compute_s"] == pytest.approx(plain.compute_s, rel=1e-9)
    assert totals["block_s"] == pytest.approx(plain.block_s, rel=1e-9)
    assert totals["prompt_tokens"] == plain.computed
    compare_series(served.series, plain)
    if plain.below is not None:
        compare_tiers(served.below, plain.below, jobs)
    if plain.shields is not None:
        compare_shields(served.retained, plain, jobs)
    return served


def compare_series(series, plain):
    """Asserts that each point is a state after a step."""
    times = np.array(list(plain.in_use))
    for time_s, in_use in series[:, [SERIES.index("time_s"), SERIES.index("in_use")]]:
        nearest = times[abs(times - time_s).argmin()]
        assert time_s == pytest.approx(nearest, rel=1e-9, abs=1e-9)
        assert in_use in plain.in_use[nearest]


def compare_shields(mine, plain, jobs):
    """Asserts that the same prefixes were shielded, for as long, and ended alike."""
    shields = plain.shields
    for name in ("shields", "in_time", "late", "expired", "released", "refused"):
        assert getattr(mine, name) == getattr(shields, name), name
    ttl_s = np.array([job.ttl_s for job in jobs])
    assert mine.ttl_s == pytest.approx(ttl_s, rel=1e-9, abs=1e-9)
    held = {block for blocks in shields.blocks.values() for block in blocks}
    assert mine.blocks == len(held & set(plain.cached))


def compare_tiers(mine, plain, jobs):
    """Asserts that the same blocks moved, over links that were as busy."""
    for name in ("stored", "gone", "taken", "read", "hits"):
        expected = [getattr(tier, name) for tier in plain.tiers]
        assert getattr(mine, name).tolist() == expected, name
    assert mine.resident.tolist() == [len(tier.blocks) for tier in plain.tiers]
    assert mine.declined == plain.declined
    assert mine.loaded_blocks.tolist() == [job.loaded for job in jobs]
    for name in ("read_s", "write_s"):
        expected = [getattr(tier, name) for tier in plain.tiers]
        assert getattr(mine, name) == pytest.approx(expected, rel=1e-9), name
    assert mine.stall_s == pytest.approx(plain.stall_s, rel=1e-9, abs=1e-9)
    waited = np.array([job.waited for job in jobs])
    assert mine.wait_s == pytest.approx(waited, rel=1e-9, abs=1e-9)


@st.composite
def servers(draw):
    running = draw(st.sampled_from([1, 2, 4]))
    return Server(
        draw(st.sampled_from([3, 6, 8, 12, 40])),
        token_budget=draw(st.sampled_from([running, 6, 16, 100])) + running,
        max_running=running,
        max_queue=draw(st.sampled_from([None, None, 0, 2])),
        order=draw(st.sampled_from(["fcfs", "priority", "deadline", "program"])),
        batching=draw(
            st.sampled_from(["max_throughput", "low_latency", "adaptive", "static"])
        ),
        chunked=draw(st.booleans()),
        closed_loop=draw(st.booleans()),
        cache_outputs=draw(st.booleans()),
        promote_within_s=draw(st.sampled_from([0.0, 1.0, 3.0])),
        adaptive_queue=draw(st.sampled_from([0, 2])),
        adaptive_latency_s=draw(st.sampled_from([0.0, 0.15, 10.0])),
    )


@st.composite
def runs(draw):
    """A trace with answers and deadlines, a server, the price of a step, an end."""
    trace, server = draw(traces().filter(lambda t: t.n_requests)), draw(servers())
    n = trace.n_requests

    def draws(values):
        return np.array(draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)))

    arrival_s = trace.arrival_s * draw(st.sampled_from([0.013, 1.0]))
    if server.closed_loop:  # end + gap may miss an equal arrival by a rounding error
        arrival_s = arrival_s + 0.00731 * np.arange(n)
    trace = dataclasses.replace(
        trace,
        arrival_s=arrival_s,
        output_tokens=draws([0, 1, 2, 5, 9, 30]).astype(np.int32),
        deadline_s=draws([np.inf, 0.5, 2.0, 40.0]),
    )
    cost = machine(
        window=draw(st.sampled_from([np.inf, 11.0])),
        overhead_s=draw(st.sampled_from([0.0, 0.01])),
    )
    return trace, server, cost, draw(st.sampled_from([np.inf, np.inf, 1.7]))


@settings(deadline=None, max_examples=120)
@given(runs(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_engine_equals_oracle(case, refresh, sorted_ranks, seed):
    trace, server, cost, until_s = case
    n_accesses = named(trace, server).trace.n_accesses
    order = np.random.default_rng(seed).permutation(n_accesses)
    if sorted_ranks:
        order = np.arange(n_accesses)
    compare(
        trace, order.astype(np.int32), server, cost, refresh=refresh, until_s=until_s
    )


def of_tokens(arrival_s, prompt, answer):
    """Requests that share nothing, in blocks of 4 tokens."""
    lengths = -(-np.array(prompt) // 4)
    columns = Columns(
        arrival_s=np.array(arrival_s),
        input_tokens=np.array(prompt),
        output_tokens=np.array(answer),
        ids=np.arange(lengths.sum()),
        lengths=lengths,
    )
    return build_trace(columns, block_tokens=4, source="of tokens")


def in_order(trace, server):
    return compare(trace, np.arange(trace.n_accesses), server, machine())


def test_a_span_counts_the_blocks_that_grow_in_it():
    """One answer alone: all of its steps are one span, and it grows to 26 blocks."""
    served = in_order(of_tokens([0.0], [4], [101]), Server(26, max_running=1))
    assert served.totals["events"] < 5
    mean = served.totals["block_s"] / served.totals["busy_s"]
    assert 12 < mean < 16


def test_a_promotion_while_running_outlives_a_preemption():
    """Two run when they are promoted, and the second gives way to the first later.

    The third has a higher priority, and still waits until the second goes on.
    """
    trace = dataclasses.replace(
        of_tokens([0.0, 0.0, 0.1], [4, 4, 4], [17, 29, 9]),
        priority=np.array([0, 0, 1], np.int32),
        deadline_s=np.array([1.2, 1.2, np.inf]),
    )
    served = in_order(trace, Server(8, max_running=2, order="deadline"))
    assert served.preemptions.tolist() == [0, 1, 1]
    assert served.admitted_s[2] >= served.ended_s[0]


def test_a_static_batch_takes_all_that_wait():
    """More steps than one prefill it, and who comes meanwhile waits for the next."""
    trace = of_tokens([0.0] * 4 + [0.3, 0.3], [40] * 6, [2, 9, 30, 3, 4, 4])
    server = Server(200, max_running=5, token_budget=45, batching="static")
    served = in_order(trace, server)
    first, later = served.admitted_s[:4], served.admitted_s[4:]
    assert len(set(first)) > 1 and first.max() < served.ended_s[:4].max()
    assert (later >= served.ended_s[:4].max()).all()


def test_a_static_batch_waits_for_those_that_have_not_begun():
    """The first ends with its prefill, while the second of its batch still waits."""
    trace = of_tokens([0.0, 0.0, 0.01], [4, 4, 4], [1, 9, 1])
    server = Server(200, max_running=4, token_budget=4, batching="static")
    served = in_order(trace, server)
    assert served.ended_s[0] <= served.admitted_s[1]
    assert served.admitted_s[2] >= served.ended_s[1]


def test_an_urgent_request_goes_before_the_highest_priority():
    """One runs; of the two that wait, the second has a deadline that comes first."""
    trace = dataclasses.replace(
        of_tokens([0.0, 0.01, 0.02], [4, 4, 4], [9, 9, 9]),
        priority=np.array([0, 1, 0], np.int32),
        deadline_s=np.array([np.inf, np.inf, 1.0]),
    )
    served = in_order(trace, Server(40, max_running=1, order="deadline"))
    assert served.admitted_s[2] < served.admitted_s[1]


def test_a_static_batch_ends_where_memory_does():
    """Two of four prompts fit: the others are the next batch, though room comes."""
    trace = of_tokens([0.0] * 4, [40] * 4, [2, 40, 2, 2])
    server = Server(30, max_running=4, token_budget=45, batching="static")
    served = in_order(trace, server)
    assert served.admitted_s[1] < served.ended_s[0] < served.ended_s[1]
    assert (served.admitted_s[2:] >= served.ended_s[1]).all()
