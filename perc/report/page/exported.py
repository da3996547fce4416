"""Figures of finished runs for Prometheus, and what each is called there."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from perc.errors import InputError
from perc.report.page.listing import Entry, list_runs

# Of a command: column of results.parquet, the name in Prometheus, what it says.
EXPORTED = {
    "compare": [
        ("block_hit_ratio", "perc_block_hit_ratio", "Blocks hit / blocks looked up"),
        ("token_hit_ratio", "perc_token_hit_ratio", "Prompt tokens hit / all of them"),
        ("recompute_s", "perc_recompute_seconds", "Prefill of what was not cached"),
    ],
    "compare --rules": [
        ("block_hit_ratio", "perc_ruled_block_hit_ratio", "Block hits with rules"),
        (
            "without_block_hit_ratio",
            "perc_ruled_without_block_hit_ratio",
            "Block hits of the same requests without rules",
        ),
        ("recompute_s", "perc_ruled_recompute_seconds", "Prefill with rules"),
        (
            "without_recompute_s",
            "perc_ruled_without_recompute_seconds",
            "Prefill of the same requests without rules",
        ),
    ],
    "simulate": [
        ("ttft_s_p50", "perc_simulated_ttft_p50_seconds", "Median TTFT"),
        ("ttft_s_p99", "perc_simulated_ttft_p99_seconds", "99th percentile of TTFT"),
        ("tpot_s_p50", "perc_simulated_tpot_p50_seconds", "Median TPOT"),
        ("goodput_per_s", "perc_simulated_goodput_per_second", "Requests within SLOs"),
        ("token_hit_ratio", "perc_simulated_token_hit_ratio", "Prompt tokens hit"),
        ("evictions", "perc_simulated_evictions", "Blocks that left"),
        ("preemptions", "perc_simulated_preemptions", "Requests put back"),
        ("recompute_s", "perc_simulated_recompute_seconds", "Prefill done again"),
    ],
}
LABELS = {
    "compare": ("run", "policy", "capacity_blocks"),
    "compare --rules": ("run", "policy", "capacity_blocks"),
    "simulate": ("run", "policy", "load"),
}
PROGRESS = ("perc_sweep_done_ratio", "Configurations of a sweep that are finished")


class Runs(Collector):
    """The runs below a folder, read anew at each scrape."""

    def __init__(self, root: Path):
        self._root = root

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        families = {
            (command, column): GaugeMetricFamily(name, says, labels=LABELS[command])
            for command, columns in EXPORTED.items()
            for column, name, says in columns
        }
        progress = GaugeMetricFamily(*PROGRESS, labels=("run",))
        for entry in list_runs(self._root).values():
            if entry.command == "sweep" and entry.total:
                progress.add_metric([entry.name], (entry.done or 0) / entry.total)
            if entry.command in EXPORTED:
                self._add(families, entry)
        yield from families.values()
        yield progress

    def _add(self, families: dict, entry: Entry) -> None:
        try:
            results = entry.read().tables["results"]
        except InputError:
            return  # it is being written, or damaged; the list shows it
        keys = LABELS[entry.command][1:]
        for column, _, _ in EXPORTED[entry.command]:
            if column not in results.columns:
                continue
            value = pl.col(column).cast(pl.Float64, strict=False).alias("value")
            for *labels, figure in results.select(*keys, value).drop_nulls().rows():
                marks = [entry.name, *map(str, labels)]
                families[entry.command, column].add_metric(marks, figure)


def exposition(root: Path) -> tuple[bytes, str]:
    """What Prometheus reads, and its content type."""
    registry = CollectorRegistry()
    registry.register(Runs(root))
    return generate_latest(registry), CONTENT_TYPE_LATEST
