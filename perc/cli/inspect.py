"""`perc inspect`: what a trace is like, before any policy is tried on it."""

import json as json_module
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace

TURNS_SHOWN = 6


def inspect_trace(
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    *,
    json: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Describe a trace: size, lengths, sessions, and what a cache could gain at best.

    Args:
        trace: file of the trace; for RAGPulse its folder or archive.
        json: print one JSON object instead of tables.
        loading: how to read the trace.

    Raises:
        InputError: if the file or a flag is not as it must be.
    """
    from perc.summary import summarize

    facts = summarize(open_trace(trace, loading))
    if json:
        print(json_module.dumps(facts, allow_nan=False))
        return
    from perc.report.console import plain_console

    console = plain_console(highlight=True)
    for title, rows in _tables(facts):
        console.print(title, markup=False, highlight=False)
        console.print(_table(rows))


def _table(rows: list[tuple[str, ...]]):
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column()
    for _ in range(max(len(row) for row in rows) - 1):
        table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _tables(facts: dict[str, Any]) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [
        (facts["source"], _size_rows(facts)),
        ("with an infinite cache", _cache_rows(facts)),
        ("per request", _quantile_rows(facts)),
        ("turns", _turn_rows(facts)),
        ("kinds", [(kind, f"{n:,}") for kind, n in facts["kinds"].items()]),
    ]


def _size_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    inferred = " (inferred by prefix)" if facts["sessions_inferred"] else ""
    return [
        ("requests", f"{facts['requests']:,}"),
        ("sessions" + inferred, f"{facts['sessions']:,}"),
        ("span", f"{facts['span_s']:,.0f} s"),
        ("rate", f"{facts['requests_per_s']:.3g} requests/s"),
        ("block", f"{facts['block_tokens']:,} tokens"),
        ("block accesses", f"{facts['accesses']:,}"),
        ("distinct blocks", f"{facts['blocks']:,}"),
        ("longest request", f"{facts['longest_request_blocks']:,} blocks"),
        ("input tokens", f"{facts['input_tokens']:,}"),
        ("output tokens", f"{facts['output_tokens']:,}"),
    ]


def _cache_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        ("block hit ratio", f"{facts['ideal_block_hit_ratio']:.1%}"),
        ("token hit ratio", f"{facts['ideal_token_hit_ratio']:.1%}"),
        ("blocks never reused", f"{facts['never_reused_share']:.1%}"),
        ("accesses of a partial block", f"{facts['partial_share']:.1%}"),
    ]


def _quantile_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    points = ("p10", "p50", "p90", "p99")
    names = {
        "request_input_tokens": "input tokens",
        "request_output_tokens": "output tokens",
        "follow_up_gap_s": "gap to the next turn, s",
        "reuse_time_s": "reuse time of a block, s",
    }
    rows: list[tuple[str, ...]] = [("", *points)]
    for key, name in names.items():
        values = [(facts[key] or {}).get(point) for point in points]
        rows.append((name, *("no data" if x is None else _short(x) for x in values)))
    return rows


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _turn_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("turn", "requests", "continued")]
    pairs = list(zip(facts["turns"], facts["continued"], strict=True))
    for k, (n, share) in enumerate(pairs[:TURNS_SHOWN], start=1):
        rows.append((str(k), f"{n:,}", f"{share:.1%}"))
    if len(pairs) > TURNS_SHOWN:
        more = sum(facts["turns"][TURNS_SHOWN:])
        rows.append((f"{TURNS_SHOWN + 1} to {len(pairs)}", f"{more:,}", ""))
    return rows
