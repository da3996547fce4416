"""The table of causes: legible at 80 columns, lines that sum to 100 %."""

import io

from rich.console import Console

from perc.attribution import CAUSES, Attribution, Missed, Why
from perc.report.miss_table import explanations, miss_table

MEANINGS = {cause: f"meaning of {cause}" for cause in CAUSES}


def why(name, size, hit, group="all", /, **tokens):
    misses = {cause: Missed(0, tokens.get(cause, 0), 0.0) for cause in CAUSES}
    prompt = hit + sum(tokens.values())
    return Why(name, size, group, 0, prompt, 0, hit, 0, misses)


def lines(*rows) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(miss_table(Attribution(list(rows), MEANINGS)))
    return out.getvalue().splitlines()


def cells(found, word) -> list[str]:
    return next(line.split() for line in found if word in line.split())


def test_a_line_sums_to_100_percent():
    found = lines(why("lru", 4, 5, policy=25, capacity=10, cold=40, rounding=20))
    assert cells(found, "lru") == ["4", "lru", *"5.00 25.00 10.00 40.00 20.00".split()]
    assert (
        cells(found, "cold")
        == "blocks policy hit policy capacity cold rounding".split()
    )


def test_rare_causes_have_a_column_where_they_occur():
    none = lines(why("lru", 4, 5, cold=95))
    assert cells(none, "cold") == "blocks policy hit policy capacity cold".split()
    rows = (
        why("lru", 4000, 4, retention=25, hybrid=10, cold=60, rounding=1),
        why("fifo", 4000, 50, policy=50),
    )
    found = lines(*rows)
    assert cells(found, "cold")[3:] == [
        *("hybrid", "retention", "policy", "capacity", "cold", "rounding")
    ]
    assert cells(found, "lru")[2:] == "4.00 10.00 25.00 0.00 0.00 60.00 1.00".split()
    assert cells(found, "fifo")[:3] == ["fifo", "50.00", "0.00"]
    said = explanations(Attribution(list(rows), MEANINGS))
    assert said[0] == "hybrid: meaning of hybrid." and len(said) == 6


def test_groups_have_a_column_and_a_capacity_is_named_once():
    found = lines(*(why("lru", 4000, 1, turn, cold=1) for turn in ("1", "2", "6+")))
    assert [line.split()[:3] for line in found if "50.00" in line] == [
        ["4,000", "lru", "1"],
        ["lru", "2", "50.00"],
        ["lru", "6+", "50.00"],
    ]


def test_long_names_break_and_nothing_asked_is_0():
    name = "perc_published:horizon_s=10:default_rate_per_s=0.01"
    found = lines(why(name, 123_456_789, 0, hybrid=0, retention=0))
    assert max(map(len, found)) <= 80 and not any("…" in line for line in found)
    assert cells(found, "123,456,789")[-4:] == ["0.00"] * 4
