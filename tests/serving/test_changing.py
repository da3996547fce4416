"""Policies that price blocks as they idle, in time: against oracle and replay."""

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.guard import guarded
from perc.online import replay_online
from perc.online_aged import one_peak
from perc.policies.learned import learned
from perc.policies.registry import registry
from perc.reuse import age_bin
from perc.serving.engine import serve_each
from perc.serving.free import Table
from perc.serving.laws import check_laws
from perc.serving.pricing import Changing, changing_order, line_up
from perc.serving.settings import Server
from perc.serving.simulate import simulate
from perc.shapes import pad, parents
from perc.types import OnlinePolicy, Rescored
from tests.oracles.serving_lines import Prices
from tests.policies.test_learned import network
from tests.serving.common import machine, named
from tests.serving.test_oracle import compare, runs
from tests.serving.test_retained import busy_programs, pressed
from tests.serving.test_tiers import reusing
from tests.serving.test_tiers import servers as tiered

COST = machine()._replace(bytes_per_s=1e6, flops_per_s=1e8)
INSTANT = machine()._replace(bytes_per_s=1e40, flops_per_s=1e40)
UNGUARDED = SimpleNamespace(rule=None)


def plain_prices(trace, number, lines, price):
    """The oracle's prices, with lines written out as rows."""
    rows = {int(n): tuple(map(int, lines.by_number[n][1:])) for n in number}
    above = np.asarray(lines.parent)
    parent = {b: int(above[b]) for b in range(trace.n_blocks) if above[b] < len(above)}
    return Prices(rows, parent, price)


@settings(deadline=None, max_examples=60)
@given(runs(), st.integers(0, 2**32 - 1), st.booleans())
def test_tables_equal_the_oracle(case, seed, closed):
    equals_the_oracle(case, seed, closed)


@settings(deadline=None, max_examples=60)
@given(reusing(), tiered(), st.integers(0, 2**32 - 1))
def test_tiers_equal_the_oracle(trace, server, seed):
    equals_the_oracle((trace, server, machine(), np.inf), seed, closed=True)


@settings(deadline=None, max_examples=60)
@given(busy_programs(), pressed(), st.integers(0, 2**32 - 1))
def test_retention_equals_the_oracle(trace, server, seed):
    equals_the_oracle((trace, server, machine(), np.inf), seed, closed=True)


def equals_the_oracle(case, seed, closed):
    trace, server, cost, until_s = case
    full, rng = named(trace, server).trace, np.random.default_rng(seed)
    if not full.n_accesses:
        return
    cls = rng.integers(0, 3, full.n_accesses).astype(np.int32)
    worth = np.asarray(one_peak(jnp.float32(rng.integers(0, 6, (2, 3, 24)))))
    epoch = rng.integers(0, 2, trace.n_requests).astype(np.int32)
    prices = Table(jnp.asarray(worth), jnp.asarray(pad(epoch, 0)))
    above = parents(full) if closed else np.full_like(parents(full), len(parents(full)))
    number, lines = line_up(full, cls, 3, prices, above)

    def price(cls, age, latest):
        return worth[epoch[latest], cls, min(int(age_bin(age)), 23)]

    compare(
        trace,
        number,
        server,
        cost,
        until_s=until_s,
        changing=Changing(lines, UNGUARDED),  # pyright: ignore[reportArgumentType]
        prices=plain_prices(full, number, lines, price),
    )


def _fades(params, f, now):
    """A made-up score that falls with idle time, by kind and what was learned."""
    rate = params["rate"][jnp.minimum(f.kind, 3)] * now.learned[now.step % 2]
    return rate * (f.time_s - now.time_s)


def _two(params, trace, cost):
    return np.array([1, 0.5], np.float32)


FADES = {
    closed: OnlinePolicy(
        {"rate": jnp.array([1, 0.25, 4, 0], np.float32)},
        Rescored(_fades, closed=closed, learn=_two),
        "fades",
        uses=("time_s", "kind"),
    )
    for closed in (False, True)
}


@settings(deadline=None, max_examples=40)
@given(runs(), st.booleans())
def test_scores_equal_the_oracle(case, closed):
    trace, server, cost, until_s = case
    full = named(trace, server).trace
    if not full.n_accesses:
        return
    number, changing = changing_order(FADES[closed], full)
    kinds = np.asarray(changing.lines.prices.features.kind)  # pyright: ignore

    def price(cls, age, latest):
        rate = np.array([1, 0.25, 4, 0], np.float32)[min(kinds[cls], 3)]
        return rate * np.array([1, 0.5], np.float32)[latest % 2] * -age

    prices = plain_prices(full, number, changing.lines, price)
    compare(
        trace, number, server, cost, until_s=until_s, changing=changing, prices=prices
    )


POLICIES = {
    "perc": registry["perc"](),
    "guarded": guarded(registry["perc"]()),
    "workload_aware": registry["workload_aware"](),
    "learned, guarded": learned(network("lease")),
}


def one_at_a_time(trace, capacity):
    """A server so fast that nobody meets anybody; answers of one token."""
    short = dataclasses.replace(
        trace, output_tokens=np.ones(trace.n_requests, np.int32)
    )
    room = -(-int(trace.input_tokens.max()) // trace.block_tokens)
    return short, Server(max(capacity, room), max_running=1, token_budget=10**7)


@pytest.fixture(scope="module")
def chat():
    """One for nearly all, so that programs are shared."""
    return perc.make("chat", requests=300, seed=3)


@pytest.mark.parametrize("name", POLICIES)
def test_hits_without_overlap_are_those_of_replay(chat, name):
    """At the trace's own times, since ages count."""
    for share in (0.05, 0.3):
        equals_replay(chat, POLICIES[name], int(chat.n_blocks * share))


def equals_replay(trace, policy, capacity):
    trace, server = one_at_a_time(trace, capacity)
    found = simulate(trace, policy, server, INSTANT)
    plain = replay_online(trace, policy, [server.capacity_blocks])
    check_laws(found)
    assert found.totals["evictions"] == plain.evictions[0] > 0
    assert np.array_equal(found.hit_blocks, plain.blocks[0])


@pytest.mark.real_trace
@pytest.mark.parametrize("name", ["perc", "guarded", "workload_aware"])
def test_hits_on_mooncake_are_those_of_replay(name):
    folder = os.environ.get("PERC_TRACES")
    if not folder:
        pytest.skip("PERC_TRACES is not set")
    trace = perc.load(Path(folder) / "mooncake_conversation_trace.jsonl.gz")
    equals_replay(trace, POLICIES[name], 4350)


def test_policies_of_one_rule_share_a_program(chat):
    server = Server(1000, max_running=4)
    simulate(chat, registry["perc"](), server, COST)
    before = serve_each._cache_size()  # pyright: ignore
    simulate(chat, registry["perc"](smoothing=3.0, horizon_s=60.0), server, COST)
    assert serve_each._cache_size() == before  # pyright: ignore


def test_runs_are_bit_identical(chat):
    server = Server(1000, max_running=4)
    a, b = (simulate(chat, registry["perc"](), server, COST) for _ in "ab")
    assert a.ended_s.tobytes() == b.ended_s.tobytes()
    assert a.totals == b.totals and a.totals["evictions"] > 0


def _no_number(params, f, now):
    return jnp.where(now.time_s > 100, jnp.nan, f.time_s)


def test_a_price_that_is_no_number_is_refused(chat):
    policy = OnlinePolicy((), Rescored(_no_number), "odd", uses=("time_s",))
    with pytest.raises(InputError, match="policy odd: .* no number"):
        simulate(chat, policy, Server(1000, max_running=4), COST)


def _by_step(params, f, now):
    return f.step - now.step


def test_too_many_classes_are_refused():
    chat = perc.make("chat", requests=5000)
    policy = OnlinePolicy((), Rescored(_by_step), "steps", uses=("step",))
    with pytest.raises(InputError, match="5,000 classes of uses"):
        simulate(chat, policy, Server(9000), COST)


def test_nothing_to_look_up_is_served_too():
    chat = perc.make("chat", requests=20)
    none = np.zeros(0, np.int32)
    zeros = np.zeros(20, np.int32)
    empty = dataclasses.replace(
        chat,
        **dict.fromkeys(("block", "request", "depth", "tokens", "prev", "next"), none),
        start=zeros,
        stop=zeros,
    )
    found = simulate(empty, registry["perc"](), Server(9000), COST)
    assert (found.status == 1).all()
