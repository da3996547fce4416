"""KVopt's offline rules by hand; the optimum against all sets; measured reloads."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError
from perc.serving.forced_release import (
    LAB,
    Scenario,
    World,
    linear,
    play,
    programs_of,
)
from perc.serving.release_rules import (
    MOST_CANDIDATES,
    RULES,
    Candidate,
    give_up,
    optimum,
    regret,
    size_scores,
)
from perc.serving.reload_table import ReloadTable, measured_reload

THREE = (
    # program, prefix, deadline, prefill, blocks, reclaimable, code
    Candidate(1, 0, 30.0, 2.0, 10, 4, True),
    Candidate(2, 0, 10.0, 3.0, 6, 6, False),
    Candidate(3, 0, 20.0, 9.0, 8, 3, False),
)
FIRST_TO_LAST = {
    "deadline": [2, 3, 1],
    "prefill": [1, 2, 3],
    "blocks": [2, 3, 1],
    "reclaimable": [3, 1, 2],
    "prefill_per_block": [1, 2, 3],  # 0.5, 0.5: by program; 3
    "tool": [2, 3, 1],
    "tool_prefill": [2, 3, 1],
    "size": [2, 1, 3],  # 8/21, 4/9, 1/2
    "tool_size": [2, 3, 1],
    "reverse_deadline": [1, 3, 2],
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_by_hand(rule):
    for given_in in (THREE, THREE[::-1]):
        found = give_up(given_in, 99, rule)
        assert [one.program for one in found] == FIRST_TO_LAST[rule]


def test_size_is_the_mean_of_three_shares():
    expected = [(0 + 1 + 1 / 3) / 3, (1 / 7 + 0 + 1) / 3, (1 + 1 / 2 + 0) / 3]
    assert size_scores(THREE) == pytest.approx(expected)
    assert size_scores(THREE[:1]) == [0.0] and size_scores([]) == []


def test_a_rule_stops_as_soon_as_it_has_enough():
    assert [one.program for one in give_up(THREE, 6, "deadline")] == [2]
    assert [one.program for one in give_up(THREE, 7, "deadline")] == [2, 3]
    assert give_up(THREE, 0, "deadline") == []
    nothing = THREE[0]._replace(program=0, reclaimable=0)
    assert give_up([nothing, *THREE], 99, "prefill_per_block")[-1] is nothing


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.integers(0, 3),
        st.integers(0, 9),
        st.sampled_from([1.0, 2.0, 3.0]),
        st.sampled_from([0.5, 1.0]),
        st.just(5),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=6,
    unique_by=lambda one: one[:2],
)


@given(CANDIDATES, st.integers(0, 20), st.data())
def test_the_optimum_is_the_best_of_all_sets(candidates, need, data):
    losses = data.draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 2.0])))
    losses = (losses + [1.0] * 6)[: len(candidates)]
    sets = []
    for taken in product([False, True], repeat=len(candidates)):
        picked = [k for k, is_in in enumerate(taken) if is_in]
        if sum(candidates[k].reclaimable for k in picked) >= need:
            loss = math.fsum(losses[k] for k in picked)
            names = sorted(candidates[k][:2] for k in picked)
            sets.append((loss, len(picked), names))
    found = optimum(candidates, losses, need)
    names = sorted(candidates[k][:2] for k in found)
    if sets:
        loss, size, first = min(sets)
        assert (math.fsum(losses[k] for k in found), len(found)) == (loss, size)
        assert names == first
    else:
        assert len(found) == len(candidates)
    for rule in RULES:
        made = regret(candidates, losses, need, give_up(candidates, need, rule))
        assert made.regret >= -1e-12 and made.loss >= made.optimum - 1e-12


def test_a_regret_is_of_the_size_of_the_optimum():
    losses = [0.0, 3.0, 1.0]
    found = regret(THREE, losses, 7, give_up(THREE, 7, "deadline"))
    assert found == (4.0, 1.0, 3.0, 3.0)  # 2 and 3 instead of 1 and 3
    free = regret(THREE, [0.0] * 3, 7, THREE)
    assert free.regret == free.normalised == 0.0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: give_up(THREE, 1, "oldest"), "no release rule 'oldest'; there are"),
        (
            lambda: optimum(THREE[:1] * (MOST_CANDIDATES + 1), [0.0] * 17, 1),
            "17 candidates have 131,072 sets",
        ),
        (lambda: optimum(THREE, [0.0], 1), "1 losses of 3 candidates"),
        (lambda: regret(THREE[:1], [0.0], 1, THREE[1:2]), "none of the candidates"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# Reloads as measured

PROFILE = {16: 9.52, 32: 11.80, 128: 49.75, 256: 88.73, 512: 171.06}  # ms, KVopt's
TABLE = ReloadTable(tuple(PROFILE), tuple(ms / 1e3 for ms in PROFILE.values()))


def test_reloads_are_lines_between_what_was_measured():
    for tokens, ms in PROFILE.items():
        assert TABLE(tokens) == pytest.approx(ms / 1e3)
    assert TABLE(24) == pytest.approx((9.52 + 11.80) / 2e3)
    assert TABLE(192) == pytest.approx((49.75 + 88.73) / 2e3)
    for tokens in (15, 513):
        with pytest.raises(InputError, match="measured were 16 to 512"):
            TABLE(tokens)
    line = ReloadTable(TABLE.tokens, TABLE.seconds, "linear")
    assert line(768) == pytest.approx(0.17106 + (0.17106 - 0.08873))
    assert line(8) == pytest.approx(0.00952 - 8 * (0.01180 - 0.00952) / 16)


def test_a_measured_table_is_of_medians():
    pairs = {8: [(1.0, 0.5), (9.0, 0.5), (2.0, 0.5)], 4: [(0.25, 0.0)]}
    assert measured_reload(pairs) == ReloadTable((4, 8), (0.25, 1.5))


def test_a_table_is_played_in_the_lab():
    """And what it does not know stops the run, rather than being made up."""
    short = Scenario("short", 300, 16, (512,), ("search",), 1.0)
    line = ReloadTable(TABLE.tokens, TABLE.seconds, "linear")

    def run(reload):
        world = World(short.capacity, reload, order="deadline", owned=True)
        return world.run(programs_of([short])["short"])

    found = run(TABLE)
    assert found == run(line) and found.misses > 0
    # Of 512 tokens, or of the 64 of the programs that warm up.
    low, high = found.misses * TABLE(64), found.misses * TABLE(512)
    assert low < found.recompute_s <= high
    assert found.recompute_s != pytest.approx(run(linear).recompute_s)
    with pytest.raises(InputError, match="32768 tokens"):
        play(LAB[3], reload=TABLE)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ReloadTable((16,), (1.0,)), "two lengths or more"),
        (lambda: ReloadTable((16, 16), (1.0, 2.0)), "from 17 to"),
        (lambda: ReloadTable((1, 2), (1.0, math.nan)), "seconds is nan"),
        (lambda: ReloadTable((1, 2), (1.0, 2.0), "guess"), "refuse, linear"),  # type: ignore[arg-type]
        (lambda: measured_reload({1: [], 2: [(1, 0)]}), "1 tokens: no pair"),
        (lambda: measured_reload({1: [(1, 2)], 2: [(1, 0)]}), "faster than hits"),
    ],
)
def test_tables_that_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()
