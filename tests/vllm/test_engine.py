"""A whole engine with the plug-in: the same answers, other hits, never a failure."""

import pytest

pytest.importorskip("vllm")

from perc.bridges.vllm_versions import installed  # noqa: E402
from perc.policies.registry import registry  # noqa: E402
from tests.vllm import manager  # noqa: E402
from tests.vllm import workloads as w  # noqa: E402
from tests.vllm.tiny import BLOCK, run  # noqa: E402

SHRINK, ROUNDS = 2, 12  # a pool of 64 blocks, 144 requests

SERVED = """
import json
from tests.vllm import workloads as w
from tests.vllm.tiny import *

found = {}

def serves(name, asks, policy=None):
    llm = engine(blocks=w.POOL // 2)
    queue = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
    found[name] = serve(llm, [one.prompt for one in asks], tokens=4)
    found[name]["queue"] = type(queue).__name__
    found[name]["failures"] = getattr(queue, "failures", None)
    close(llm)

WORKLOADS = {"agents": w.agents(0, 12, shrink=2), "cyclic": w.cyclic(0, 12, shrink=2)}
for workload, asks in WORKLOADS.items():
    serves(f"{workload} stock", asks)
    for policy in ("lru", "perc"):
        with plugged(policy):
            serves(f"{workload} {policy}", asks)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def served():
    return run(SERVED)[0]


def asks_of(workload):
    return w.WORKLOADS[workload](0, ROUNDS, shrink=SHRINK)


@pytest.mark.parametrize("workload", ["agents", "cyclic"])
def test_answers_do_not_depend_on_the_policy(served, workload):
    wanted = served[f"{workload} stock"]["outputs"]
    assert len({tuple(output) for output in wanted}) > 10
    for policy in ("lru", "perc"):
        found = served[f"{workload} {policy}"]
        assert found["queue"] == "PolicyQueue" and found["failures"] == 0
        assert found["outputs"] == wanted


@pytest.mark.parametrize("workload", ["agents", "cyclic"])
def test_lru_hits_and_evicts_as_stock_does(served, workload):
    ours, stock = served[f"{workload} lru"], served[f"{workload} stock"]
    assert (ours["hits"], ours["victims"]) == (stock["hits"], stock["victims"])
    assert len(stock["victims"]) > 500


@pytest.mark.parametrize("workload", ["agents", "cyclic"])
def test_perc_hits_where_stock_cannot(served, workload):
    tokens = sum(len(one.prompt) for one in asks_of(workload))
    assert sum(served[f"{workload} stock"]["hits"]) < 0.05 * tokens  # young sessions
    assert sum(served[f"{workload} perc"]["hits"]) > 0.25 * tokens


@pytest.fixture
def long_blocks():
    """Cache managers have the engine's blocks."""
    before = manager.BLOCK
    manager.set_block_tokens(BLOCK)
    yield
    manager.set_block_tokens(before)


@pytest.mark.parametrize("workload", ["agents", "cyclic"])
@pytest.mark.parametrize("policy", ["stock", "lru", "perc"])
def test_hits_are_those_that_a_replay_without_a_model_predicts(
    served, workload, policy, long_blocks
):
    """The cache manager alone, fed the prompts and the engine's answers."""
    chosen = None if policy == "stock" else registry[policy]()
    replay = manager.Manager(w.POOL // SHRINK - 1, chosen)
    found = served[f"{workload} {policy}"]
    for number, one in enumerate(asks_of(workload)):
        request = replay.request(number, one.prompt)
        assert replay.start(request)
        assert replay.append(request, found["outputs"][number][:-1])  # with KV
        replay.clock.now_s += 1
        replay.stop(request)
    assert replay.hits == found["hits"]
    assert len(replay.victims) == len(found["victims"])


@pytest.mark.parametrize("workload", ["agents", "cyclic"])
@pytest.mark.parametrize("seed", range(3))
def test_perc_learns_what_nobody_labels(workload, seed):
    """Shares of prompt tokens found, learning included; no model, short blocks."""
    asks = w.WORKLOADS[workload](seed, block=manager.BLOCK)

    def share(policy, said):
        gaps_s = [1.0] * len(asks)
        return w.serve(manager.Manager(w.POOL - 1, policy), asks, said, gaps_s)

    best = share(w.labelled(), "label")
    assert share(None, "nothing") < 0.01
    for said in ("nothing", "session"):
        assert share(registry["perc"](), said) > max(0.25, 0.7 * best)


UNFIT = """
import json, logging
from tests.vllm.tiny import *
from perc.bridges import vllm_plugin, vllm_versions
from perc.bridges.live_keys import LiveKeys
from perc.policies.registry import registry
from perc.types import Policy

warnings, found = [], {}

def told(record):  # a filter, since vLLM takes handlers away when an engine starts
    if record.levelno >= logging.WARNING:
        warnings.append(record.getMessage())
    return True

logging.getLogger("vllm.perc").addFilter(told)
prompts, hints = traffic(n=24)

def untouched():
    from vllm.v1.core import block_pool
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    return [dict(vars(owner)) for owner in
        (block_pool, block_pool.BlockPool, KVCacheManager, Scheduler)]

def registers(name):
    warnings.clear()
    before = untouched()
    vllm_plugin.register()
    found[name] = {"untouched": untouched() == before, "warnings": list(warnings)}

def serves(name):
    warnings.clear()
    llm = engine(blocks=20)
    queue = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
    served = serve(llm, prompts, hints)
    found[name] = {**found.get(name, {}), "served": served,
        "queue": type(queue).__name__, "failures": getattr(queue, "failures", None),
        "warnings": found.get(name, {}).get("warnings", []) + warnings}
    close(llm)

registers("unset")
serves("unset")
with environment(PERC_POLICY="  "):
    registers("blank")
bad = Path(tempfile.mkdtemp()) / "bad.npz"
bad.write_text("no policy at all")
missing = bad.with_name("missing.npz")
for policy in ("nonsense", "perc:colour=3", "lru,perc", str(bad), str(missing)):
    with environment(PERC_POLICY=policy):
        registers(policy if "/" not in policy else Path(policy).name)
serves("missing.npz")
with environment(PERC_POLICY="perc", PERC_CLOCK="moon"):
    registers("clock")
below, vllm_versions.BELOW = vllm_versions.BELOW, vllm_versions.installed()
with environment(PERC_POLICY="perc"):
    registers("version")
vllm_versions.BELOW = below

calls = []
def breaks(params, f):
    calls.append(1)
    if len(calls) > 10:
        raise RuntimeError("broken on purpose")
    return f.time_s - 2 * f.frequency
registry._constructors["breaks"] = lambda: Policy((), breaks, "breaks",
    uses=("time_s", "frequency"), chain=True)
with plugged("breaks"):
    serves("breaks")
with plugged("belady"):
    serves("belady")
print(json.dumps(found))
"""
BAD = {  # what is set: what the warning must name
    "nonsense": "nonsense",
    "perc:colour=3": "colour",
    "lru,perc": "one policy, not 2",
    "bad.npz": "bad.npz",
    "missing.npz": "missing.npz",
    "clock": "PERC_CLOCK=moon",
    "version": f"vLLM {installed()} is not one that perc was tested with",
}


@pytest.fixture(scope="module")
def unfit():
    return run(UNFIT)[0]


@pytest.mark.parametrize("name", ["unset", "blank"])
def test_without_a_policy_nothing_of_vllm_is_touched(unfit, name):
    assert unfit[name]["untouched"] and not unfit[name]["warnings"]
    assert unfit["unset"]["queue"] == "FreeKVCacheBlockQueue"


@pytest.mark.parametrize("name", BAD)
def test_what_will_not_do_leaves_vllm_as_it_is_with_one_warning(unfit, name):
    assert unfit[name]["untouched"]
    (warning,) = unfit[name]["warnings"]
    assert BAD[name] in warning and "vLLM goes on unchanged" in warning


def test_an_engine_serves_as_if_a_bad_policy_had_not_been_named(unfit):
    found = unfit["missing.npz"]
    assert found["queue"] == "FreeKVCacheBlockQueue" and len(found["warnings"]) == 1
    assert found["served"] == unfit["unset"]["served"]


def test_a_policy_that_no_server_can_run_leaves_stock_queues(unfit):
    found = unfit["belady"]
    assert found["queue"] == "FreeKVCacheBlockQueue"
    assert found["served"] == unfit["unset"]["served"]
    (warning,) = found["warnings"]
    assert "belady reads the future" in warning


def test_a_policy_that_fails_in_mid_run_fails_no_request(unfit):
    found = unfit["breaks"]
    assert found["queue"] == "PolicyQueue" and found["failures"] == 1
    assert found["served"]["outputs"] == unfit["unset"]["served"]["outputs"]
    (warning,) = found["warnings"]
    assert "broken on purpose" in warning and "goes on in vLLM's own" in warning


def test_installed_the_entry_point_changes_nothing_until_it_is_asked():
    found, _ = run(
        """
import json
from tests.vllm.tiny import *
from vllm.plugins import load_general_plugins
from vllm.v1.core import block_pool, kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from importlib.metadata import entry_points

(entry,) = entry_points(group="vllm.general_plugins", name="perc")
owners = block_pool, block_pool.BlockPool, KVCacheManager, Scheduler, kv_cache_utils
before = [dict(vars(owner)) for owner in owners]
load_general_plugins()
same = [dict(vars(owner)) for owner in owners] == before
stock = block_pool.FreeKVCacheBlockQueue is kv_cache_utils.FreeKVCacheBlockQueue
with environment(PERC_POLICY="lru"):
    entry.load()()
swapped = block_pool.FreeKVCacheBlockQueue is not kv_cache_utils.FreeKVCacheBlockQueue
print(json.dumps({"same": same, "stock": stock, "swapped": swapped}))
""",
        VLLM_PLUGINS="perc",
    )
    assert found == {"same": True, "stock": True, "swapped": True}
