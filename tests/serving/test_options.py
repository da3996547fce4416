"""Each option changes something, in the direction that it promises."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.hardware import accelerator
from perc.model_shapes import model
from perc.policies.registry import registry
from perc.roofline import roofline
from perc.serving.arrivals import poisson, scaled, spike
from perc.serving.laws import check_laws
from perc.serving.outputs import with_outputs
from perc.serving.settings import Retention, Server
from perc.serving.simulate import simulate
from perc.traces.build import Columns, build_trace

COST = roofline(model("llama-3.1-8b"), accelerator("l4"))
BASE = Server(1500, max_running=16, token_budget=2048)


@pytest.fixture(scope="module")
def busy():
    """Agents, fast enough that a queue builds up."""
    chat = perc.make("agent", requests=150, seed=3)
    n = chat.n_requests
    rng = np.random.default_rng(0)
    return dataclasses.replace(
        scaled(chat, 4.0),
        priority=rng.integers(0, 3, n).astype(np.int32),
        deadline_s=rng.choice([2.0, 30.0, np.inf], n),
    )


def served(trace, policy="lru", **options):
    server = dataclasses.replace(BASE, **options)
    found = simulate(trace, registry[policy](), server, COST)
    check_laws(found)
    return found


def ttft(found):
    return np.nanmean(found.first_token_s - found.arrived_s)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "priority"},
        {"order": "deadline"},
        {"order": "program"},
        {"batching": "low_latency"},
        {"batching": "static"},
        {"batching": "adaptive", "adaptive_queue": 50, "adaptive_latency_s": 0.0},
        {"chunked": False},
        {"closed_loop": True},
        {"cache_outputs": True},
        {"token_budget": 64},
        {"max_running": 4},
        {"max_queue": 2},
        {"capacity_blocks": 700},
    ],
    ids=str,
)
def test_every_option_changes_something(busy, options):
    plain, other = served(busy), served(busy, **options)
    assert not np.array_equal(plain.ended_s, other.ended_s, equal_nan=True)


def test_promotion_and_its_limits_change_something(busy):
    base = served(busy, order="priority")
    promoted = served(busy, order="deadline", promote_within_s=5.0)
    late = served(busy, order="deadline", promote_within_s=0.0)
    assert not np.array_equal(base.ended_s, promoted.ended_s)
    assert not np.array_equal(late.ended_s, promoted.ended_s)
    adaptive = [
        served(busy, batching="adaptive", adaptive_queue=10**6, adaptive_latency_s=s)
        for s in (0.0, 10.0)
    ]
    assert not np.array_equal(adaptive[0].ended_s, adaptive[1].ended_s)


def test_policy_changes_something(busy):
    lru = served(busy, capacity_blocks=700)
    bound = served(busy, "belady", capacity_blocks=700)
    assert bound.hit_blocks.sum() > lru.hit_blocks.sum()
    assert ttft(bound) < ttft(lru)


def test_fifo_keeps_the_rank_of_insertion(busy):
    lru = served(busy, capacity_blocks=700)
    fifo = served(busy, "fifo", capacity_blocks=700)
    assert not np.array_equal(lru.hit_blocks, fifo.hit_blocks)


def test_load_rate_and_spike_change_something(busy):
    assert ttft(served(busy)) > ttft(served(scaled(busy, 0.25)))
    slow, fast = poisson(busy, 0.2, seed=1), poisson(busy, 20.0, seed=1)
    assert ttft(served(fast)) > ttft(served(slow))
    calm = scaled(busy, 0.25)
    for at in (0, 50):
        sudden = spike(calm, at, multiplier=8.0)
        assert np.array_equal(sudden.arrival_s[:at], calm.arrival_s[:at])
        assert ttft(served(sudden)) > ttft(served(calm))


def test_priority_goes_first(busy):
    found = served(busy, order="priority")
    waited = found.admitted_s - found.arrived_s
    high, low = (np.mean(waited[busy.priority == p]) for p in (2, 0))
    assert high < low


def test_follow_ups_go_first(busy):
    def waits(order):
        found = served(busy, order=order)
        return np.mean((found.admitted_s - found.arrived_s)[busy.turn > 1])

    assert waits("program") < waits("fcfs")


def test_a_full_queue_rejects(busy):
    found = served(busy, max_queue=2)
    assert 0 < (found.status == 2).sum() < busy.n_requests
    assert not (served(busy).status == 2).any()


def test_closed_loop_waits_for_the_turn_before(busy):
    found = served(busy, closed_loop=True)
    for session in np.unique(busy.session):
        rows = np.flatnonzero(busy.session == session)
        assert (found.arrived_s[rows[1:]] >= found.ended_s[rows[:-1]]).all()


def test_what_can_never_fit_is_rejected_at_once(busy):
    found = served(busy, capacity_blocks=150)
    tokens = busy.input_tokens + busy.output_tokens - 1
    too_large = -(-tokens // busy.block_tokens) > 150
    assert np.array_equal(found.status == 2, too_large)
    assert too_large.any()


def test_preempted_requests_are_whole_in_the_end():
    """Four answers that grow out of a small cache, and end all the same."""
    n = 4
    columns = Columns(
        arrival_s=np.arange(n) * 1e-3,
        input_tokens=np.full(n, 16),
        output_tokens=np.full(n, 200),
        ids=np.arange(n),
        lengths=np.ones(n, np.int64),
    )
    trace = build_trace(columns, block_tokens=16, source="growing")
    found = served(trace, capacity_blocks=20)
    assert found.preemptions.sum() > 0
    assert found.made_tokens.tolist() == [200] * n
    assert found.again_tokens.sum() > 0
    assert found.totals["again_s"] > 0
    assert not found.hit_blocks.any()  # what is found again is no hit: case 9
    roomy = served(trace, capacity_blocks=100)
    assert not roomy.preemptions.any()
    assert found.totals["busy_s"] > roomy.totals["busy_s"]


def test_outputs_are_named_by_the_next_turn():
    columns = Columns(
        arrival_s=np.array([0.0, 50.0]),
        input_tokens=np.array([8, 20]),
        output_tokens=np.array([9, 1]),
        ids=np.array([0, 1, 0, 1, 2, 3, 4]),
        lengths=np.array([2, 5]),
        session=["a", "a"],
    )
    trace = build_trace(columns, block_tokens=4, source="two turns")
    named = with_outputs(trace)
    assert named.trace.block.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert (named.prompt_stop - named.trace.start).tolist() == [2, 5]
    assert served(trace).hit_blocks.tolist() == [0, 2]
    assert served(trace, cache_outputs=True).hit_blocks.tolist() == [0, 4]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"order": "sjf"}, "no order 'sjf'; there are fcfs"),
        ({"batching": "garbage"}, "no batching 'garbage'"),
        ({"capacity_blocks": 0}, "capacity_blocks is 0"),
        ({"token_budget": 4}, "token_budget of 4 for 16 running"),
        ({"max_running": 0}, "max_running is 0"),
        ({"max_queue": -1}, "max_queue is -1"),
        ({"promote_within_s": float("nan")}, "promote_within_s is nan"),
        ({"capacity_blocks": "100"}, "capacity_blocks is '100', must be a whole"),
        ({"capacity_blocks": 100.0}, "capacity_blocks is 100.0, must be a whole"),
        ({"capacity_blocks": True}, "capacity_blocks is True, must be a whole"),
        ({"max_queue": 1.5}, "max_queue is 1.5, must be a whole number"),
        ({"promote_within_s": "1"}, "promote_within_s is '1', must be a number"),
        ({"chunked": "no"}, "chunked is 'no'; give True or False"),
        ({"closed_loop": 1}, "closed_loop is 1; give True or False"),
        ({"order": 0}, "order is 0; give a word"),
        ({"offload": "cpu:1GiB:pcie5"}, "give an Offload or None"),
        ({"retention": 60}, "retention is 60; give a Retention or None"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(BASE, **options)


@pytest.mark.parametrize("options", [BASE, Retention()])
def test_every_option_is_of_its_type(options):
    for field in dataclasses.fields(options):
        with pytest.raises(InputError, match=f"{field.name} is \\[0\\]"):
            dataclasses.replace(options, **{field.name: [0]})


def test_numbers_of_numpy_are_numbers():
    options: Any = {"capacity_blocks": np.int64(100), "chunked": np.bool_(True)}
    assert dataclasses.replace(BASE, **options).capacity_blocks == 100


def test_impossible_arrivals_are_refused(busy):
    with pytest.raises(InputError, match="load is 0"):
        scaled(busy, 0)
    with pytest.raises(InputError, match="a spike at request 150 of 150"):
        spike(busy, 150)
    with pytest.raises(InputError, match="rate_per_s"):
        poisson(busy, -1.0)


def test_policies_without_an_order_are_refused(busy):
    with pytest.raises(InputError, match="'arc': its order depends"):
        served(busy, "arc")
