"""Miss-ratio curves: one line a policy, the bound beneath them."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import altair as alt

from perc.compare import Comparison


def curve_chart(curves: Comparison, chosen: Comparison) -> alt.TopLevelMixin:
    """Block miss ratio over capacity; dots mark the capacities that were asked for.

    Args:
        curves: on a fine grid of capacities.
        chosen: at the capacities of the comparison.
    """
    policies = list(dict.fromkeys(row.policy for row in curves.rows))
    colour = alt.Color("policy:N", sort=policies, title="policy").scale(
        scheme="tableau10"
    )
    x = alt.X("capacity_blocks:Q", title="capacity (blocks)")
    x = x.scale(type="log", nice=False)
    y = alt.Y("miss_ratio:Q", title="block miss ratio").axis(format="%")
    tooltip = [
        alt.Tooltip("policy:N"),
        alt.Tooltip("capacity_blocks:Q", format=","),
        alt.Tooltip("miss_ratio:Q", format=".2%"),
        alt.Tooltip("token_hit_ratio:Q", format=".2%"),
        alt.Tooltip("recompute_s:Q", format=",.1f"),
    ]
    lines = (
        alt.Chart(alt.Data(values=_values(curves)))
        .mark_line(interpolate="monotone")
        .encode(
            x,
            y.scale(zero=False),
            colour,
            strokeDash=alt.StrokeDash("bound:N", legend=None).scale(
                domain=[False, True], range=[[1, 0], [6, 4]]
            ),
        )
    )
    dots = (
        alt.Chart(alt.Data(values=_values(chosen)))
        .mark_circle(size=50)
        .encode(x, y, colour, tooltip=tooltip)
    )
    return (lines + dots).properties(
        width=640,
        height=400,
        title=alt.Title(
            f"Miss-ratio curves of {curves.trace['source']}",
            subtitle=[
                f"{curves.trace['requests']:,} requests, "
                f"{curves.trace['distinct_blocks']:,} distinct blocks of "
                f"{curves.trace['block_tokens']} tokens; counted: "
                f"{curves.definitions['counted']}",
                "lower is better; dashed: clairvoyant bound, beyond every policy",
            ],
        ),
    )


def _values(result: Comparison) -> list[dict]:
    return [
        {
            **asdict(row),
            "miss_ratio": 1 - row.block_hit_ratio,
            "bound": row.policy in result.clairvoyant,
        }
        for row in result.rows
        if row.capacity_blocks > 0  # a logarithmic axis has no zero
    ]


def save_png(chart: alt.TopLevelMixin) -> Callable[[Path], None]:
    """A writer of the chart as PNG at twice the screen's resolution."""
    return lambda path: chart.save(str(path), format="png", scale_factor=2)


def save_html(chart: alt.TopLevelMixin) -> Callable[[Path], None]:
    """A writer of the chart as one page that needs no network."""
    return lambda path: chart.save(str(path), format="html", inline=True)
