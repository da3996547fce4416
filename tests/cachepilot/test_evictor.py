"""The block-level benchmark, its digits by seed, and what stands beside them."""

import pytest

from perc.cachepilot.evictor import benchmark, draw, reduction
from perc.compare import compare
from perc.errors import InputError
from tests.test_step import trace_of

ROWS = """
2000 1000 42 1169.173253 5659.718798 79.342202 5484.10 2716.77 2740.70 2973.6
2000 1000 7 1225.164738 5509.320036 77.761961 5468.98 2745.13 3000.26 3238.6
2000 1000 99 1060.835467 5093.786216 79.173930 5102.31 2535.79 2562.74 2816.7
2000 1000 13 1289.790329 5492.355306 76.516626 5427.96 2845.14 2900.63 3327.7
2000 1000 55 1193.474463 5545.876432 78.479967 5347.73 2719.46 2865.13 3093.4
1000 500 42 634.919170 2907.985459 78.166357 2785.79 1379.84 1460.14 1594.2
"""


@pytest.mark.parametrize("policy", ["lru", "perc", "perc_decay", "workload_aware"])
@pytest.mark.parametrize("others, reusable", [(1, 7), (4, 4)])
def test_a_chain_loses_its_tail(policy, others, reusable):
    """Eight blocks of one prompt, then room for others is needed.

    CachePilot drops the first block, and with it the use of all eight.
    """
    chain = list(range(8))
    trace = trace_of([chain, chain, *([8 + i] for i in range(others)), chain])
    found = compare(trace, [policy], [8], keep_hits=True)
    assert found.hits is not None
    assert found.hits[policy][0, -1] == reusable


@pytest.mark.parametrize("line", ROWS.strip().splitlines())
def test_published_digits(line):
    n, k, seed, perc, lru, percent, *others = line.split()
    rows = benchmark(int(n), int(k), int(seed))
    cost = {row.order: row.cost_s for row in rows}
    assert cost["perc"] == pytest.approx(float(perc), abs=5.1e-7)
    assert cost["lru"] == pytest.approx(float(lru), abs=5.1e-7)
    assert 100 * reduction(rows) == pytest.approx(float(percent), abs=5.1e-7)
    names = ("random", "shortest", "lowest rate", "lru, consistent ages")
    for name, printed in zip(names, others, strict=True):
        assert cost[name] == pytest.approx(float(printed), abs=0.051), name


def test_first_blocks():
    first = draw(2000, 42)
    assert first.tokens[:2].tolist() == [5302, 6097]
    assert first.rate_per_s[:2].round(6).tolist() == [1.506960, 1.347314]
    assert first.age_s[:2].round(4).tolist() == [66.9632, 203.0098]
    assert round((first.rate_per_s <= 0.010001).mean(), 3) == 0.279


def test_perc_frees_less_for_its_cost():
    rows = {row.order: row for row in benchmark()}
    assert round(rows["perc"].tokens / rows["lru"].tokens, 2) == 0.73
    # One draw of who returns agrees with the expectation to some percent.
    for row in rows.values():
        assert row.realised_s == pytest.approx(row.cost_s, rel=0.1), row.order


def test_more_evictions_than_blocks_are_refused():
    with pytest.raises(InputError):
        benchmark(10, 11)
