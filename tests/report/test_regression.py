"""What changed between two runs, and when it is called a change."""

from pathlib import Path

import polars as pl
import pytest

from perc.report.page.folders import Run
from perc.report.regression import compare_runs, words_of


def compared(ratios, *, half=None, trace="a", name="lru", blocks=100):
    """A run of perc compare with these block hit ratios, one a capacity."""
    rows = [
        {
            "policy": name,
            "capacity_blocks": blocks + i,
            "block_hit_ratio": ratio,
            "block_hit_ratio_low": None if half is None else ratio - half,
            "block_hit_ratio_high": None if half is None else ratio + half,
        }
        for i, ratio in enumerate(ratios)
    ]
    schema = {f"block_hit_ratio_{end}": pl.Float64 for end in ("low", "high")}
    table = pl.DataFrame(rows, schema_overrides=schema)
    about = {"trace_sha256": trace, "trace": {"source": "x"}}
    return Run(Path(f"run {trace}"), "compare", about, {"results": table})


def simulated(p50, goodput, recompute):
    row = {
        "policy": "lru",
        "load": 1.0,
        "ttft_s_p50": p50,
        "goodput_per_s": goodput,
        "recompute_s": recompute,
    }
    return Run(Path("s"), "simulate", {"trace": "x"}, {"results": pl.DataFrame([row])})


def verdicts(old, new):
    return [change.verdict for change in compare_runs(old, new).changes]


def test_on_the_same_trace_every_change_counts_however_small():
    old, new = compared([0.5, 0.5, 0.5]), compared([0.5, 0.5001, 0.4999])
    assert verdicts(old, new) == ["same", "better", "worse"]
    assert [change.at for change in compare_runs(old, new).worse] == [102]


@pytest.mark.parametrize(
    ("new", "verdict"),
    # The half width of a difference of two, each +- 0.03 and 0.04, is 0.05.
    [(0.5, "same"), (0.549, "unsure"), (0.551, "better"), (0.449, "worse")],
)
def test_on_another_trace_a_change_counts_beyond_chance(new, verdict):
    old = compared([0.5], half=0.03)
    assert verdicts(old, compared([new], half=0.04, trace="b")) == [verdict]


def test_without_an_interval_another_trace_tells_nothing():
    assert verdicts(compared([0.5]), compared([0.1], trace="b")) == ["unsure"]


def test_for_some_figures_less_is_better():
    found = compare_runs(simulated(1.0, 5.0, 9.0), simulated(2.0, 6.0, 8.0))
    assert found.same_trace  # one folder
    assert {c.figure: c.verdict for c in found.changes} == {
        "ttft_s_p50": "worse",
        "goodput_per_s": "better",
        "recompute_s": "better",
    }


def test_what_only_one_has_is_said():
    both = pl.concat([compared([0.5]).tables["results"]] * 2)
    both = both.with_columns(policy=pl.Series(["lru", "lfu"]))
    wide = Run(Path("w"), "compare", {"trace_sha256": "a"}, {"results": both})
    found = compare_runs(compared([0.5]), wide)
    assert (found.gone, found.added) == ([], ["lfu"])
    assert "The new run alone has lfu." in words_of(found)
    assert words_of(found)[-1] == "Nothing got worse."
    found = compare_runs(wide, compared([0.5]))
    assert (found.gone, found.added) == (["lfu"], [])
    assert words_of(found)[-1] == "What both have did not get worse."
    found = compare_runs(compared([0.5, 0.6]), compared([0.5]))
    assert found.gone == ["lru at 101 blocks"]


def test_other_requests_of_one_trace_are_not_compared():
    old, new = compared([0.5]), compared([0.5])
    old.about["definitions"] = {"counted": "requests 1 to 10"}
    new.about["definitions"] = {"counted": "requests 6 to 10"}
    with pytest.raises(ValueError, match="counts requests 1 to 10.*same --warmup"):
        compare_runs(old, new)
    new.about["trace_sha256"] = "b"
    assert verdicts(old, new) == ["same"]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="give two runs of perc compare"):
        compare_runs(compared([0.5]), simulated(1, 1, 1))
    with pytest.raises(ValueError, match="no policy at the same capacity_blocks"):
        compare_runs(compared([0.5]), compared([0.5], blocks=7))
