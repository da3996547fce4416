"""The connector, the scheduler class and the plug-in: one queue, the same decisions."""

import json

import pytest

pytest.importorskip("vllm")

from perc.bridges import vllm_swap  # noqa: E402
from perc.bridges.vllm_queue import PolicyQueue  # noqa: E402
from perc.bridges.vllm_requests import Reader  # noqa: E402
from tests.vllm.manager import Manager  # noqa: E402
from tests.vllm.tiny import run  # noqa: E402

DOORS = """
import json
from tests.vllm.tiny import *

prompts, hints = traffic(n=30)
crowd = [prompt[: 4 * BLOCK + 3] for prompt in prompts[:16]]
found = {}

def served(name, **options):
    llm = engine(**options)
    queue = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
    alone = serve(llm, prompts, hints)
    together = serve(llm, crowd, hints[:16], at_once=4, tokens=3 * BLOCK)
    told = {m.name: m.value for m in llm.get_metrics() if hasattr(m, "value")}
    found[name] = {"alone": alone, "together": together, "metrics": told,
        "queue": type(queue).__name__, "failures": getattr(queue, "failures", None)}
    close(llm)

SCHEDULER = "perc.bridges.vllm_scheduler.PercScheduler"
served("stock", blocks=20)
for policy in ("lru", "priority"):
    served(f"connector {policy}", blocks=20, kv_transfer_config=connector(policy))
    with environment(PERC_POLICY=policy, PERC_CLOCK="requests"):
        served(f"scheduler {policy}", blocks=20, scheduler_cls=SCHEDULER)
    with plugged(policy):
        served(f"plugin {policy}", blocks=20)
members = connector("priority"), connector("lru")
served("multi", blocks=20, kv_transfer_config=both(*members))
with plugged("priority"):
    served("plugin first", blocks=20, kv_transfer_config=connector("lru"),
        scheduler_cls=SCHEDULER)
served("no policy", blocks=20, kv_transfer_config=connector())
served("bad policy", blocks=20, kv_transfer_config=connector("nonsense"))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def doors():
    """What every door served, and what was logged."""
    return run(DOORS)


def decisions(found, name):
    return [found[name]["alone"][what] for what in ("hits", "victims")]


def test_outputs_do_not_depend_on_the_door(doors):
    found, _ = doors
    for name in found:
        for how in ("alone", "together"):
            assert found[name][how]["outputs"] == found["stock"][how]["outputs"], name
        assert not found[name]["failures"]


@pytest.mark.parametrize("door", ["connector", "scheduler", "plugin"])
def test_lru_through_every_door_is_stock(doors, door):
    found, _ = doors
    assert found[f"{door} lru"]["queue"] == "PolicyQueue"
    assert decisions(found, f"{door} lru") == decisions(found, "stock")
    assert found[f"{door} lru"]["together"] == found["stock"]["together"]


def test_a_policy_decides_the_same_through_every_door(doors):
    found, _ = doors
    wanted = decisions(found, "plugin priority")
    for name in ("connector priority", "scheduler priority", "multi", "plugin first"):
        assert decisions(found, name) == wanted, name
    assert sum(wanted[0]) > sum(found["stock"]["alone"]["hits"])


def test_preemptions_are_seen_by_the_scheduler_class_as_by_the_plug_in(doors):
    found, _ = doors
    assert found["stock"]["metrics"]["vllm:num_preemptions"] > 0
    wanted = found["plugin priority"]["together"]
    assert found["scheduler priority"]["together"] == wanted


@pytest.mark.parametrize("name", ["no policy", "bad policy"])
def test_without_a_policy_that_will_do_vllm_stays_as_it_is(doors, name):
    found, said = doors
    assert found[name]["queue"] == "FreeKVCacheBlockQueue"
    assert decisions(found, name) == decisions(found, "stock")
    assert said.count("PERC_POLICY=nonsense") == 1


@pytest.mark.parametrize("name", ["connector priority", "multi"])
def test_the_connector_counts_on_the_page_of_vllm(doors, name):
    found, _ = doors
    counted = found[name]["metrics"]
    served = found[name]
    victims = len(served["alone"]["victims"]) + len(served["together"]["victims"])
    assert counted["vllm:perc_requests"] == 30 + 16
    assert counted["vllm:perc_evictions"] == victims
    assert counted["vllm:perc_failures"] == 0


def used_and_cached(manager):
    """A running request, and blocks of others that are cached and free."""
    for number in range(3):
        request = manager.request(number, range(100 * number, 100 * number + 9))
        assert manager.start(request)
        manager.stop(request)
    running = manager.request(9, range(900, 910))
    assert manager.start(running)
    return running


def test_a_queue_is_swapped_while_blocks_are_in_use(monkeypatch):
    monkeypatch.setenv("PERC_POLICY", "lru")
    stock, ours = Manager(12), Manager(12)
    goes_on, running = used_and_cached(stock), used_and_cached(ours)
    before = [b.block_id for b in ours.queue.get_all_free_blocks()]
    opened = vllm_swap.open_door(ours.pool, Reader())
    assert opened is not None and ours.pool.free_block_queue is opened[0]
    assert [b.block_id for b in opened[0].get_all_free_blocks()] == before
    for manager, request in ((stock, goes_on), (ours, running)):
        manager.append(request, range(5))
        manager.stop(request)
        for number in range(20, 26):
            later = manager.request(number, range(50 * number, 50 * number + 11))
            assert manager.start(later)
            manager.stop(later)
    assert ours.victims == stock.victims and len(stock.victims) >= 10
    assert ours.hits == stock.hits and not opened[0].failures


def test_the_old_queue_stays_whole_where_the_new_one_cannot_be_built(
    monkeypatch, caplog
):
    monkeypatch.setenv("PERC_POLICY", "lru")
    manager = Manager(12)
    used_and_cached(manager)
    before = manager.queue.get_all_free_blocks()

    def broken(*args, **kwargs):
        raise RuntimeError("no room")

    monkeypatch.setattr(PolicyQueue, "prepend_n", broken)
    assert vllm_swap.open_door(manager.pool, Reader()) is None
    assert manager.pool.free_block_queue is manager.queue
    assert manager.queue.get_all_free_blocks() == before
    assert "no room" in caplog.text


def test_a_connector_that_fails_falls_back_and_no_request_fails():
    found, said = run(
        """
import json
from tests.vllm.tiny import *
from perc.bridges.vllm_requests import Reader

def broken(self, request):
    raise RuntimeError("broken on purpose")

prompts, hints = traffic(n=12)
llm = engine()
stock = serve(llm, prompts, hints)
close(llm)
Reader.facts = broken
llm = engine(kv_transfer_config=connector("priority"))
ours = serve(llm, prompts, hints)
queue = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
print(json.dumps({"same": stock == ours, "failures": queue.failures}))
"""
    )
    assert found == {"same": True, "failures": 1}, json.dumps(found)
    assert said.count("broken on purpose") >= 1
