"""The connector's counts on vLLM's own `/metrics`, and in its log."""

# pyright: reportMissingImports=false

from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from perc.bridges.vllm_metrics import COUNTS


@dataclass
class PercStats(KVConnectorStats):
    """Counts by the names of `perc.bridges.vllm_metrics.COUNTS`, of an interval."""

    def reset(self) -> None:
        """Nothing has happened."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> "PercStats":
        """With those of another interval."""
        names = self.data.keys() | other.data.keys()
        total = {k: self.data.get(k, 0) + other.data.get(k, 0) for k in names}
        return PercStats(total)

    def reduce(self) -> dict[str, int | float]:
        """For the log."""
        return {f"perc_{k}": self.data[k] for k in COUNTS if self.data.get(k)}

    def is_empty(self) -> bool:
        """Whether nothing has happened."""
        return not any(self.data.values())


class PercPromMetrics(KVConnectorPromMetrics):
    """One counter a name."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters: dict[str, Any] = {
            name: create_metric_per_engine(
                self._counter_cls(
                    name=f"vllm:perc_{name}",
                    documentation=f"{about} (perc).",
                    labelnames=labelnames,
                ),
                per_engine_labelvalues,
            )
            for name, about in COUNTS.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds the counts of an interval."""
        for name, count in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(count)
