"""The table: everything legible at 80 columns, losers marked."""

import io

from rich.console import Console

from perc.report.tables import comparison_table

LRU = [0, 50, 100, 150, 200]
RED = "\x1b[31m"


def lines(result, **kwargs) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80, **kwargs).print(comparison_table(result))
    return out.getvalue().splitlines()


def test_a_row_holds_the_numbers(comparison):
    (row,) = [x for x in lines(comparison(LRU, [4], good=[210])) if "good" in x]
    assert row.split() == ["4", "good", "21.00%", "50.00%", "2.00", "99.5", "no", "gap"]


def test_gap_is_signed(comparison):
    rows = lines(comparison(LRU, [4], gap=-0.125, poor=[10]))
    assert any(row.rstrip().endswith("-12.5%") for row in rows)


def test_bounds_have_a_star(comparison):
    rows = lines(comparison(LRU, [4], clairvoyant=["belady"], lru=[1], belady=[2]))
    assert any("belady*" in row for row in rows)
    assert not any("lru*" in row for row in rows)


def test_the_capacity_is_named_once(comparison):
    rows = lines(comparison([0] * 5000, [1234, 4321], a=[1, 1], b=[1, 1]))
    assert [sum(size in row for row in rows) for size in ("1,234", "4,321")] == [1, 1]


def test_long_names_break_and_numbers_do_not(comparison):
    name = "perc_published:horizon_s=10:default_rate_per_s=0.01"
    rows = lines(comparison(LRU, [123_456_789], **{name: [210]}))
    text = " ".join(rows)
    assert max(map(len, rows)) <= 80 and "…" not in text
    for cell in ("123,456,789", "21.00%", "50.00%", "2.00", "99.5", "no gap"):
        assert cell in text
    column = rows[next(i for i, row in enumerate(rows) if "123,456" in row) :]
    assert name.startswith(column[0].split()[1])


def test_losers_are_red_with_and_without_a_gap(comparison):
    for gap in (-0.1, None):
        result = comparison(LRU, [4], gap=gap, lru=[200], poor=[199], good=[201])
        rows = lines(result, force_terminal=True, color_system="standard")
        red = [row for row in rows if RED in row]
        assert len(red) == 1 and "poor" in red[0]
