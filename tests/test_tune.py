"""The search for parameters: what it finds, and what it must not look at."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import perc
from perc.bootstrap import Measure
from perc.compare import run
from perc.cost import DEFAULT_COST
from perc.errors import InputError
from perc.metrics import measure
from perc.policies.registry import registry
from perc.report.tune_tables import sentences
from perc.traces.build import Columns, build_trace
from perc.tune import SPACES, Range, tune
from perc.tune_search import first_requests, halve, rung_lengths
from perc.types import Policy, Trace
from tests.strategies import traces

SIZES = [40, 150]
BLOCK = Measure("block_hit_ratio")


def _newest_first(params, f):
    return params["weight"] * f.step


def lru_or_mru(*, weight: float = -1.0) -> Policy:
    """LRU with a weight above 0, and with one below 0 the worst there is."""
    return Policy({"weight": np.float32(weight)}, _newest_first, "toy", ("step",))


def indifferent(*, knob: float = 3.0, count: int = 4) -> Policy:
    """Whatever is turned here, it is LRU."""
    return Policy({"weight": np.float32(1)}, _newest_first, "deaf", ("step",))


def tuned(trace, constructor=registry["perc_decay"], **kwargs):
    options = {"capacities": SIZES, "samples": 12, "bootstrap": 50, **kwargs}
    return tune(trace, constructor, **options)


def columns(trace: Trace) -> Columns:
    return Columns(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        ids=trace.block,
        lengths=trace.stop - trace.start,
        session=trace.session.tolist(),
        turn=trace.turn,
        kind=trace.kind.tolist(),
    )


def rebuilt(trace: Trace, order: np.ndarray) -> Trace:
    """The same arrivals with the prompts in another order."""
    old = columns(trace)
    rows = np.split(old.ids, np.cumsum(old.lengths)[:-1])
    return build_trace(
        dataclasses.replace(
            old,
            input_tokens=old.input_tokens[order],
            ids=np.concatenate([rows[r] for r in order]),
            lengths=old.lengths[order],
            session=[trace.session[r] for r in order],
            turn=trace.turn[order],
        ),
        block_tokens=trace.block_tokens,
        source=trace.source,
    )


@pytest.fixture(scope="module")
def loops() -> Trace:
    """Forty pairs of sessions; two by turns ask for their own block, four times each.

    Two blocks hold a pair. LRU then misses the first use of each block only; what keeps
    the oldest is stuck with the first pair's.
    """
    session = np.concatenate([np.tile([2 * k, 2 * k + 1], 4) for k in range(40)])
    n = len(session)
    return build_trace(
        Columns(
            arrival_s=np.arange(float(n)),
            input_tokens=np.full(n, 4),
            output_tokens=np.ones(n, np.int64),
            ids=session,
            lengths=np.ones(n, np.int64),
            session=session.tolist(),
        ),
        block_tokens=4,
        source="loops",
    )


def test_it_finds_what_is_there_to_find(loops):
    space = {"weight": Range(-1, 1)}
    found = tuned(loops, lru_or_mru, capacities=[2], space=space)
    assert found.parameters["weight"] > 0 and found.defaults == {"weight": -1.0}
    rows = {row.contestant: row for row in found.judged.rows}
    assert rows["tuned"].held_out == rows["lru"].held_out == pytest.approx(0.75)
    assert rows["default"].held_out < 0.1 and rows["tuned"].gap_closed is None
    over = found.judged.mean_margin("default")
    assert over.low is not None and over.low > 0.5
    lru = found.judged.mean_margin("lru")
    assert (lru.value, lru.low, lru.high) == (0.0, 0.0, 0.0)


def test_what_the_mean_hides_is_said(loops):
    found = tuned(
        loops, lru_or_mru, capacities=[2], space={"weight": Range(-1, -0.5)}, samples=2
    )
    said = " ".join(sentences(found))
    assert "Nothing better than the default parameters was found" in said
    assert "not clearly above 0. Keep LRU." in said
    assert "Fewer block hits than LRU at 2 (-7" in said
    worse = dataclasses.replace(found.judged.mean_margin("default"), capacity_blocks=2)
    worse = dataclasses.replace(worse, value=-0.1, low=-0.2, high=-0.05)
    judged = dataclasses.replace(found.judged, margins=[*found.judged.margins, worse])
    said = sentences(dataclasses.replace(found, judged=judged))
    assert "Clearly behind the default at 2 (-10.00)." in said


def test_what_changes_nothing_leaves_the_default(loops):
    space = {"knob": Range(0.1, 10, log=True), "count": Range(1, 9)}
    found = tuned(loops, indifferent, capacities=[2], space=space)
    assert found.parameters == found.defaults == {"knob": 3.0, "count": 4}
    assert {(m.value, m.low, m.high) for m in found.judged.margins} == {(0, 0, 0)}


def test_whole_numbers_are_drawn_where_they_are_asked_for(loops):
    seen = []

    def constructor(*, count: int = 4) -> Policy:
        seen.append(count)
        return indifferent(count=count)

    tuned(loops, constructor, capacities=[2], space={"count": Range(1, 9)})
    assert all(isinstance(count, int) and 1 <= count <= 9 for count in seen)
    assert len(set(seen)) > 3


def test_rows_are_those_of_a_replay_of_everything(small_chat):
    found = tuned(small_chat, train=0.4)
    policy = registry["perc_decay"](**found.parameters)
    hits = run(policy, small_chat, SIZES)
    own = [row for row in found.judged.rows if row.contestant == "tuned"]
    training = first_requests(small_chat, 120)
    before = run(policy, training, SIZES)
    for k, row in enumerate(own):
        counted = measure(small_chat, hits[k], warmup_requests=120)
        assert row.recompute_s == counted.recompute_s
        assert row.block_hit_ratio == counted.block_hit_ratio
        asked = DEFAULT_COST.prefill_s(small_chat.input_tokens[120:]).sum()
        assert row.held_out == pytest.approx(1 - counted.recompute_s / asked)
        asked = DEFAULT_COST.prefill_s(training.input_tokens).sum()
        saved = 1 - measure(training, before[k]).recompute_s / asked
        assert row.train == pytest.approx(saved)


@pytest.mark.parametrize("objective", ["block_hit_ratio", "token_hit_ratio"])
def test_the_objective_is_what_is_scored(small_chat, objective):
    found = tuned(small_chat, objective=objective)
    for row in found.judged.rows:
        assert row.held_out == pytest.approx(getattr(row, objective))
    ahead = [
        sum(row.train for row in found.judged.rows if row.contestant == name)
        for name in ("tuned", "default")
    ]
    assert ahead[0] >= ahead[1]


def test_the_choice_never_sees_the_held_out_part(small_chat):
    half = small_chat.n_requests // 2
    shuffled = np.arange(small_chat.n_requests)
    np.random.default_rng(0).shuffle(shuffled[half:])
    once, other = tuned(small_chat), tuned(rebuilt(small_chat, shuffled))
    shorter = first_requests(small_chat, 220)
    cut = tuned(shorter, train=150 / 220)
    for found in (other, cut):
        assert found.parameters == once.parameters and found.rungs == once.rungs
        assert [r.train for r in found.judged.rows] == [
            r.train for r in once.judged.rows
        ]
    changed = [r.held_out for r in other.judged.rows]
    assert changed != [r.held_out for r in once.judged.rows]


@settings(deadline=None, max_examples=30)
@given(traces(max_requests=14), st.integers(1, 13), st.sampled_from(list(registry)))
def test_the_first_requests_know_nothing_of_later_ones(trace, n, name):
    assume(n <= trace.n_requests)
    cut = first_requests(trace, n)
    assert cut.n_requests == n and (cut.next < cut.n_accesses).all()
    assert ((cut.next >= 0).sum()) == (cut.prev >= 0).sum()
    policy = registry[name]()
    if not policy.clairvoyant:
        whole, part = (run(policy, t, [0, 1, 2, 5]) for t in (trace, cut))
        assert (whole[:, :n] == part).all()


def test_halving_finds_what_a_full_search_finds(loops):
    candidates = [lru_or_mru(weight=w) for w in np.linspace(-1, 0.5, 40)]
    common = {"measure": BLOCK, "cost": DEFAULT_COST}
    full, one = halve(candidates, loops, [2], keep=1, **common)
    best, rungs = halve(candidates, loops, [2], keep=4, **common)
    assert best == full and [r.configurations for r in one] == [40]
    # A quarter, then eight, and each time the default, which is not among them.
    assert [r.configurations for r in rungs] == [40, 11, 9, 9]
    assert [r.requests for r in rungs] == [40, 80, 160, 320]


def test_a_rung_has_to_overflow_the_largest_cache(small_chat):
    n = small_chat.n_requests
    assert rung_lengths(small_chat, 1) == [n // 8, n // 4, n // 2, n]
    for size in (300, 1000, 10**6):
        *early, last = rung_lengths(small_chat, size)
        assert last == n
        assert all(first_requests(small_chat, m).n_blocks >= 2 * size for m in early)


def test_progress_is_told(small_chat):
    told = []
    tuned(small_chat, progress=lambda *step: told.append(step), halving=1)
    assert [step[:2] for step in told] == [(i, 13) for i in range(1, 14)]


def test_reruns_are_bit_identical_and_fit_json(small_chat):
    first, second = (tuned(small_chat).as_dict() for _ in range(2))
    assert json.dumps(first, allow_nan=False) == json.dumps(second, allow_nan=False)
    assert first["rungs"][-1]["requests"] == 150
    other = tuned(small_chat, seed=1)
    assert other.definitions["search"] != first["definitions"]["search"]


def test_ranges_are_drawn_as_they_say():
    assert Range(2, 4).draw(0.25) == 2.5 and Range(5, 5).draw(0.3) == 5
    log = Range(10, 1000, log=True)
    assert [log.draw(u) for u in (0.0, 0.5, 1.0)] == [10, 100, 1000]
    assert log.draw(1 / 3) == 46.42  # four digits, as it is printed
    assert Range(1.23456, 1.23459).draw(0) == 1.23459  # 1.235 would be outside


@pytest.mark.parametrize(
    "low, high, log", [(2, 1, False), (0, 1, True), (0, np.inf, False), (np.nan, 1, 0)]
)
def test_no_range_is_refused(low, high, log):
    with pytest.raises(InputError, match="is no range"):
        Range(low, high, log=bool(log))


def test_an_online_policy_is_tuned_like_any_other(small_chat):
    """Its rows are those of a replay of everything, for the values that it found."""
    found = tuned(small_chat, registry["perc"], samples=4, capacities=[60, 300])
    assert set(found.parameters) == {"smoothing", "horizon_s", "cost_weight"}
    winner = registry["perc"](**found.parameters)
    hits = perc.replay_online(small_chat, winner, [60, 300]).blocks
    held_out = small_chat.n_requests // 2
    rows = {(r.contestant, r.capacity_blocks): r for r in found.judged.rows}
    for size, row in zip([60, 300], hits, strict=True):
        expected = measure(small_chat, row, warmup_requests=held_out)
        assert rows["tuned", size].block_hit_ratio == expected.block_hit_ratio


@pytest.mark.parametrize("name", SPACES)
def test_the_ranges_of_the_policies_fit_their_constructors(name):
    space = SPACES[name]
    for end in ("low", "high"):
        registry[name](**{key: getattr(r, end) for key, r in space.items()})


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"samples": 0}, "samples is 0"),
        ({"halving": 0}, "halving is 0"),
        ({"bootstrap": -1}, "bootstrap is -1"),
        ({"train": 0.0}, "training share of 0.0"),
        ({"train": 1.0}, "training share of 1.0"),
        ({"train": 0.001}, "training share of 0.001"),
        ({"train": float("nan")}, "training share of nan"),
        ({"objective": "speed"}, "no objective 'speed'"),
        ({"capacities": []}, "no capacity given"),
        ({"space": {"tau": Range(0, 1)}}, "no number 'tau' to tune. It has: tau_s"),
        ({"constructor": registry["lru"]}, "It has no parameters to tune"),
        ({"constructor": lru_or_mru}, "--space weight=0.1:10:log"),
        ({"space": {"tau_s": Range(-2, -1)}}, "tau_s is -"),
    ],
)
def test_bad_input_is_named(small_chat, wrong, words):
    with pytest.raises(InputError, match=words):
        tuned(small_chat, **wrong)


@pytest.mark.real_trace
def test_perc_tuned_on_one_half_is_not_below_lru_on_the_other(traces_folder):
    from perc.traces import load

    trace = load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    found = tuned(trace, capacities=[3000, 10_000], samples=32)
    rows = {(r.contestant, r.capacity_blocks): r for r in found.judged.rows}
    for size in (3000, 10_000):
        lru, own = rows["lru", size], rows["tuned", size]
        assert own.held_out >= lru.held_out
        assert own.block_hit_ratio >= lru.block_hit_ratio
        assert own.recompute_s <= lru.recompute_s
