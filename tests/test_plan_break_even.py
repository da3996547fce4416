"""From which reuse on offloading pays: the formula against playing it out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.hardware import link
from perc.plan import plan
from perc.plan_break_even import (
    break_even,
    break_evens,
    returns,
)
from perc.traces.build import Columns, build_trace
from tests.strategies import traces

SECONDS = st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 8.0])


def seconds_of(history, stores, recompute_s, reload_s, write_s):
    """What it takes to serve a block's returns, one after the other."""
    spent = write_s if stores else 0.0
    for _ in range(history):
        spent += reload_s if stores else recompute_s
    return spent


@settings(deadline=None, max_examples=200)
@given(SECONDS, SECONDS, SECONDS, st.lists(st.integers(0, 4), min_size=1, max_size=12))
def test_it_pays_above_the_break_even(recompute_s, reload_s, write_s, histories):
    """`histories`: how often each of some blocks returned."""
    prices = (recompute_s, reload_s, write_s)
    stored, dropped = (
        sum(seconds_of(history, stores, *prices) for history in histories)
        for stores in (True, False)
    )
    least = break_even(*prices)
    share = np.mean(histories)
    if least is None:
        assert stored > dropped
    elif share != pytest.approx(least):
        assert (stored < dropped) == (share > least)


def test_by_hand():
    assert break_even(5.0, 1.0, 1.0) == 0.25
    assert break_even(2.0, 1.0, 3.0) == 3.0  # it must return three times
    assert break_even(1.0, 1.0, 0.0) is None
    assert break_even(1.0, 2.0, 0.0) is None


@settings(deadline=None, max_examples=60)
@given(traces())
def test_returns_are_those_of_a_count(trace):
    used: dict[int, int] = {}
    cases: dict[int, list[bool]] = {1: [], 2: [], 3: []}
    reached = dict.fromkeys(cases, 0)
    blocks = trace.block.tolist()
    for i, block in enumerate(blocks):
        used[block] = used.get(block, 0) + 1
        uses = min(used[block], 3)
        cases[uses].append(block in blocks[i + 1 :])
        if used[block] <= 3:
            reached[uses] += 1
    found = {row.uses: row for row in returns(trace)}
    for uses, again in cases.items():
        assert found[uses].blocks == reached[uses]
        assert found[uses].share == pytest.approx(np.mean(again) if again else 0.0)


@pytest.fixture(scope="module")
def documents():
    columns = Columns(
        arrival_s=np.arange(4.0),
        input_tokens=np.full(4, 48),
        output_tokens=np.ones(4, np.int64),
        ids=np.array([0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1, 2]),
        lengths=np.full(4, 3),
    )
    return build_trace(columns, block_tokens=16, source="documents")


def test_a_row_a_link(documents):
    way, size = link("nvme4"), 16 * 131_072
    (row,) = break_evens(documents, 131_072, DEFAULT_COST, ["nvme4"])
    move_s = 100e-6 + size / (way.bytes_per_s * way.efficiency)
    first_s = float(DEFAULT_COST.prefill_s(16))
    middle_s = float(DEFAULT_COST.prefill_s(32) - DEFAULT_COST.prefill_s(16))
    assert row.link == "nvme4" and row.recompute_first_s == first_s
    assert (row.write_s, row.recompute_middle_s) == pytest.approx((move_s, middle_s))
    assert row.first == pytest.approx(move_s / (first_s - move_s))
    assert row.middle == pytest.approx(move_s / (middle_s - move_s))


def test_slow_links_and_cheap_models_never_pay(documents):
    nothing = PrefillCost("free", 1e-12, 0.0)
    (row,) = break_evens(documents, 131_072, nothing, ["nvme4"])
    assert row.first is None and row.middle is None
    fast, slow = break_evens(documents, 131_072, DEFAULT_COST, ["pcie5", "pcie3"])
    assert fast.first is not None and slow.first is not None
    assert fast.first < slow.first


def test_the_plan_reports_it(documents):
    found = plan(documents, ["lru"], bootstrap=0, links=["pcie5", "nvme5"])
    assert [row.link for row in found.break_even] == ["pcie5", "nvme5"]
    assert [(row.blocks, row.share) for row in found.returns] == [
        (6, 0.5),
        (3, 1.0),
        (3, 0.0),
    ]
    assert "write_s" in found.definitions["break_even"]
    with pytest.raises(InputError, match="pcie9"):
        plan(documents, ["lru"], links=["pcie9"])
