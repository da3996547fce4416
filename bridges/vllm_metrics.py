"""What a policy does inside vLLM, in numbers, for Prometheus.

    PERC_METRICS_PORT=9105 PERC_POLICY=perc vllm serve MODEL      127.0.0.1:9105/metrics
    PERC_METRICS_PORT=0.0.0.0:9105                                from other machines

Without the variable nothing is counted that the queue does not count anyhow, and no
port is opened. A port that is taken, as by the second of two engines, costs the numbers
and nothing else. The connector reports its counts on vLLM's own `/metrics` as well.
"""

import functools
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from perc.bridges.vllm_queue import Block, PolicyQueue
from perc.bridges.vllm_requests import Reader
from perc.types import AnyPolicy, Policy

logger = logging.getLogger("vllm.perc")
MEASURED = 16  # one decision of so many is timed
REMEMBERED = 1024  # times, the latest
COUNTS = {  # name: what it counts
    "requests": "Requests that finished",
    "preemptions": "Requests that gave their blocks back before they finished",
    "evictions": "Cached blocks that left",
    "hits": "Free blocks that were used again before they left",
    "holds_broken": "Blocks that left before their hint allowed it",
    "forced": "Blocks that left before one that comes after them",
    "failures": "Policies that failed: their pool goes on in vLLM's own order",
    "hints_ignored": "Hints of clients that were not what they must be",
}


def counts_of(queue: PolicyQueue, reader: Reader) -> dict[str, int]:
    """What has happened since the start, by the names of `COUNTS`."""
    counters = queue.cache.counters
    return {
        "requests": counters.requests,
        "preemptions": counters.preemptions,
        "evictions": counters.evictions,
        "hits": counters.hits,
        "holds_broken": counters.holds_broken,
        "forced": getattr(queue.cache.order.victims, "forced", 0),
        "failures": queue.failures,
        "hints_ignored": reader.ignored,
    }


class MeasuredQueue(PolicyQueue):
    """The queue, with the time of its decisions and the past of its victims.

    A block had been good for something if it was hit while it was free. One that others
    shared while it was in use is not seen here.
    """

    def __init__(
        self,
        blocks: list[Block],
        settings: Any,
        stock: Callable[[list[Block]], Any],
        free: Sequence[Block] | None = None,
        *,
        reader: Reader,
    ):
        super().__init__(blocks, settings, stock, free)
        self.wants_requests = True  # to count them, whatever the policy
        self.reader = reader
        self.reused = 0  # evicted blocks that had been hit
        self.version = version_of(settings.policy)
        self.micros = np.zeros(REMEMBERED)  # of the decisions that were timed
        self.timed = 0
        self._until_timed = MEASURED
        self._was_hit = bytearray(len(self._by_id))

    def remove(self, block: Block) -> None:
        """See `PolicyQueue.remove`."""
        super().remove(block)
        self._was_hit[block.block_id] = 1

    def popleft_n(self, n: int) -> list[Block]:
        """See `PolicyQueue.popleft_n`."""
        self._until_timed -= 1
        if self._until_timed:
            found = super().popleft_n(n)
        else:
            self._until_timed = MEASURED
            start = time.perf_counter()
            found = super().popleft_n(n)
            self.micros[self.timed % REMEMBERED] = (time.perf_counter() - start) * 1e6
            self.timed += 1
        was_hit = self._was_hit
        for block in found:
            if was_hit[block.block_id]:
                was_hit[block.block_id] = 0
                self.reused += block._block_hash is not None
        return found


def version_of(policy: AnyPolicy) -> str:
    """Twelve digits that change with the policy's kind or parameters."""
    import jax

    rule = policy.score if isinstance(policy, Policy) else policy.rule
    code = getattr(rule, "classes", rule)
    kind = getattr(code, "__qualname__", type(code).__name__)
    leaves, structure = jax.tree.flatten(policy.params)
    facts = (kind, getattr(rule, "guard", None), policy.uses, str(structure))
    digest = hashlib.sha256(repr(facts).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()[:12]


class Exporter:
    """A Prometheus collector over the queues of this process."""

    def __init__(self) -> None:
        self.queues: list[MeasuredQueue] = []

    def collect(self) -> Iterable[Any]:
        """The families, one sample a pool each."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
        )

        labels = ["pool", "policy"]
        marked = [
            ((str(i), q.settings.policy.name), q) for i, q in enumerate(self.queues)
        ]
        for name, about in COUNTS.items():
            family = CounterMetricFamily(f"perc_{name}", about, labels=labels)
            for mark, queue in marked:
                family.add_metric(mark, counts_of(queue, queue.reader)[name])
            yield family
        reused = CounterMetricFamily(
            "perc_evicted_reused",
            "Cached blocks that left and had been used again before",
            labels=labels,
        )
        share = GaugeMetricFamily(
            "perc_reuse_before_eviction",
            "Share of the evicted blocks that had been used again before",
            labels=labels,
        )
        micros = GaugeMetricFamily(
            "perc_decision_microseconds",
            f"Time to choose victims: of the last {REMEMBERED} decisions that were "
            f"timed, one in {MEASURED}",
            labels=[*labels, "stat"],
        )
        for mark, queue in marked:
            reused.add_metric(mark, queue.reused)
            share.add_metric(mark, queue.reused / (queue.cache.counters.evictions or 1))
            times = queue.micros[: min(queue.timed, REMEMBERED)].copy()
            if len(times):
                micros.add_metric((*mark, "mean"), float(times.mean()))
                micros.add_metric((*mark, "p99"), float(np.quantile(times, 0.99)))
        yield from (reused, share, micros)
        policy = InfoMetricFamily(
            "perc_policy", "The policy and its version", labels=["pool"]
        )
        for (pool, name), queue in marked:
            policy.add_metric([pool], {"policy": name, "version": queue.version})
        yield policy


def queue_maker(reader: Reader) -> Callable[..., PolicyQueue]:
    """What makes the queue of a block pool: `PolicyQueue`, or one that is measured.

    Args:
        reader: of the requests that the queue will be told.
    """
    exporter = _serving()
    if exporter is None:
        return PolicyQueue

    def make(*args: Any, **kwargs: Any) -> PolicyQueue:
        queue = MeasuredQueue(*args, **kwargs, reader=reader)
        exporter.queues.append(queue)
        return queue

    return make


@functools.cache
def _serving() -> Exporter | None:
    """The exporter, behind its port; None if there is to be none, or cannot be."""
    text = os.environ.get("PERC_METRICS_PORT", "").strip()
    if not text:
        return None
    host, _, port = text.rpartition(":")
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        registry, exporter = CollectorRegistry(), Exporter()
        registry.register(exporter)
        start_http_server(int(port), addr=host or "127.0.0.1", registry=registry)
    except Exception as error:
        logger.warning(
            "perc: PERC_METRICS_PORT=%s: %s: %s. There will be no metrics; give a free "
            "port, as in 9105 or 0.0.0.0:9105.",
            text,
            type(error).__name__,
            error,
        )
        return None
    logger.info("perc: metrics at http://%s:%s/metrics", host or "127.0.0.1", port)
    return exporter
