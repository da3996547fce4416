"""Retention in the loop: equal to the plain server, and what it is for."""

import dataclasses
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.cli import main
from perc.errors import InputError
from perc.hardware import accelerator
from perc.model_shapes import model
from perc.policies.lru import lru
from perc.roofline import roofline
from perc.serving.laws import check_laws
from perc.serving.outputs import without_outputs
from perc.serving.settings import Retention, Server
from perc.serving.simulate import simulate_order, simulate_servers
from perc.traces import save
from perc.traces.build import Columns, build_trace
from perc.tune_search import first_requests
from tests.serving.common import machine, named
from tests.serving.test_oracle import compare
from tests.serving.test_tiers import offloads


@st.composite
def programs(draw):
    """Three sessions whose turns mostly grow; two of them begin alike."""
    turns = draw(st.lists(st.integers(0, 2), min_size=1, max_size=18))
    n = len(turns)
    rows, last = [], {0: [0], 1: [0], 2: [1]}
    for i, session in enumerate(turns):
        grown = last[session] + [10 * i + k for k in range(draw(st.integers(0, 2)))]
        last[session] = grown[: draw(st.sampled_from([6, 6, 2]))]
        rows.append(grown)
    gaps = draw(st.lists(st.sampled_from([0.1, 1.0, 3.0, 9.0]), min_size=n, max_size=n))
    answers = st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=n, max_size=n)
    columns = Columns(
        arrival_s=np.cumsum(np.array(gaps)) + 0.00731 * np.arange(n),
        input_tokens=np.array([4 * len(row) for row in rows]),
        output_tokens=np.array(draw(answers)),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=np.array([len(row) for row in rows], np.int64),
        session=turns,
        kind=draw(
            st.lists(st.sampled_from(["tool_use", "user"]), min_size=n, max_size=n)
        ),
    )
    return build_trace(columns, block_tokens=4, source="programs", chained=False)


@st.composite
def busy_programs(draw):
    """Sessions in turn, over more blocks than fit: shields are met, lapse and break."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, sessions = draw(st.integers(12, 40)), draw(st.integers(2, 5))
    session = rng.integers(0, sessions, n)
    last: dict[int, list[int]] = {s: [s % 2] for s in range(sessions)}
    rows = []
    for i, s in enumerate(session):
        last[s] = (last[s] + [10 * i + k for k in range(rng.integers(0, 3))])[:5]
        rows.append(last[s])
    columns = Columns(
        arrival_s=rng.exponential(draw(st.sampled_from([0.1, 0.7, 3.0])), n).cumsum(),
        input_tokens=np.array([4 * len(row) for row in rows]),
        output_tokens=rng.choice([0, 1, 2, 5], n),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=np.array([len(row) for row in rows], np.int64),
        session=session,
        kind=[["tool_use", "user"][k] for k in rng.integers(0, 2, n)],
    )
    return build_trace(columns, block_tokens=4, source="programs", chained=False)


@st.composite
def pressed(draw):
    """Servers of little memory that shield from the first turn on."""
    held = Retention(1000, draw(st.sampled_from([0.7, 5.0, 1e6])))
    server = draw(servers())
    return dataclasses.replace(
        server,
        capacity_blocks=draw(st.sampled_from([7, 9, 12])),
        retention=draw(st.sampled_from([held, server.retention])),
        max_queue=None,
    )


@st.composite
def servers(draw):
    running = draw(st.sampled_from([1, 2, 4]))
    return Server(
        draw(st.sampled_from([3, 6, 8, 12, 40])),
        token_budget=draw(st.sampled_from([running, 6, 100])) + running,
        max_running=running,
        max_queue=draw(st.sampled_from([None, None, 0, 2])),
        order=draw(st.sampled_from(["fcfs", "program", "deadline"])),
        batching=draw(st.sampled_from(["max_throughput", "low_latency", "static"])),
        chunked=draw(st.booleans()),
        closed_loop=True,
        cache_outputs=draw(st.booleans()),
        retention=Retention(
            threshold=draw(st.sampled_from([0, 1, 3])),
            default_ttl_s=draw(st.sampled_from([0.0, 0.7, 5.0, 1e6])),
            most_s=draw(st.sampled_from([None, None, 2.0])),
        ),
    )


@settings(deadline=None, max_examples=150)
@given(programs(), servers(), st.booleans(), st.data())
def test_engine_equals_oracle(trace, server, refresh, data):
    equals_oracle(trace, server, refresh, data)


@settings(deadline=None, max_examples=100)
@given(busy_programs(), pressed(), offloads(), st.booleans(), st.data())
def test_with_tiers_too(trace, server, offload, refresh, data):
    server = dataclasses.replace(server, offload=offload)
    equals_oracle(trace, server, refresh, data)


@settings(deadline=None, max_examples=60)
@given(busy_programs(), pressed(), st.booleans(), st.data())
def test_under_pressure(trace, server, refresh, data):
    equals_oracle(trace, server, refresh, data)


def equals_oracle(trace, server, refresh, data):
    faster = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    trace = dataclasses.replace(
        trace,
        arrival_s=trace.arrival_s * faster,
        deadline_s=np.where(np.arange(trace.n_requests) % 3, np.inf, 2.0),
    )
    until_s = data.draw(st.sampled_from([np.inf, np.inf, 1.7]))
    n_accesses = named(trace, server).trace.n_accesses
    order = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(n_accesses)
    if data.draw(st.booleans()):
        order = np.arange(n_accesses)
    compare(
        trace,
        order.astype(np.int32),
        server,
        machine(),
        refresh=refresh,
        until_s=until_s,
    )


def agents(seed: int = 0, sessions: int = 6, turns: int = 12):
    """Sessions that take turns; tools that answer at once, and users that do not."""
    rng = np.random.default_rng(seed)
    rows, arrival, session, kind = [], [], [], []
    for s in range(sessions):
        at, row = float(rng.uniform(0, 30)), list(range(10))
        for t in range(turns):
            row = [*row, 1000 * s + t + 10]
            user = t % 4 == 3
            rows.append(row)
            arrival.append(at)
            session.append(s)
            kind.append("user" if user else "tool_use")
            n = 4 * len(row)
            alone_s = (100 * n + 2.5 * n * n) / 5003 + 0.4
            at += alone_s + float(rng.exponential(90.0 if user else 0.5))
    order = np.argsort(arrival, kind="stable")
    rows = [rows[i] for i in order]
    columns = Columns(
        arrival_s=np.array(arrival)[order] - min(arrival),
        input_tokens=np.array([4 * len(row) for row in rows]),
        output_tokens=np.full(len(rows), 3),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=np.array([len(row) for row in rows], np.int64),
        session=np.array(session)[order],
        kind=[kind[i] for i in order],
    )
    return build_trace(columns, block_tokens=4, source="agents", chained=False)


PLAIN = Server(36, token_budget=64, max_running=4, closed_loop=True)


def run(trace, retention, **options):
    server = dataclasses.replace(PLAIN, retention=retention, **options)
    chosen = named(trace, server)
    order = np.arange(chosen.trace.n_accesses, dtype=np.int32)
    served = simulate_order(chosen, order, server, machine())
    check_laws(served)
    return served


def test_a_shield_of_no_time_changes_nothing():
    trace = agents()
    plain, never = run(trace, None), run(trace, Retention(most_s=0.0))
    assert never.retained is not None and never.retained.shields == 0
    assert plain.ended_s.tolist() == never.ended_s.tolist()
    assert plain.hit_blocks.tolist() == never.hit_blocks.tolist()
    assert plain.totals["evictions"] == never.totals["evictions"]


def test_options_change_something():
    trace = agents()
    plain = run(trace, Retention(threshold=5, default_ttl_s=4.0))
    for other in (
        Retention(threshold=50, default_ttl_s=4.0),
        Retention(threshold=5, default_ttl_s=30.0),
        Retention(threshold=5, default_ttl_s=4.0, most_s=1.0),
    ):
        found = run(trace, other)
        assert found.retained is not None and plain.retained is not None
        assert found.retained.ttl_s.tolist() != plain.retained.ttl_s.tolist()
    crowd, one = agents(sessions=14), {"max_running": 1}
    by_program = run(crowd, Retention(5, 4.0), order="program", **one)
    fcfs = run(crowd, Retention(5, 4.0), **one)
    unshielded = run(crowd, None, order="program", **one)
    assert by_program.ended_s.tolist() != fcfs.ended_s.tolist()
    assert by_program.ended_s.tolist() != unshielded.ended_s.tolist()


def test_tools_are_told_apart():
    """Tools answer in 2 s, users in a minute: shields learn it."""
    trace = agents(sessions=10)
    found = run(trace, Retention(threshold=5), capacity_blocks=120).retained
    assert found is not None
    late = trace.arrival_s > np.median(trace.arrival_s)
    tool = trace.kind == trace.kinds.index("tool_use")
    assert (found.ttl_s[late & tool] > 0).sum() > 10
    assert found.ttl_s[late & ~tool].max() == 0


def test_everything_shielded_is_no_deadlock():
    """Shields that never end, in a memory that holds one request."""
    trace = agents()
    found = run(
        trace, Retention(default_ttl_s=1e9, threshold=10**6), capacity_blocks=24
    )
    assert (found.status == 1).all()
    assert found.retained is not None
    assert found.retained.released > 0
    assert found.retained.expired == 0


def test_shields_add_up():
    trace = agents()
    for retention in (Retention(5, 4.0), Retention(default_ttl_s=50.0)):
        found = run(trace, retention).retained
        assert found is not None
        ended = found.in_time + found.expired + found.released + found.refused
        assert found.shields == ended  # all programs are over
        assert found.blocks == 0
        assert found.in_time + found.late == trace.n_requests - 6


def test_reruns_are_equal_to_the_bit():
    trace = agents()
    first, second = (run(trace, Retention(5, 4.0)) for _ in range(2))
    assert first.ended_s.tolist() == second.ended_s.tolist()
    assert first.totals == second.totals


def test_many_servers_in_one_call():
    trace = agents()
    each = [
        dataclasses.replace(PLAIN, retention=Retention(5, ttl)) for ttl in (0.0, 9.0)
    ]
    chosen = named(trace, PLAIN)
    order = np.arange(chosen.trace.n_accesses, dtype=np.int32)
    together = simulate_servers(chosen, order, each, machine())
    for server, found in zip(each, together, strict=True):
        alone = simulate_order(chosen, order, server, machine())
        assert alone.ended_s.tolist() == found.ended_s.tolist()
        assert alone.retained is not None and found.retained is not None
        assert alone.retained.shields == found.retained.shields
    with pytest.raises(InputError, match="retention"):
        simulate_servers(chosen, order, [PLAIN, *each], machine())


def test_servers_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="closed_loop"):
        Server(30, retention=Retention())
    with pytest.raises(InputError, match="threshold"):
        Retention(threshold=-1)
    with pytest.raises(InputError, match="default_ttl_s"):
        Retention(default_ttl_s=-1.0)
    with pytest.raises(InputError, match="most_s"):
        Retention(most_s=-1.0)


def command(capsys, monkeypatch, *words: str) -> tuple[int, str]:
    """Exit code and all that was said."""
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))
    code = 0
    try:
        main(["simulate", *words])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


def test_command(capsys, monkeypatch, tmp_path):
    """The synthetic agents, from the command line."""
    path = str(tmp_path / "agent.parquet")
    save(perc.make("agent", requests=150, sessions_per_h=600.0), path)
    common = (path, "--policies", "lru", "--closed-loop")
    shields = ("--retain", "--retain-default", "20", "--retain-threshold", "10")
    code, said = command(capsys, monkeypatch, *common, *shields)
    assert code == 0, said
    assert "turns left a shield" in said
    code, said = command(capsys, monkeypatch, *common, "--retain-most", "3")
    assert code == 2 and "--retain" in said
    code, said = command(capsys, monkeypatch, path, "--policies", "lru", "--retain")
    assert code == 2 and "closed_loop" in said


@pytest.mark.real_trace
def test_agents_of_claude_code(traces_folder):
    """Recorded sessions whose next turn comes a recorded gap after the last ended."""
    path = traces_folder / "claude_code_v6_interleaved24h_b512.jsonl.xz"
    trace = first_requests(perc.load(path), 1500)
    cost = roofline(model("llama-3.1-8b"), accelerator("h100"), tp=4)
    order = perc.ranks(trace, perc.scores(lru(), trace))
    always = Retention(threshold=10**6, default_ttl_s=60.0)
    server = Server(1500, closed_loop=True, retention=always)
    served = simulate_order(without_outputs(trace), order, server, cost)
    check_laws(served)
    assert (served.status == 1).all()
    found, follows = served.retained, 1500 - len(np.unique(trace.session))
    assert found is not None
    assert found.shields == found.in_time + found.late == follows
    assert found.in_time > 100
