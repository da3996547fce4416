"""Realised recompute on a simulated clock, at equal work."""

import dataclasses

import pytest

from perc.cachepilot.compare import compare, mean_of, verdicts
from perc.cachepilot.reference import Machine
from perc.cachepilot.serving import Rules, clock, serve
from perc.cachepilot.thrash import thrash
from perc.cachepilot.workloads import Traffic, generate
from perc.errors import InputError
from perc.hardware import accelerator
from perc.model_shapes import model
from perc.roofline import roofline

COST = roofline(model("llama-2-7b"), accelerator("a100"))
CLOCK = clock(COST)
TRAFFIC = Traffic(requests=120)
SMALL = Machine(16, concurrent=48)
POLICIES = ("perc", "lru", "shortest", "mru", "largest", "random")


def run(policy="perc", traffic=TRAFFIC, machine=SMALL, cost=CLOCK, **rules):
    return serve(policy, traffic, machine, cost, rules=Rules(**rules))


def test_the_clock_is_the_roofline():
    assert CLOCK.step_s([100, 4000], []) == pytest.approx(
        float(
            COST.step_s(
                COST.decode_flops(100) + COST.decode_flops(4000),
                COST.kv_bytes(100) + COST.kv_bytes(4000),
                2,
            )
        )
    )
    for tokens in (1, 300, 9000):
        assert CLOCK.step_s([], [tokens]) == pytest.approx(
            float(COST.prefill_s(tokens))
        )


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gemma-2-9b"])
def test_other_models_are_refused(name):
    with pytest.raises(InputError, match="dense"):
        clock(roofline(model(name), accelerator("h200")))


@pytest.mark.parametrize("admission", ["fits", "evict"])
@pytest.mark.parametrize("policy", POLICIES)
def test_work_is_equal_and_conserved(policy, admission):
    found = run(policy, admission=admission)
    requests = generate(TRAFFIC, 42)
    assert found.submitted == found.completed + found.rejected == len(requests)
    assert found.rejected == 0
    assert found.tokens == sum(r.answer for r in requests)
    # Whoever was evicted was not done, and so came back.
    assert found.evictions == found.restores > 0
    # Each return has its price, which is convex: together at least that of the mean.
    mean = found.recompute_tokens / found.restores
    least_s = found.restores * CLOCK.step_s([], [mean])  # pyright: ignore
    assert found.recompute_s >= least_s * (1 - 1e-9) > 0
    assert found == run(policy, admission=admission)


def test_no_pressure_no_cost():
    found = run(machine=Machine(400, concurrent=48))
    assert found.evictions == found.recompute_s == found.estimated_s == 0
    assert found.completed == 120


def test_a_lone_request():
    """Its prefill gives the first token, and every step one more."""
    traffic = Traffic("chat", requests=1)
    (request,) = generate(traffic, 42)
    found = run(traffic=traffic)
    steps = [request.prompt + i + 1 for i in range(1, request.answer)]
    ttft_s = CLOCK.step_s([], [request.prompt])
    decode_s = sum(CLOCK.step_s([n], []) for n in steps)
    assert found.ttft_s == [pytest.approx(ttft_s)]
    assert found.tpot_s == [pytest.approx(decode_s / len(steps))]
    assert found.end_s == pytest.approx(request.arrival_s + ttft_s + decode_s)


def test_low_latency_takes_one_prompt_a_step():
    """So no two first tokens come at the same time, as they do for throughput."""
    arrivals = [request.arrival_s for request in generate(TRAFFIC, 42)]
    apart = {}
    for batch in ("low_latency", "max_throughput"):
        waits = run(machine=Machine(400, concurrent=48), batch=batch).ttft_s
        first_s = [round(a + b, 9) for a, b in zip(arrivals, waits, strict=True)]
        apart[batch] = len(set(first_s))
    assert apart["low_latency"] == len(arrivals) > apart["max_throughput"]


def test_what_can_never_fit_is_rejected():
    found = run(traffic=Traffic("longctx", requests=20), machine=Machine(6))
    assert found.rejected > 0
    assert found.submitted == found.completed + found.rejected


@pytest.mark.parametrize(
    "changed",
    [
        {"traffic": dataclasses.replace(TRAFFIC, spike_at=30)},
        {"traffic": dataclasses.replace(TRAFFIC, rate_per_s=1.0)},
        {"traffic": dataclasses.replace(TRAFFIC, workload="code")},
        {"machine": Machine(17, concurrent=48)},
        {"machine": Machine(16, pinned_share=0.3, concurrent=48)},
        {"machine": Machine(16, concurrent=8)},
        {"machine": Machine(16, concurrent=48, kv="int8")},
        {"cost": clock(roofline(model("llama-2-7b"), accelerator("h100")))},
        {"batch": "low_latency"},
        {"batch": "max_throughput"},
        {"admission": "evict"},
        {"policy": "lru"},
    ],
)
def test_every_option_changes_something(changed):
    plain, other = run(), run(**changed)
    assert (plain.end_s, plain.ttft_s) != (other.end_s, other.ttft_s)


@pytest.mark.parametrize("wrong", [{"batch": "garbage"}, {"admission": "maybe"}])
def test_unknown_words_are_refused(wrong):
    with pytest.raises(InputError):
        Rules(**wrong)
    with pytest.raises(InputError, match="no session policy"):
        run("garbage")


def test_admission_beats_the_best_thrashing_policy():
    """At the same 25,324 tokens of 100 requests, priced at the same 0.002 s a token."""
    traffic = Traffic(requests=100)
    best = thrash("largest", traffic, SMALL)
    found = run(traffic=traffic)
    assert (found.completed, found.tokens) == (best.completed, best.tokens)
    assert found.recompute_tokens * 0.002 < best.realised_s / 100


def test_comparison():
    found = compare(["lru", "shortest"], TRAFFIC, SMALL, CLOCK, seeds=[1, 2, 3])
    assert found.policies == ("perc", "lru", "shortest")
    assert found.equal_work
    behind = found.behind("lru", "recompute_s")
    lru, perc = found.mean("lru", "recompute_s"), found.mean("perc", "recompute_s")
    assert behind.mean == pytest.approx(lru.mean - perc.mean)
    assert behind.low <= behind.mean <= behind.high
    assert found.behind("perc", "recompute_s") == (0, 0, 0)


def test_losses_are_told():
    """Swap the names, and who won has lost."""
    found = compare(["lru"], TRAFFIC, SMALL, CLOCK, seeds=range(5))
    assert "perc wins in recompute over lru." in verdicts(found)
    swapped = {"perc": found.runs["lru"], "lru": found.runs["perc"]}
    text = " ".join(verdicts(dataclasses.replace(found, runs=swapped)))
    assert "perc loses in recompute to lru (by " in text
    same = {"perc": found.runs["lru"], "lru": found.runs["lru"]}
    text = verdicts(dataclasses.replace(found, runs=same))
    assert "Nothing is decided in recompute." in text


def test_unequal_work_is_marked():
    found = compare(["lru"], TRAFFIC, SMALL, CLOCK, seeds=[1, 2])
    found.runs["lru"][1].tokens -= 1
    assert not found.equal_work
    assert verdicts(found)[0].startswith("INVALID")


def test_one_seed_is_no_interval():
    with pytest.raises(InputError, match="seeds"):
        compare(["lru"], TRAFFIC, SMALL, CLOCK, seeds=[1])


def test_interval_covers_the_mean():
    import numpy as np

    values = np.random.default_rng(3).normal(5.0, 1.0, 40)
    found = mean_of(values)
    assert found.low < 5.0 < found.high
    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(
        2 * 1.96 * values.std() / 40**0.5, rel=0.1
    )
