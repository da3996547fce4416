"""Charts of a page: SVG that takes its ink from the page, light or dark."""

import math

import altair as alt
import polars as pl
import vl_convert

# Colours that `themed` finds again in the drawing.
INK, GRID = "#010203", "#010204"
WIDTH, HEIGHT = 640, 320
LEAST = 1e-9


def curves(table: pl.DataFrame, bounds: list[str]) -> str:
    """Block miss ratio over capacity with its band, bounds dashed."""
    table = table.filter(pl.col("capacity_blocks") > 0).with_columns(
        miss=1 - pl.col("block_hit_ratio"), bound=pl.col("policy").is_in(bounds)
    )
    banded = "block_hit_ratio_low" in table.columns
    if banded:
        table = table.with_columns(
            low=1 - pl.col("block_hit_ratio_high"),
            high=1 - pl.col("block_hit_ratio_low"),
        )
    base = alt.Chart(_data(table))
    x = alt.X("capacity_blocks:Q", title="capacity (blocks)")
    x = x.scale(type="log", nice=False)
    y = alt.Y("miss:Q", title="block miss ratio").axis(format="%").scale(zero=False)
    colour = _colour(table)
    line = base.mark_line(interpolate="monotone").encode(
        x,
        y,
        colour,
        strokeDash=alt.StrokeDash("bound:N", legend=None).scale(
            domain=[False, True], range=[[1, 0], [6, 4]]
        ),
    )
    if not banded:
        return drawn(line)
    band = base.mark_area(opacity=0.18).encode(
        x, alt.Y("low:Q"), alt.Y2("high:Q"), _colour(table, legend=False)
    )
    return drawn(alt.layer(band, line).resolve_legend(color="independent"))


def stacked(table: pl.DataFrame, causes: list[str]) -> str:
    """Shares of the prompt tokens by cause, a bar a policy, a panel a capacity."""
    capacities = table["capacity"].unique(maintain_order=True).to_list()
    present = set(table["cause"])
    occurring = [cause for cause in causes if cause in present]
    bars = (
        alt.Chart(_data(table))
        .mark_bar()
        .encode(
            alt.X("share:Q", title="share of the prompt tokens")
            .axis(format="%")
            .scale(domain=[0, 1]),
            alt.Y("policy:N", sort=None, title=None),
            alt.Color("cause:N", title=None)
            .scale(scheme="tableau10", domain=causes)
            .legend(orient="bottom", values=occurring),
            alt.Order("place:Q"),
            alt.Row("capacity:N", sort=capacities, title=None).header(labelAngle=0),
        )
        .properties(width=WIDTH - 160, height=alt.Step(16))
    )
    return drawn(bars, sized=False)


def lines(
    table: pl.DataFrame, x: str, y: str, titles: tuple[str, str], *, log: bool = False
) -> str:
    """`y` over `x`, a line a policy."""
    axis = alt.X(f"{x}:Q", title=titles[0])
    if log:
        table = table.filter(pl.col(x) > LEAST)
        axis = axis.scale(type="log", nice=False)
    chart = (
        alt.Chart(_data(table))
        .mark_line()
        .encode(axis, alt.Y(f"{y}:Q", title=titles[1]), _colour(table))
    )
    return drawn(chart)


def drawn(chart: alt.TopLevelMixin, *, sized: bool = True) -> str:
    """The SVG of a chart, with the page's own ink."""
    if sized:
        chart = chart.properties(width=WIDTH, height=HEIGHT)  # pyright: ignore
    text = dict.fromkeys(("labelColor", "titleColor"), INK)
    chart = chart.configure(background="transparent", font="inherit")  # pyright: ignore
    chart = chart.configure_view(stroke=None).configure_axis(
        gridColor=GRID, domainColor=INK, tickColor=INK, **text
    )
    chart = chart.configure_legend(**text).configure_header(**text)
    return themed(vl_convert.vegalite_to_svg(chart.to_dict()))


def themed(svg: str) -> str:
    """A drawing that fits the width and the colours of what it stands in.

    >>> themed('<svg width="9" height="3" viewBox="0 0 9 3"><path fill="#010203"/>')
    '<svg class="chart" role="img" viewBox="0 0 9 3"><path fill="currentColor"/>'
    """
    head, rest = svg.split(">", 1)
    words = [w for w in head.split(" ") if not w.startswith(("width=", "height="))]
    head = " ".join([words[0], 'class="chart" role="img"', *words[1:]])
    return (
        f"{head}>{rest}".replace(f'="{INK}"', '="currentColor"')
        .replace(f'="{GRID}"', '="currentColor" stroke-opacity="0.15"')
        .replace('font-family="inherit"', "")
    )


def _colour(table: pl.DataFrame, *, legend: bool = True) -> alt.Color:
    policies = table["policy"].unique(maintain_order=True).to_list()
    colour = alt.Color("policy:N", sort=policies).scale(scheme="tableau20")
    # Below: beside the lines a phone would not show it.
    below = alt.Legend(title=None, orient="bottom", columns=5, symbolLimit=0)
    return colour.legend(below if legend else None)


def _data(table: pl.DataFrame) -> alt.Data:
    return alt.Data(
        values=[{k: _finite(v) for k, v in r.items()} for r in table.to_dicts()]
    )


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
