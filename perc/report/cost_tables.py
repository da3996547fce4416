"""What a deployment costs and what cards can do, as tables and sentences."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from perc.calibration import Calibration, Point
from perc.deployment import CostReport
from perc.hardware import ACCELERATORS, LINKS
from perc.report.plan_tables import gib


def cost_table(report: CostReport) -> Table:
    """One line a figure, in the words of who runs a server."""
    table = _table(f"{report.model} on {report.tp} x {report.accelerator}")
    table.add_column("what", overflow="fold")
    table.add_column("how much", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for section in (_memory(report), _cache(report), _speed(report), _price(report)):
        for row in section:
            table.add_row(*row, end_section=row is section[-1])
    return table


def cost_sentences(report: CostReport) -> list[str]:
    """What needs saying beside the figures."""
    if not report.requests_at_once:
        text = (
            f"It does not fit: {gib(report.weights_gib)} GiB of weights and "
            f"{gib(report.activations_gib)} GiB of activations leave "
            f"{gib(report.kv_budget_gib)} GiB of {gib(report.memory_gib)} GiB for a "
            f"request of {gib(report.kv_request_gib)} GiB."
        )
        if report.least_tp is None:
            return [f"{text} No tensor parallelism of these cards holds it."]
        return [f"{text} The least that holds one is --tp {report.least_tp}."]
    least = report.break_even_tokens
    if least is None:
        return [f"Computing a prefix is always faster than {report.host_link}."]
    if least == 1:
        return [f"Any prefix is faster to load over {report.host_link} than computed."]
    return [
        f"A prefix of {least:,} tokens or more is faster to load over "
        f"{report.host_link} than to compute."
    ]


def _memory(report: CostReport) -> list[tuple[str, str, str]]:
    active = f", {report.active_parameters / 1e9:,.3g} active"
    shown = active if report.active_parameters < report.parameters else ""
    return [
        ("parameters", f"{report.parameters / 1e9:,.4g} billion{shown}", ""),
        ("weights", f"{gib(report.weights_gib)} GiB", f"{report.weights}, each GPU"),
        ("activations", f"{gib(report.activations_gib)} GiB", "each GPU"),
        (
            "room for the KV cache",
            f"{gib(report.kv_budget_gib)} GiB",
            f"of {gib(report.memory_gib)}, each GPU",
        ),
    ]


def _cache(report: CostReport) -> list[tuple[str, str, str]]:
    each, size = report.kv_token_bytes, report.kv_request_gib
    return [
        ("KV cache of a token", f"{each:,.0f} B", f"{report.kv}, each GPU"),
        (
            f"KV cache of {report.context_tokens:,} tokens",
            f"{gib(size)} GiB",
            "each GPU",
        ),
        ("requests at once", f"{report.requests_at_once:,}", "that long"),
    ]


def _speed(report: CostReport) -> list[tuple[str, str, str]]:
    rows = [
        (
            "reload of a request",
            seconds(report.reload_s),
            f"over {report.host_link}",
        )
    ]
    if report.prefill_s is None or report.itl_s is None or report.itl_alone_s is None:
        return rows
    speed = report.tokens_per_s or 0.0
    return [
        (
            "prefill, TTFT alone",
            seconds(report.prefill_s),
            f"{report.prefill_bound}-bound",
        ),
        *rows,
        ("decode alone, ITL", seconds(report.itl_alone_s), ""),
        (
            f"decode of {report.batch:,}, ITL",
            seconds(report.itl_s),
            f"{report.itl_bound}-bound",
        ),
        ("decoded together", f"{speed:,.0f} tokens/s", ""),
    ]


def _price(report: CostReport) -> list[tuple[str, str, str]]:
    out = report.usd_per_million_output_tokens
    into = report.usd_per_million_input_tokens
    if report.usd_per_hour is None:
        return [("price", "unknown", "give --usd-per-hour")]
    rows = [("price of the GPUs", f"{dollars(report.usd_per_hour)} an hour", "")]
    if out is None or into is None:
        return rows
    return [
        *rows,
        ("a million prompt tokens", dollars(into), "computed, none cached"),
        ("a million answer tokens", dollars(out), f"batch of {report.batch:,}"),
    ]


def hardware_table(rows: Sequence[CostReport], title: str) -> Table:
    """The scorecard: one line a card."""
    table = _table(title)
    table.caption = (
        "at once: requests whose caches fit; tok/s: answer tokens a second of one\n"
        "request, of all at once; $/M: a million of those; TFLOPs are dense"
    )
    table.add_column("card", no_wrap=True)
    for name in ("GiB", "TB/s", "BF16\nTFLOPs", "FP8\nTFLOPs", "at\nonce"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("alone\ntok/s", "all\ntok/s", "$/M"):
        table.add_column(name, justify="right", no_wrap=True)
    cards = {card.name: card for card in ACCELERATORS}
    for row in rows:
        card, alone = cards[row.accelerator], row.itl_alone_s
        price = row.usd_per_million_output_tokens
        table.add_row(
            card.name,
            f"{card.memory_gib:.4g}",
            f"{card.bytes_per_s / 1e12:.3g}",
            f"{card.bf16_flops / 1e12:,.0f}",
            "" if card.fp8_flops is None else f"{card.fp8_flops / 1e12:,.0f}",
            f"{row.requests_at_once:,}",
            "" if alone is None else f"{1 / alone:,.1f}",
            "" if row.tokens_per_s is None else f"{row.tokens_per_s:,.0f}",
            "" if price is None else dollars(price),
        )
    return table


def links_table() -> Table:
    """Every link: bandwidth one way, and what is usually reached."""
    table = _table("links, one way")
    table.add_column("link", no_wrap=True)
    for name in ("GB/s", "reached", "latency µs", "1 GiB takes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("both ways", no_wrap=True)
    for way in LINKS:
        table.add_row(
            way.name,
            f"{way.bytes_per_s / 1e9:,.4g}",
            f"{way.efficiency:.0%}",
            f"{way.latency_s * 1e6:.0f}",
            seconds(float(way.time_s(2**30))),
            "at once" if way.duplex else "in turn",
        )
    return table


def calibration_table(points: Sequence[Point], fit: Calibration) -> Table:
    """Measured against fitted, point by point."""
    table = _table("calibration")
    table.add_column("point", no_wrap=True)
    for name in ("tokens", "batch", "measured", "fitted", "off by"):
        table.add_column(name, justify="right", no_wrap=True)
    for point, found, off in zip(points, fit.predicted_s, fit.residuals, strict=True):
        table.add_row(
            point.kind,
            f"{point.tokens:,}",
            f"{point.batch:,}",
            seconds(point.seconds),
            seconds(float(found)),
            f"{off:+.1%}",
        )
    return table


def seconds(value: float) -> str:
    """Three digits, in the unit that a server's times are told in.

    >>> seconds(0.01234), seconds(3.4567), seconds(2.5e-5)
    ('12.3 ms', '3.46 s', '0.025 ms')
    """
    return f"{value:,.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def dollars(value: float) -> str:
    """Two digits behind the point, more where they would hide it.

    >>> dollars(2.49), dollars(0.00123), dollars(0)
    ('$2.49', '$0.0012', '$0.00')
    """
    return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"


def _table(title: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
