"""The numbers of a real run, read over HTTP as Prometheus does."""

import socket
import urllib.request

import pytest

pytest.importorskip("vllm")

from perc.bridges import vllm_metrics  # noqa: E402
from perc.bridges.settings import Settings  # noqa: E402
from perc.bridges.vllm_requests import Reader  # noqa: E402
from perc.policies.registry import registry  # noqa: E402
from tests.vllm.manager import STOCK, Manager  # noqa: E402
from tests.vllm.tiny import run  # noqa: E402

SERVED = """
import json, os, urllib.request
from tests.vllm.tiny import *

prompts, hints = traffic(n=30)
hints[3]["perc_hold_s"] = "soon"
hints[5]["perc_pin"] = True
llm = engine(blocks=20, scheduler_cls="perc.bridges.vllm_scheduler.PercScheduler")
found = serve(llm, prompts, hints)
crowd = [prompt[: 4 * BLOCK + 3] for prompt in prompts[:8]]
more = serve(llm, crowd, at_once=4, tokens=3 * BLOCK)
url = f"http://127.0.0.1:{os.environ['PERC_METRICS_PORT']}/metrics"
page = urllib.request.urlopen(url).read().decode()
told = {m.name: m for m in llm.get_metrics()}
print(json.dumps({"page": page, "victims": found["victims"] + more["victims"],
    "preempted": told["vllm:num_preemptions"].value}))
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def samples(page):
    """Values by name and labels."""
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
    return {name: float(value) for name, value in lines}


@pytest.fixture(scope="module")
def served():
    return run(
        SERVED,
        PERC_METRICS_PORT=free_port(),
        PERC_POLICY="priority",
        PERC_CLOCK="requests",
    )[0]


def test_the_page_counts_what_happened(served):
    mark = '{policy="priority",pool="0"}'
    found = samples(served["page"])
    assert found[f"perc_requests_total{mark}"] == 38
    assert found[f"perc_preemptions_total{mark}"] == served["preempted"] > 0
    evictions = found[f"perc_evictions_total{mark}"]
    assert evictions == len(served["victims"]) > 50
    assert found[f"perc_hits_total{mark}"] > 0
    assert found[f"perc_hints_ignored_total{mark}"] == 1
    assert found[f"perc_failures_total{mark}"] == 0
    assert found[f"perc_holds_broken_total{mark}"] >= 0
    assert found[f"perc_forced_total{mark}"] == 0
    reused = found[f"perc_evicted_reused_total{mark}"]
    assert found[f"perc_reuse_before_eviction{mark}"] == reused / evictions
    assert 0 < reused < evictions


def test_the_page_tells_the_time_of_decisions(served):
    found = samples(served["page"])
    mean, p99 = (
        found[f'perc_decision_microseconds{{policy="priority",pool="0",stat="{stat}"}}']
        for stat in ("mean", "p99")
    )
    assert 0 < mean <= p99


def test_the_page_names_the_policy_and_its_version(served):
    version = vllm_metrics.version_of(registry["priority"]())
    line = f'perc_policy_info{{policy="priority",pool="0",version="{version}"}} 1.0'
    assert line in served["page"].splitlines()


def test_the_version_changes_with_the_parameters():
    policies = [
        registry["priority"](),
        registry["perc"](),
        registry["lru"](),
        registry["perc_decay"](tau_s=60.0),
        registry["perc_decay"](tau_s=61.0),
    ]
    versions = [vllm_metrics.version_of(policy) for policy in policies]
    assert len(set(versions)) == len(versions)
    assert versions[3] == vllm_metrics.version_of(registry["perc_decay"](tau_s=60.0))


@pytest.fixture
def fresh():
    """No exporter is there yet, and none stays."""
    vllm_metrics._serving.cache_clear()
    yield
    vllm_metrics._serving.cache_clear()


def test_without_a_port_nothing_is_measured(fresh, monkeypatch):
    monkeypatch.delenv("PERC_METRICS_PORT", raising=False)
    assert vllm_metrics.queue_maker(Reader()) is vllm_metrics.PolicyQueue


@pytest.mark.parametrize("given", ["metrics", "taken"])
def test_a_port_that_will_not_do_costs_only_the_numbers(
    fresh, monkeypatch, caplog, given
):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1]) if given == "taken" else given
        monkeypatch.setenv("PERC_METRICS_PORT", port)
        assert vllm_metrics.queue_maker(Reader()) is vllm_metrics.PolicyQueue
        assert vllm_metrics.queue_maker(Reader()) is vllm_metrics.PolicyQueue
    assert caplog.text.count("There will be no metrics") == 1


def measured(manager):
    """The pool of a manager, measured from now on."""
    settings = Settings(registry["lru"](), manager.clock, lambda: None)
    free = manager.queue.popleft_n(manager.queue.num_free_blocks)
    queue = vllm_metrics.MeasuredQueue(
        manager.pool.blocks, settings, STOCK, free, reader=Reader()
    )
    manager.pool.free_block_queue = queue
    return queue


def test_reuse_before_eviction_is_counted_block_by_block():
    manager = Manager(6)
    queue = measured(manager)

    def serve(number, tokens):
        request = manager.request(number, tokens)
        assert manager.start(request)
        manager.stop(request)

    serve(0, [*range(8), 1])  # two blocks, and a part
    serve(1, [*range(8), 2])  # both are hit
    serve(2, [*range(20, 28), 1])  # two others, never hit
    assert queue.cache.counters.hits == 2 and queue.reused == 0
    serve(3, [*range(30, 50), 1])  # takes all six
    assert queue.cache.counters.evictions == 4 and queue.reused == 2
    serve(4, [*range(60, 80), 1])
    assert queue.cache.counters.evictions == 9 and queue.reused == 2


def test_times_are_of_every_sixteenth_decision_and_bounded(monkeypatch):
    monkeypatch.setattr(vllm_metrics, "REMEMBERED", 4)
    manager = Manager(6)
    queue = measured(manager)
    for _ in range(16 * 9):
        (block,) = queue.popleft_n(1)
        queue.prepend_n([block])
    assert queue.timed == 9 and len(queue.micros) == 4 and queue.micros.min() > 0


def test_an_exporter_without_queues_has_a_page(fresh, monkeypatch):
    port = free_port()
    monkeypatch.setenv("PERC_METRICS_PORT", port)
    exporter = vllm_metrics._serving()
    assert exporter is not None and vllm_metrics._serving() is exporter
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert "# TYPE perc_evictions_total counter" in page
