"""vLLM runs a perc policy: a KV connector that moves no KV.

It uses only what vLLM documents for connectors, and takes the connector's place, or
stands beside another one under `MultiConnector`:

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "PercConnector",
        "kv_connector_module_path": "perc.bridges.vllm_connector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"perc_policy": "perc"}}'

`perc_policy`, `perc_clock` and `perc_stale_s` are as in `perc.bridges.settings`, and
come before the environment's. Where the plug-in has put a policy in, this does nothing.

Connectors hear of requests that finish, never of preemptions. The role is a producer's
because vLLM delays the return of blocks for a consumer.
"""

# pyright: reportMissingImports=false

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from perc.bridges.vllm_metrics import counts_of
from perc.bridges.vllm_requests import Reader
from perc.bridges.vllm_stats import PercPromMetrics, PercStats
from perc.bridges.vllm_swap import open_door

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool

SETTINGS = ("perc_policy", "perc_clock", "perc_stale_s")


class PercMetadata(KVConnectorMetadata):
    """Nothing: no KV moves."""


class PercConnector(KVConnectorBase_V1, SupportsHMA):
    """Tells the pool's queue which request gives its blocks back."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._reader = Reader()
        self._pool: Any = None
        self._queue: Any = None  # while it is ours
        self._settings: Any = None
        self._reported: dict[str, int] = {}

    @property
    def requires_kv_delivery(self) -> bool:
        """No: a request that is preempted loses nothing of ours."""
        return False

    # The scheduler's side.

    def bind_gpu_block_pool(self, gpu_block_pool: "BlockPool") -> None:
        """Free blocks leave in the policy's order from now on."""
        extra = self._kv_transfer_config.kv_connector_extra_config
        given = {name.upper(): str(extra[name]) for name in SETTINGS if name in extra}
        opened = open_door(gpu_block_pool, self._reader, given)
        if opened is not None:
            self._pool = gpu_block_pool
            self._queue, self._settings = opened

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As below, for one group of layers."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request is about to give back its blocks, given by number, root first."""
        if self._queue is not None:
            try:
                self._tell(request, block_ids)
            except Exception as error:
                self._queue.fall_back(error)
        return False, None

    def _tell(self, request: Any, block_ids: tuple[list[int], ...]) -> None:
        self._settings.tick()
        facts, blocks = self._reader.facts(request), self._pool.blocks
        for group in filter(None, block_ids):
            self._queue.finished(facts, [blocks[i] for i in group])

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """None: there is no KV elsewhere."""
        return 0, False

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        """Nothing to do."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to say."""
        return PercMetadata()

    def reset_cache(self) -> bool:
        """There is no cache here."""
        return True

    # What it counts, on vLLM's own `/metrics`.

    def get_kv_connector_stats(self) -> PercStats | None:
        """What has been counted since the last call, None if nothing was."""
        if self._queue is None:
            return None
        counts = counts_of(self._queue, self._reader)
        if counts == self._reported:
            return None
        before = self._reported
        self._reported = counts
        return PercStats({k: n - before.get(k, 0) for k, n in counts.items()})

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> PercStats | None:
        """Of what another process has sent."""
        return PercStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config, metric_types, labelnames, per_engine_labelvalues
    ) -> PercPromMetrics:
        """Counters of every engine."""
        return PercPromMetrics(
            vllm_config, metric_types, labelnames, per_engine_labelvalues
        )

    # The worker's side.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Nothing to load."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing to wait for."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Nothing to save."""

    def wait_for_save(self) -> None:
        """Nothing to wait for."""


# MultiConnector looks the classes of its members up by name to read their counts.
with suppress(ValueError):  # registered already
    KVConnectorFactory.register_connector(
        PercConnector.__name__, __name__, PercConnector.__name__
    )
