"""What `perc` pays for a block, against sums done by hand, and what it may know."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import perc
from perc.aged import aged_traffic, worth_of
from perc.errors import InputError
from perc.policies.registry import registry
from perc.reuse import AGES, STEPS, Reuse
from perc.types import Features

EDGES = np.concatenate([[0], 2 ** (np.arange(AGES - 1) / STEPS)])
FIRST = "tokens", "frequency", "turn", "kind"


def reuse_of(events, at_risk, ages, density=1.0) -> Reuse:
    """One class, one epoch."""

    def column(values):
        return np.asarray(values, np.float32)

    return Reuse(
        epoch=np.zeros(1, np.int32),
        ages=column(ages),
        events=(column(events)[None, None],),
        at_risk=(column(at_risk)[None, None],),
        parents=(np.zeros(1, np.int32),),
        density=column([[density]]),
        named=np.zeros(1, np.int32),
    )


def best_rate(hazard, ages, horizon=np.inf):
    """Hits per second from each age, by trying every stay."""
    alive = [1.0, *itertools.accumulate((1 - h for h in hazard), lambda a, b: a * b)]
    alive = alive[: len(ages)]
    rates = []
    for a in range(len(ages) - 1):
        held, best = 0.0, 0.0
        for b in range(a + 1, len(ages)):
            held += (alive[b - 1] + alive[b]) / 2 * (ages[b] - ages[b - 1])
            if held > 0 and (ages[b] - ages[a] <= horizon or b == a + 1):
                best = max(best, (alive[a] - alive[b]) / held)
        rates.append(best)
    return [*rates, rates[-1] * ages[-2] / ages[-1]]


@pytest.mark.parametrize("horizon_s", [1e6, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 10.0])
def test_worth_is_the_best_rate_of_any_stay(smoothing, horizon_s):
    ages = [0, 1, 2, 4, 8, 16]
    events, at_risk = [5, 10, 40, 5, 1, 0], [100, 90, 70, 30, 20, 10]
    policy = registry["perc"](smoothing=smoothing, horizon_s=horizon_s)
    found = policy.rule.worth(policy.params, reuse_of(events, at_risk, ages))
    hazard = [
        (e + smoothing * 0.1) / (n + smoothing)
        for e, n in zip(events, at_risk, strict=True)
    ]
    expected = best_rate(hazard, ages, horizon_s)
    np.testing.assert_allclose(np.asarray(found)[0, 0], expected, rtol=1e-5)
    assert np.argmax(expected) == 2  # it rises, then falls


def test_before_anything_returned_older_is_worth_less():
    policy = registry["perc"]()
    nothing = [0] * AGES
    found = policy.rule.worth(policy.params, reuse_of(nothing, nothing, EDGES))
    assert (np.diff(np.asarray(found)[0, 0, 1:]) < 0).all()


def test_cost_raises_the_worth_by_its_weight():
    ages, events, at_risk = [0, 1, 2], [1, 2, 1], [9, 8, 4]
    policy = registry["perc"](cost_weight=0.5)
    one, four = (
        policy.rule.worth(policy.params, reuse_of(events, at_risk, ages, density))
        for density in (1.0, 4.0)
    )
    np.testing.assert_allclose(four, 2 * np.asarray(one), rtol=1e-6)
    assert policy.uses == (*FIRST, "recompute_s")


def test_the_future_changes_nothing(small_chat):
    from perc.tune_search import first_requests

    policy = registry["perc"]()
    n = small_chat.n_requests // 2
    whole = perc.replay_online(small_chat, policy, [60, 300]).blocks[:, :n]
    cut = perc.replay_online(first_requests(small_chat, n), policy, [60, 300]).blocks
    np.testing.assert_array_equal(whole, cut)


def test_smoothing_and_classes_matter(small_chat):
    plain = registry["perc"]()
    traffic = aged_traffic(small_chat, plain)
    assert len(traffic.reuse.parents[-1]) > 5
    leaning = worth_of(registry["perc"](smoothing=1e6), traffic.reuse)
    own = worth_of(registry["perc"](smoothing=0.0), traffic.reuse)
    assert not np.allclose(leaning, own)
    # Leaning on the prior alone, all classes are worth the same.
    np.testing.assert_allclose(leaning[-1], leaning[-1][:1].repeat(len(own[0]), 0), 0.2)


def test_what_tells_blocks_apart():
    """Each property makes a class of its own, from coarse to fine."""
    rows = [  # tokens, uses, turn, kind
        (16, 1, 1, 0),
        (9, 1, 1, 0),
        (16, 2, 1, 0),
        (16, 3, 1, 0),
        (16, 4, 1, 0),
        (16, 1, 2, 0),
        (16, 1, 6, 0),
        (16, 1, 9, 0),
        (16, 1, 1, 1),
        (16, 1000, 1, 99),
    ]
    tokens, frequency, turn, kind = np.array(rows, np.int32).T
    f = Features(
        tokens=tokens, frequency=frequency.astype(np.float32), turn=turn, kind=kind
    )
    levels = registry["perc"]().rule.classes(f)
    assert list(zip(*(level.tolist() for level in levels), strict=True)) == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (0, 1, 0, 0),
        (0, 1, 0, 0),
        (0, 2, 0, 0),
        (0, 0, 1, 0),
        (0, 0, 5, 0),
        (0, 0, 5, 0),
        (0, 0, 0, 1),
        (0, 7, 0, 15),
    ]


def test_defaults():
    params = registry["perc"]().params
    assert {k: float(v) for k, v in params.items()} == {
        "smoothing": 200.0,
        "horizon_s": 86_400.0,
        "cost_weight": 0.0,
    }
    assert registry["perc"]().uses == FIRST


@pytest.mark.parametrize("name", ["smoothing", "horizon_s", "cost_weight"])
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_parameters_are_checked(name, value):
    with pytest.raises(InputError, match=f"{name} is"):
        registry["perc"](**{name: value})


def test_cost_divides_classes_in_half_octaves():
    seconds = np.array([1, 1.4, 1.5, 2, 4], np.float32) / 1024
    one = np.ones(5, np.int32)
    f = Features(tokens=one, frequency=one, turn=one, kind=0 * one, recompute_s=seconds)
    classes = registry["perc"](cost_weight=1.0).rule.classes
    assert classes(f)[-1].tolist() == [0, 0, 1, 2, 4]
    halved = replace(f, tokens=2 * one, recompute_s=2 * seconds)
    assert classes(halved)[-1].tolist() == [0, 0, 1, 2, 4]
