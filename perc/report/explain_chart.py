"""An explanation as one picture: importance above, partial dependence below."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt

from perc.explanation import INPUTS, Dependence, Explanation
from perc.report.chart import save_html, save_png
from perc.report.explain_tables import duration

COLUMNS = 3  # of small multiples
WIDTH = 200
TICKS = [0, *(10**k for k in range(8))]


def writer(found: Explanation, path: Path) -> Callable[[Path], None]:
    """Writes the picture as what the path ends in, one of `PICTURES`."""
    chart = explain_chart(found)
    if path.suffix == ".html":
        return save_html(chart)
    if path.suffix == ".png":
        return save_png(chart)
    return lambda file: chart.save(str(file), format="svg")


def explain_chart(found: Explanation) -> alt.TopLevelMixin:
    """Bars of importance with their range, and a line an age for each input shown."""
    parts: list[Any] = [_bars(found)]
    if found.dependence:
        every = [w for one in found.dependence for line in one.worth for w in line]
        domain = [min(every) / 1.2, max(every) * 1.2]
        lines = [_lines(one, domain) for one in found.dependence]
        parts.append(alt.concat(*lines, columns=COLUMNS).resolve_scale(color="shared"))
    return alt.vconcat(
        *parts,
        title=alt.Title(
            f"What the policy goes by on {found.trace['source']}",
            subtitle=[
                f"{found.capacity_blocks:,} blocks; block hits: LRU {found.lru:.1%}, "
                f"policy {found.block_hit_ratio:.1%}, bound {found.bound:.1%}; "
                f"counted: {found.definitions['counted']}",
                "above: points of block hit ratio lost when an input is shuffled, and "
                "their range",
                "below: hits per block and minute that an idle block is thought worth "
                "if the input had another value",
            ],
        ),
    )


def _bars(found: Explanation) -> alt.TopLevelMixin:
    values = [
        {"input": i.input, "lost": i.mean, "low": i.low, "high": i.high}
        for i in found.inputs
        if not i.constant
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        alt.X("input:N", sort=None, title=None).axis(labelAngle=-45)
    )
    bars = base.mark_bar().encode(
        alt.Y("lost:Q", title="points lost"),
        tooltip=["input:N", *(alt.Tooltip(f"{n}:Q") for n in ("lost", "low", "high"))],
    )
    ranges = base.mark_rule().encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    return alt.layer(bars, ranges).properties(width=COLUMNS * (WIDTH + 50), height=160)


def _lines(one: Dependence, domain: list[float]) -> alt.Chart:
    ages = [duration(age) for age in one.ages_s]
    values = [
        {"value": value, "worth": worth, "idle": age}
        for age, line in zip(ages, one.worth, strict=True)
        for value, worth in zip(one.values, line, strict=True)
    ]
    worth = alt.Y("worth:Q", title=None).scale(type="log", domain=domain, nice=False)
    return (
        alt.Chart(alt.Data(values=values), title=one.input)
        .mark_line(point=True)
        .encode(
            _across(one),
            worth.axis(format="~g", tickCount=4),
            alt.Color("idle:N", sort=ages, title="idle for"),
            tooltip=["idle:N", "value:Q", alt.Tooltip("worth:Q", format=".3g")],
        )
        .properties(width=WIDTH, height=140)
    )


def _across(one: Dependence) -> alt.X:
    """The axis of an input: as the network sees it, labelled in the input's unit."""
    unit, _ = INPUTS[one.input]
    x = alt.X("value:Q", title=unit or "count")
    if unit == "share":
        return x.axis(format="%", tickCount=5)
    if unit == "0 or 1":
        return x.axis(values=[0, 1], format="d")
    low, high = one.values[0], one.values[-1]
    ticks = [tick for tick in TICKS if low <= tick <= high]
    each = "format(datum.value, '~s')"  # by itself: 10, 1k; not 0.01k, 1k
    axis = alt.Axis(labelExpr=each, tickCount=4)
    if len(ticks) > 1:
        axis = alt.Axis(labelExpr=each, values=ticks)
    return x.scale(type="symlog", constant=1, domain=[low, high], nice=False).axis(axis)
