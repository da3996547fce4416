"""A plan as a folder: hit ratio over memory with its interval, and the next GiB."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import altair as alt

from perc.files import write_atomically
from perc.plan import Plan
from perc.report.run_folder import provenance
from perc.types import Trace


def write_plan(
    folder: Path, plan: Plan, trace: Trace, *, command: Sequence[str]
) -> list[Path]:
    """Writes plan.json, the curves, what targets need, plan.png and plan.html.

    Args:
        folder: made if absent; files of the same names are replaced.
        plan: of `plan`.
        trace: what was replayed.
        command: how to get the same again.

    Returns:
        The written files.

    Raises:
        InputError: if the folder cannot be written to.
    """
    import polars as pl

    from perc.report.chart import save_html, save_png

    described = {
        **provenance(trace, command),
        **plan.as_dict(),
    }
    text = json.dumps(described, indent=2) + "\n"
    table = pl.DataFrame(map(asdict, plan.points), infer_schema_length=None)
    needs = pl.DataFrame(described["needs"], infer_schema_length=None)
    chart = plan_chart(plan)
    return [
        write_atomically(folder / "plan.json", lambda path: path.write_text(text)),
        write_atomically(folder / "plan.parquet", table.write_parquet),
        write_atomically(folder / "needs.parquet", needs.write_parquet),
        write_atomically(folder / "plan.png", save_png(chart)),
        write_atomically(folder / "plan.html", save_html(chart)),
    ]


def plan_chart(plan: Plan) -> alt.TopLevelMixin:
    """Block hit ratio over GiB with bands, above the prefill that more GiB save."""
    x = alt.X("capacity_gib:Q", title="cache (GiB)").scale(type="log", nice=False)
    policies = list(dict.fromkeys(point.policy for point in plan.points))
    colour = alt.Color(
        "policy:N", sort=policies, legend=alt.Legend(title="policy", symbolOpacity=1)
    ).scale(scheme="tableau10")
    base = alt.Chart(alt.Data(values=_values(plan))).encode(x, colour)
    hits = alt.layer(*_hits(base), _knees(plan, x, colour))
    saved = (
        base.transform_filter("!datum.bound")
        .mark_line(interpolate="step-after")
        .encode(alt.Y("saved_s_per_gib_hour:Q", title="s saved per GiB and hour"))
    )
    return alt.vconcat(
        hits.properties(width=640, height=320),
        saved.properties(width=640, height=140),
        title=alt.Title(
            f"Cache for {plan.trace['source']}",
            subtitle=[
                f"{plan.trace['requests']:,} requests of "
                f"{plan.trace['sessions']:,} sessions; GiB = "
                f"{plan.definitions['capacity_gib']}",
                "band: 95 % interval over sessions; dots: knees; dashed: clairvoyant "
                "bound, which no policy can reach",
            ],
        ),
    )


def _hits(base: alt.Chart) -> tuple[alt.Chart, alt.Chart]:
    dash = alt.StrokeDash("bound:N", legend=None).scale(
        domain=[False, True], range=[[1, 0], [6, 4]]
    )
    ratio = alt.Y("block_hit_ratio:Q", title="block hit ratio").axis(format="%")
    line = base.mark_line().encode(ratio, dash)
    band = base.mark_area(opacity=0.18).encode(
        alt.Y("block_hit_ratio_low:Q"), alt.Y2("block_hit_ratio_high:Q")
    )
    return band, line


def _knees(plan: Plan, x: alt.X, colour: alt.Color) -> alt.Chart:
    values = [asdict(knee) for knee in plan.knees]
    tooltip = [
        alt.Tooltip("policy:N"),
        alt.Tooltip("capacity_gib:Q", format=",.1f"),
        alt.Tooltip("block_hit_ratio:Q", format=".2%"),
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_circle(size=70, opacity=1)
        .encode(x, alt.Y("block_hit_ratio:Q"), colour, tooltip=tooltip)
    )


def _values(plan: Plan) -> list[dict]:
    return [
        {**asdict(point), "bound": point.policy in plan.clairvoyant}
        for point in plan.points
        if point.capacity_blocks > 0  # a logarithmic axis has no zero
    ]
