"""What a learned policy goes by: networks of which it is known, and replays by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.errors import InputError
from perc.explanation import INPUTS, natural
from perc.guard import lru_hits
from perc.history import NAMES, history, runs
from perc.online import replay_online
from perc.policies.learned import Network, learned
from perc.policies.registry import registry
from perc.train.decisions import decisions
from perc.train.dependence import POINTS, ages_of, dependences, grid_of
from perc.train.explain import explain
from perc.train.importance import hits_of, importances, shuffled, stage_of
from perc.tune_search import first_requests
from perc.types import Aged, Guard, OnlinePolicy
from tests.oracles import learned as oracle
from tests.strategies import traces
from tests.train.known import ROOM, traffic

EDGES = np.array([0, 4, 8, 16, 32], np.float32)


def linear(weights: dict[str, list[float]], centres, *, head="hazard", members=1):
    """A network without hidden layers: the weights of each input by bin of age.

    Its classes are the worths of the rows `centres` of a history.
    """
    inputs, bins = tuple(weights), len(EDGES)
    width = len(inputs) + (head == "lease")
    draws = np.random.default_rng(5)
    w = np.zeros((members, width, bins), np.float32)
    w[:, : len(inputs)] = [weights[name] for name in inputs]
    w += draws.normal(size=w.shape) * 0.1 * (members > 1)
    b = np.full((members, bins), -3, np.float32)
    network = Network(
        head=head,
        inputs=inputs,
        edges_s=EDGES,
        prices=np.array([1e-3, 1e-1], np.float32),
        mean=np.full(len(inputs), 3, np.float32),
        scale=np.full(len(inputs), 2, np.float32),
        layers=((w, b),),
        worths=np.zeros((1, bins), np.float32),
    )
    return replace(network, worths=np.unique(network.log_worths(centres), axis=0))


LATE = [0.0, 0.0, 0.0, 2.0, 0.0]  # of what the input is high, uses come after 16 s
NONE = [0.0] * 5
_CENTRES = np.repeat(np.arange(6, dtype=np.float32)[:, None], len(NAMES), axis=1)
# Of as many classes for all traces: compiled once.
BY_USES = linear({"uses": LATE, "below": [1.0, 0, 0, -1.0, 0]}, _CENTRES)
ROOMY = 200  # blocks, for chat


@pytest.fixture(scope="module")
def known():
    return traffic()


@pytest.fixture(scope="module")
def teller(known):
    """Goes by the length of the answer alone, which tells all in `known`."""
    weights = {"turn": NONE, "output": LATE, "tools": [1.0] * 5, "age": NONE}
    return linear(weights, history(known)[runs(known)[0]])


@pytest.fixture(scope="module")
def chat():
    return perc.make("chat", requests=400, sessions_per_s=0.05)


@pytest.fixture(scope="module")
def mixed(chat):
    """Goes by some inputs of chat, in a few classes."""
    rows = history(chat)[runs(chat)[0]]
    weights = {
        "turn": [1.0] * 5,
        "input": [0, 0, -0.5, 0, -1],
        "gap": [0.2, 0, 0, 0, 0],
    }
    return linear(weights, rows[:: len(rows) // 6])


# Inputs in their units.


def test_every_input_has_a_unit_and_a_meaning():
    assert tuple(INPUTS) == NAMES


def test_inputs_are_shown_in_their_units(chat):
    rows = history(chat)
    table = {name: natural(name, rows[:, i]) for i, name in enumerate(NAMES)}
    request, seen = chat.request, chat.prev >= 0
    np.testing.assert_array_equal(table["input"], chat.input_tokens[request])
    np.testing.assert_array_equal(table["turn"], chat.turn[request])
    ends = runs(chat)[0]
    np.testing.assert_array_equal(table["depth"][ends], chat.depth[ends] + 1)
    gaps = chat.arrival_s[request] - chat.arrival_s[request[chat.prev]]
    np.testing.assert_allclose(table["gap"][seen], gaps[seen], rtol=1e-5, atol=1e-5)
    assert {name for name in NAMES if table[name].max() <= 1} >= {
        name for name in NAMES if INPUTS[name][0] in ("share", "0 or 1")
    }
    assert table["seen"].max() > 0.9


# Importance.


def test_an_input_that_tells_all_has_all_the_importance(known, teller):
    stage = stage_of(known, teller, ROOM, known.n_requests // 2)
    found = importances(stage, repeats=3, seed=1)
    whole = 100 * stage.counted(hits_of(stage, teller.classes(stage.rows)))
    assert whole > 14  # of the 16.7 that return
    assert [i.input for i in found] == ["output", "turn", "age", "tools"]
    first, *others = found
    assert whole >= first.high >= first.mean >= first.low > whole / 2
    for other in others:  # without weight, and without weight in this trace
        assert (other.mean, other.low, other.high) == (0.0, 0.0, 0.0)
    assert [i.constant for i in found] == [False, False, False, True]


@settings(deadline=None, max_examples=25)
@given(traces(), st.integers(1, 12), st.integers(0, 9))
def test_hits_are_those_of_a_replay(trace, capacity, seed):
    """With the network's classes, and with any others."""
    if not trace.n_accesses:
        return
    last, run = runs(trace)
    rows, network = history(trace)[last], BY_USES
    stage = stage_of(trace, network, capacity, 0)
    np.testing.assert_array_equal(stage.rows[run], history(trace))
    plain = replay_online(trace, learned(network, guard=None), [capacity])
    np.testing.assert_array_equal(
        hits_of(stage, network.classes(rows)), plain.blocks[0]
    )
    given_ = np.random.default_rng(seed).integers(0, len(network.worths), len(rows))
    policy = told(learned(network, guard=None), given_[run])
    np.testing.assert_array_equal(
        hits_of(stage, given_), replay_online(trace, policy, [capacity]).blocks[0]
    )


def told(policy: OnlinePolicy, classes) -> OnlinePolicy:
    """The policy with other classes than its network's."""
    assert isinstance(policy.rule, Aged)
    rule = replace(policy.rule, classes=lambda features: (classes,))
    return replace(policy, rule=rule, uses=())


def test_importance_is_the_loss_of_replays(chat, mixed):
    size, skip, seed = ROOMY, 100, 4
    stage = stage_of(chat, mixed, size, skip)
    found = {i.input: i for i in importances(stage, repeats=2, seed=seed)}
    asked = (chat.stop - chat.start)[skip:].sum()

    def lost(name, repeat):
        rows = shuffled(stage.rows, name, seed, repeat)
        policy = told(stage.policy, mixed.classes(rows)[stage.run])
        runs_of = [replay_online(chat, p, [size]) for p in (stage.policy, policy)]
        before, after = (r.blocks[0, skip:].sum() for r in runs_of)
        return 100 * (before - after) / asked

    for name in mixed.inputs:
        each = [lost(name, r) for r in range(2)]
        assert found[name].mean == pytest.approx(np.mean(each))
        assert found[name].low == pytest.approx(min(each))
        assert found[name].high == pytest.approx(max(each))
    assert any(i.mean for i in found.values())


def test_a_shuffle_moves_one_column_and_depends_on_seed_and_repeat():
    rows = np.random.default_rng(0).random((50, len(NAMES))).astype(np.float32)
    before = rows.copy()
    mixed = shuffled(rows, "turn", 3, 0)
    column = NAMES.index("turn")
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(
        np.delete(mixed, column, 1), np.delete(rows, column, 1)
    )
    np.testing.assert_array_equal(np.sort(mixed[:, column]), np.sort(rows[:, column]))
    same = [shuffled(rows, "turn", *of)[:, column] for of in ((3, 0), (3, 1), (4, 0))]
    assert (same[0] == mixed[:, column]).all()
    assert all((other != mixed[:, column]).any() for other in same[1:])


# Partial dependence.


@pytest.mark.parametrize("head, members", [("hazard", 1), ("hazard", 2), ("lease", 2)])
def test_dependence_is_the_mean_of_the_networks_answers(chat, head, members):
    rows = history(chat)[runs(chat)[0]][::90]
    weights = {"gap": [1.0, 0, 0, -1, 0], "seen": [0, 1.0, 2, 0, 0], "uses": LATE}
    network = linear(weights, rows, head=head, members=members)
    found = dependences(network, rows, ["seen", "gap"], seed=0)
    assert [one.input for one in found] == ["seen", "gap"]
    for one in found:
        grid = grid_of(rows[:, NAMES.index(one.input)])
        assert one.values == pytest.approx(natural(one.input, grid))
        assert one.ages_s == [0, 4, 16]
        for v in range(0, len(grid), 5):
            answers = []
            for row in rows.copy():
                row[NAMES.index(one.input)] = grid[v]
                answers.append(oracle.log_worths(network, row))
            for a, b in enumerate((0, 1, 3)):
                mean = sum(answer[b] for answer in answers) / len(answers)
                assert one.worth[a][v] == pytest.approx(60 * math.exp(mean), rel=1e-3)


def test_what_has_no_weight_bends_nothing_and_what_has_does(known, teller):
    rows = history(known)
    flat, steep = dependences(teller, rows, ["age", "output"], seed=0)
    assert all(np.ptp(line) == 0 for line in flat.worth)
    assert steep.values == [10, 500]
    assert steep.worth[2][1] > 5 * steep.worth[2][0]  # idle for 16 s


def test_the_drawn_runs_depend_on_the_seed(chat, mixed):
    rows = history(chat)[runs(chat)[0]]
    one, same, other = (
        dependences(mixed, rows, ["gap"], seed=seed)[0].worth for seed in (1, 1, 2)
    )
    assert one == same != other


@given(st.lists(st.integers(0, 200), min_size=1))
def test_the_grid_is_of_values_that_occur(values):
    column = np.array(values, np.float32) / 8
    grid = grid_of(column)
    assert set(grid) <= set(column) and len(grid) <= POINTS
    assert (np.diff(grid) > 0).all()
    assert (grid[0], grid[-1]) == (column.min(), column.max())
    if len(set(column)) == 201:
        assert len(grid) == POINTS


def test_few_bins_have_fewer_ages(teller):
    assert ages_of(teller) == [0, 1, 3]
    assert ages_of(replace(teller, edges_s=EDGES[:2])) == [0, 1]


# Decisions.


def test_examples_add_up_to_what_replays_differ_by(chat, mixed):
    """If each request is called a session, all that differ are shown."""
    stage = stage_of(chat, mixed, ROOMY, 0)
    classes = mixed.classes(stage.rows)
    own, lru = hits_of(stage, classes), lru_hits(chat, [ROOMY])[0]
    alone = replace(chat, session=np.arange(chat.n_requests, dtype=np.int32))
    stage = stage._replace(trace=alone)
    won, lost = decisions(stage, classes, own, lru, chat.n_requests)
    gains = {e.request - 1: e.gain for e in won + lost}
    assert gains == {r: own[r] - lru[r] for r in np.flatnonzero(own != lru)}
    assert sum(gains.values()) == own.sum() - lru.sum()
    assert won and lost and all(e.gain > 0 for e in won)
    assert [e.gain for e in won] == sorted((e.gain for e in won), reverse=True)
    assert [e.gain for e in lost] == sorted(e.gain for e in lost)


def test_an_example_tells_what_was_known_of_its_blocks(chat, mixed):
    stage = stage_of(chat, mixed, ROOMY, 50)
    classes = mixed.classes(stage.rows)
    own, lru = hits_of(stage, classes), lru_hits(chat, [ROOMY])[0]
    won, lost = decisions(stage, classes, own, lru, 3)
    thoughts = np.sort([oracle.worth_at(mixed, c, 0, 0) for c in classes[stage.run]])
    assert len(won) == len(lost) == 3
    for e in won + lost:
        r = e.request - 1
        assert r >= 50
        assert (e.hit_blocks, e.lru_hit_blocks) == (own[r], lru[r])
        assert (e.session, e.turn) == (chat.session[r], chat.turn[r])
        assert (e.input_tokens, e.blocks) == (chat.input_tokens[r], wide(chat, r))
        few, many = sorted((e.hit_blocks, e.lru_hit_blocks))
        users = [
            max(q for q in range(r) if block in blocks_of(chat, q))
            for block in blocks_of(chat, r)[few:many]
        ]
        assert e.last_request - 1 == sorted(users)[len(users) // 2]
        assert e.idle_s == chat.arrival_s[r] - chat.arrival_s[e.last_request - 1]
        assert 0 <= e.below_then < 1
        below = np.mean(thoughts < e.worth_then / 60 * 0.99)
        assert e.below_then == pytest.approx(below, abs=0.02)


def blocks_of(trace, r):
    return trace.block[trace.start[r] : trace.stop[r]].tolist()


def wide(trace, r):
    return trace.stop[r] - trace.start[r]


def test_what_was_thought_in_known_traffic(known, teller):
    """What returns is kept at all ages up to its return, and LRU has nothing."""
    stage = stage_of(known, teller, ROOM, known.n_requests // 2)
    classes = teller.classes(stage.rows)
    own, lru = hits_of(stage, classes), lru_hits(known, [ROOM])[0]
    won, lost = decisions(stage, classes, own, lru, 5)
    assert len(won) == 5 and not lost
    high = math.exp(teller.worths[:, 3].max()) * 60  # from 16 s on
    for e in won:
        assert (e.gain, e.lru_hit_blocks, e.turn) == (4, 0, 2)
        assert 18 <= e.idle_s <= 22
        assert e.worth_now == pytest.approx(high, rel=0.01)
        assert e.below_now > 0.7


def test_of_a_session_the_largest_is_shown(chat, mixed):
    stage = stage_of(chat, mixed, ROOMY, 0)
    classes = mixed.classes(stage.rows)
    own, lru = hits_of(stage, classes), lru_hits(chat, [ROOMY])[0]
    few = replace(chat, session=np.arange(chat.n_requests, dtype=np.int32) // 50)
    stage = stage._replace(trace=few)
    _, lost = decisions(stage, classes, own, lru, chat.n_requests)
    largest: dict[int, int] = {}
    for r in np.flatnonzero(own < lru):
        session, loss = int(few.session[r]), int(lru[r] - own[r])
        largest[session] = max(largest.get(session, 0), loss)
    assert {e.session: -e.gain for e in lost} == largest
    assert len(largest) < (own < lru).sum()


# All together.


@pytest.mark.parametrize("guard", [None, Guard(credit=0.0)])
def test_ratios_are_those_of_compare(chat, mixed, guard):
    found = explain(learned(mixed, guard=guard), chat, ROOMY, warmup=0.25, repeats=1)
    alone = learned(mixed, guard=None)
    kept = replace(learned(mixed, guard=guard or Guard()), name="kept")
    rows = perc.compare(chat, ["lru", alone, kept, "belady"], ROOMY, warmup=0.25).rows
    shown = [found.lru, found.block_hit_ratio, found.guard.block_hit_ratio, found.bound]
    assert shown == [row.block_hit_ratio for row in rows]
    assert found.guard.stored == (guard is not None)
    assert found.capacity_blocks == ROOMY and 0 <= found.guard.trusted <= 1


def test_a_guard_without_credit_trusts_less(chat, mixed):
    shares = [
        explain(learned(mixed, guard=guard), chat, ROOMY, repeats=1).guard.trusted
        for guard in (Guard(credit=0.0), Guard(credit=1e3, patience=1e3))
    ]
    assert shares[0] < 1 and shares[1] == 1


def test_it_says_the_same_again_and_in_json(chat, mixed):
    policy = learned(mixed)
    one, again, other = (
        explain(policy, chat, 0.1, repeats=2, seed=seed, top=2) for seed in (3, 3, 4)
    )
    assert one == again and one.inputs != other.inputs
    assert [d.input for d in one.dependence] == [i.input for i in one.inputs[:2]]
    json.dumps(one.as_dict(), allow_nan=False)


def test_the_future_of_uncounted_requests_does_not_matter(chat, mixed):
    """Only counted requests are examples, and all of them are looked at."""
    found = explain(learned(mixed), chat, ROOMY, warmup=0.5, repeats=1)
    assert all(e.request > chat.n_requests / 2 for e in found.won + found.lost)
    assert found.definitions["counted"].startswith("requests 201 to 400")


def test_nothing_to_gain_is_said(known, teller):
    whole = explain(learned(teller), known, known.n_blocks, repeats=1)
    assert "nothing has to leave" in whole.notes[0] and not whole.won + whole.lost
    found = explain(learned(teller), first_requests(known, 20), 10, repeats=1)
    assert "There is no gap between LRU and the bound" in found.notes[0]
    assert "as LRU did" in found.notes[1]
    assert not explain(learned(teller), known, ROOM, repeats=1).notes


def test_only_learned_policies_are_explained(chat):
    for name in ("lru", "perc", "arc"):
        with pytest.raises(InputError, match=f"policy {name} is not a learned one"):
            explain(registry[name](), chat)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"capacity": 0}, "holds none"),
        ({"capacity": 1e-9}, "holds none"),
        ({"capacity": "10,20"}, "give one"),
        ({"top": -1}, "top is -1"),
        ({"top": 29}, "top is 29, must be a whole number from 0 to 28"),
        ({"repeats": 0}, "repeats is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"warmup": 1.0}, "warm-up share"),
    ],
)
def test_settings_out_of_range(known, teller, change, said):
    with pytest.raises(InputError, match=said):
        explain(learned(teller), known, **{"capacity": ROOM, **change})
