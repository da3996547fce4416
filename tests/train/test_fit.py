"""Training as a whole: what it must learn, that it repeats itself, what it refuses."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.guard import DEFAULT
from perc.history import history
from perc.policies.learned import learned, network_of
from perc.policies.learned_key import lease_key
from perc.policies.store import save
from perc.traces.build import Columns, build_trace
from perc.train import fit as training
from perc.train.examples import examples, held_out
from perc.train.fit import fit
from perc.train.methods import METHODS
from perc.train.settings import Settings
from tests.train import known
from tests.train.known import GAP_S, LONG, ROOM, traffic

SMALL: dict[str, Any] = dict(members=1, classes=6, batch=256, hidden=(16,), rate=0.02)
STEPS = {"imitation": 100, "ttl": 100, "reinforce": 200, "evolution": 200}
# Of whole chunks, and with as many examples for every seed: compiled once.
QUICK: dict[str, Any] = dict(
    steps=50, members=1, classes=4, batch=256, hidden=(8,), held_out=0.0
)

LEASES = [name for name, how in METHODS.items() if how.head == "lease"]

every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def chat():
    return perc.make("chat", requests=150, seed=1)


@pytest.fixture(scope="module")
def taught():
    """Policies by method, made once each, from traffic whose best policy is known."""
    made, told = {}, {}  # `told`: what `progress` was called with

    def of(method):
        if method not in made:
            said = told.setdefault(method, [])
            made[method] = fit(
                traffic(0),
                method,
                steps=STEPS[method],
                progress=lambda *step: said.append(step),
                **SMALL,
            )
        return made[method]

    return SimpleNamespace(of=of, told=told)


@every_method
def test_what_returns_is_worth_more_until_it_returns(taught, method):
    """Of traffic that it has not seen."""
    network, fresh = network_of(taught.of(method)), traffic(1)
    assert network is not None
    worths = network.log_worths(history(fresh)[fresh.start])
    returns = fresh.output_tokens == LONG
    until = network.edges_s < 0.8 * GAP_S
    lowest = np.median(worths[returns], axis=0)[until]
    highest = np.quantile(worths[~returns], 0.75, axis=0)[until]
    assert until.sum() >= 3
    assert (lowest > highest + np.log(2)).all()


@every_method
def test_it_hits_what_can_be_hit_where_lru_hits_nothing(taught, method):
    network = network_of(taught.of(method))
    assert network is not None
    own = learned(network, guard=None)
    rows = perc.compare(traffic(1), [own, "lru", "belady"], [ROOM]).rows
    hit, lru, bound = (row.block_hit_ratio for row in rows)
    assert lru < 0.05 * bound
    assert hit > 0.95 * bound


@every_method
def test_it_does_not_collapse_to_admitting_nothing(taught, method):
    """CachePilot's learner ends there: -14,400 instead of -13,315."""
    network, fresh = network_of(taught.of(method)), traffic(1)
    assert network is not None
    low, high = network.prices
    key = lease_key(network, float(np.sqrt(low * high)), bypass=True)
    scores = perc.scores(replace(key, chain=False), fresh)
    returns = (fresh.output_tokens == LONG)[fresh.request]
    lease = scores - fresh.arrival_s[fresh.request]
    assert np.mean(lease[returns] > 0.7 * GAP_S) > 0.9
    assert np.mean(lease[~returns] < 0.3 * GAP_S) > 0.9


@pytest.mark.parametrize(
    ("method", "dearest"),
    [*((method, 0.1) for method in METHODS), *((method, 10.0) for method in LEASES)],
)
def test_dear_room_makes_leases_short(monkeypatch, method, dearest):
    """What returns after 20 s pays up to .05 a second, and not beyond.

    Also where the network learns much dearer prices, at which nothing ever pays.
    """
    monkeypatch.setattr(
        training, "prices_of", lambda edges: np.array([0.002, dearest], np.float32)
    )
    network = network_of(fit(traffic(0), method, **SMALL, steps=STEPS[method]))
    assert network is not None
    fresh, leases = traffic(1), []
    returns = (fresh.output_tokens == LONG)[fresh.request]
    for price in (0.004, 0.09):
        key = replace(lease_key(network, price), chain=False)
        lease = perc.scores(key, fresh) - fresh.arrival_s[fresh.request]
        leases.append(np.median(np.maximum(lease[returns], 0)))
    assert leases[0] > 0.9 * GAP_S and leases[1] < 0.3 * GAP_S


@pytest.mark.parametrize("method", ["imitation", "ttl"])
def test_held_out_sessions_only_judge(method):
    """Neither their inputs nor their times are in the policy; others' are."""
    trace, heard = traffic(0, seconds=60), []
    judging = np.zeros(trace.n_requests, bool)
    found = examples(trace)
    judging[np.isin(trace.session, found.session[held_out(found, 0.3, 0)])] = True

    def learned_of(some):
        """With other answers, and a little later, though not than the next request."""
        gap_s = np.diff(trace.arrival_s, append=trace.arrival_s[-1])
        changed = replace(
            trace,
            output_tokens=np.where(some, 3, trace.output_tokens).astype(np.int32),
            arrival_s=trace.arrival_s + 1e-3 * gap_s * some,
        )

        def progress(*told):
            heard.append(told[-1])

        some = {**QUICK, "held_out": 0.3}
        return network_of(fit(changed, method, progress=progress, **some))

    plain, same, other = map(learned_of, (judging & False, judging, ~judging))
    assert plain == same != other
    assert heard[0] != heard[1]  # the score is theirs


def stored(policy, folder) -> bytes:
    return save(folder / "policy.npz", policy).read_bytes()


@every_method
def test_a_seed_gives_a_policy_bit_by_bit_and_compiles_nothing(chat, tmp_path, method):
    programs: Any = training._advance
    one = stored(fit(chat, method, seed=3, **QUICK), tmp_path)
    before = programs._cache_size()
    again, other = (
        stored(fit(chat, method, seed=seed, **QUICK), tmp_path) for seed in (3, 4)
    )
    assert one == again != other
    assert programs._cache_size() == before


def test_settings_come_as_a_whole_or_one_by_one(chat):
    whole = fit(chat, settings=Settings(seed=3, **QUICK))
    assert network_of(whole) == network_of(fit(chat, seed=3, **QUICK))


@every_method
def test_progress_tells_of_a_score_that_does_not_fall(taught, method):
    """Of sessions that are held out."""
    policy, told = taught.of(method), taught.told[method]
    steps = STEPS[method]
    assert policy.name == "learned"
    assert [done for done, *_ in told] == [*range(50, steps, 50), steps]
    assert {total for _, total, _ in told} == {steps}
    scores = [float(text.removeprefix("held-out score ")) for *_, text in told]
    assert scores[-1] > scores[0] - 0.01


def test_the_guard_is_as_asked(chat):
    rules: list[Any] = [fit(chat, guard=None, **QUICK).rule, fit(chat, **QUICK).rule]
    assert [rule.guard for rule in rules] == [None, DEFAULT]


def test_an_unknown_method_is_answered_with_the_known(chat):
    with pytest.raises(InputError, match="'dqn'; there are imitation, ttl"):
        fit(chat, "dqn")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("steps", -1),
        ("members", 65),
        ("classes", 0),
        ("batch", -5),
        ("hidden", (0,)),
        ("hidden", (8,) * 99),
        ("rate", -1.0),
        ("rate", float("nan")),
        ("decay", -0.1),
        ("weight_power", 1.5),
        ("held_out", 1.0),
    ],
)
def test_settings_out_of_range_are_named(chat, name, value):
    with pytest.raises(InputError, match=f"train: {name}"):
        fit(chat, **{name: value})


def test_the_highest_seed_works(chat):
    assert fit(chat, seed=2**31 - 1, **QUICK).name == "learned"


def test_networks_that_run_away_are_told(chat):
    with pytest.raises(InputError, match="not finite. Train it again, at a lower rate"):
        fit(chat, "ttl", rate=1.0, decay=10.0, **{**QUICK, "steps": 400})


def built(prompts, times, **columns):
    """A trace of prompts, lists of block names, at times."""
    lengths = np.array([len(p) for p in prompts], np.int64)
    return build_trace(
        Columns(
            arrival_s=np.asarray(times, float),
            input_tokens=lengths * 16,
            output_tokens=np.full(len(prompts), 5),
            ids=np.array([b for p in prompts for b in p], np.int64),
            lengths=lengths,
            **columns,
        ),
        block_tokens=16,
        source="built",
    )


@pytest.mark.parametrize(
    "prompts",
    [[], [[]], [[], []], [[1, 2]], [[1], [2], [3]]],
    ids="nothing,no blocks,no blocks twice,one request,no reuse".split(","),
)
def test_traffic_that_cannot_teach_is_refused(prompts):
    trace = built(prompts, range(len(prompts)))
    with pytest.raises(InputError, match="no block is used twice.*more requests"):
        fit(trace, **QUICK)


def test_traffic_without_blocks_is_refused():
    untold = replace(built([[], []], [0, 1]), tells_blocks=False)
    with pytest.raises(InputError, match="no block is used twice"):
        fit(untold, **QUICK)


def test_traffic_without_times_is_refused():
    with pytest.raises(InputError, match="arrival times missing"):
        fit(built([[1, 2]] * 5, [0.0] * 5), **QUICK)


TWO_REQUESTS = built([[1, 2], [1, 2]], [0, 5])  # one session, one use
ONE_SESSION = built([[1, 2]] * 9, range(9), session=[1] * 9)
ONE_USE = built([[i] for i in range(50)] + [[3]], range(51))


@pytest.mark.parametrize(
    ("method", "trace"),
    [
        ("imitation", TWO_REQUESTS),
        ("ttl", TWO_REQUESTS),
        ("imitation", ONE_SESSION),
        ("ttl", ONE_USE),
    ],
    ids=["two requests", "two requests, ttl", "one session", "one use, ttl"],
)
def test_traffic_that_hardly_teaches_is_good_enough(method, trace):
    network = network_of(fit(trace, method, **QUICK))
    assert network is not None
    classes = network.classes(history(trace))
    assert set(classes) <= set(range(len(network.worths)))


def test_the_known_traffic_is_what_it_says():
    trace = known.traffic(2)
    returns = (trace.output_tokens == LONG)[trace.request]
    np.testing.assert_array_equal(returns, trace.next >= 0)
