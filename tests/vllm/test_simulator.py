"""A real engine serves what the simulator says: hits and victims, request by request.

One client sends one prompt at a time to a tiny model, with the recorder on. The trace
that was recorded is then served in simulated time: each request must find as many
tokens, and the same blocks must leave. So the look-up, the room that a prompt takes,
its partial last block, and who leaves are those of vLLM; what a sequential client
cannot tell is all that overlaps: batches, chunks, preemption, blocks that two requests
share while they run, and every second on the clock.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

pytest.importorskip("vllm")

import perc  # noqa: E402
from perc.bridges.recording_join import join  # noqa: E402
from perc.policies.registry import registry  # noqa: E402
from perc.roofline import Roofline  # noqa: E402
from perc.serving.engine import serve  # noqa: E402
from perc.serving.pricing import changing_order  # noqa: E402
from perc.serving.settings import Server, rules  # noqa: E402
from perc.serving.state import HIT, columns, start  # noqa: E402
from perc.types import Policy  # noqa: E402
from tests.serving.common import machine  # noqa: E402
from tests.vllm.tiny import BLOCK, run  # noqa: E402

BLOCKS = 64  # of the engine, the null block among them

SERVED = """
import json, os
from contextlib import nullcontext
from dataclasses import replace
from tests.vllm import workloads as w
from tests.vllm.tiny import *
from perc.bridges import vllm_events
from vllm.v1.core.kv_cache_manager import KVCacheManager

asks = w.agents(0, 4, shrink=2)
names = []
looked = KVCacheManager.get_computed_blocks

def look(manager, request):
    full = request.num_prompt_tokens // BLOCK
    names.append([name.hex() for name in request.block_hashes[:full]])
    return looked(manager, request)

def serves(policy, folder):
    names.clear()
    with nullcontext() if policy == "stock" else plugged(policy):
        llm = engine(blocks=BLOCKS)
        KVCacheManager.get_computed_blocks = look
        with environment(PERC_RECORD=folder):
            vllm_events.register()
        pool, now = scheduler_of(llm).kv_cache_manager.block_pool, [0.0]
        queue = pool.free_block_queue
        if policy != "stock":  # the recorded requests are the clock's ticks
            queue.settings = replace(queue.settings, clock=lambda: now[0])
        hits, victims = [], []
        for i, ask in enumerate(asks):
            now[0] = float(i)
            one = serve(llm, [ask.prompt], [w.hints_of(ask, "session")], tokens=1)
            hits += one["hits"]
            victims.append(one["victims"])
        vllm_events._recorder.close()
        failures = getattr(queue, "failures", 0)
        close(llm)
    return {"hits": hits, "victims": victims, "names": names, "failures": failures}

print(json.dumps(serves(POLICY, FOLDER)))
"""


@pytest.fixture(scope="module", params=["stock", "perc"])
def served(request, tmp_path_factory):
    """The policy, what the engine did, and what was recorded of it."""
    folder = str(tmp_path_factory.mktemp("recorded") / "run")
    given = f"POLICY, FOLDER, BLOCKS = {request.param!r}, {folder!r}, {BLOCKS}\n"
    found, _ = run(given + SERVED, PERC_STALE_S="0")
    name = "lru" if request.param == "stock" else request.param
    return registry[name](), found, join(folder)


def instant() -> Roofline:
    """A machine so fast that nobody meets anybody."""
    return machine()._replace(bytes_per_s=1e40, flops_per_s=1e40)


def as_served(trace):
    """One request a second, each with its one token."""
    count = trace.n_requests
    return replace(trace, arrival_s=np.arange(float(count)))


def test_the_engine_does_what_the_simulator_says(served):
    """After each request the simulator is stopped, and its blocks are looked at."""
    policy, found, recorded = served
    trace = as_served(recorded.trace)
    assert found["failures"] == 0
    assert recorded.hit_tokens.tolist() == found["hits"]
    block_of = {}
    for names, a, b in zip(found["names"], trace.start, trace.stop, strict=True):
        block_of |= dict(zip(names, trace.block[a:b].tolist(), strict=True))
    length = len(next(iter(block_of)))  # what follows tells the group of layers
    theirs = [{block_of[name[:length]] for name in left} for left in found["victims"]]
    before, victims, hits = set(), [], []
    for r, (cached, hit) in enumerate(stops(trace, policy)):
        its = trace.block[trace.start[r] : trace.stop[r]].tolist()
        victims.append((before | set(its)) - cached)
        hits.append(hit * BLOCK)
        before = cached
    assert hits == found["hits"]
    assert victims == theirs
    assert sum(map(len, victims)) > 100


def stops(trace, policy):
    """The cached blocks after each request, and its hit, by the compiled loop."""
    server = Server(BLOCKS - 1, max_running=1, token_budget=10**6)
    none = np.full(trace.n_requests, -1, np.int32)
    lines = None
    if isinstance(policy, Policy):
        order = perc.ranks(trace, perc.scores(policy, trace))
    else:
        order, found = changing_order(policy, trace)
        lines = found.lines
    owner = trace.block[np.argsort(order)]
    with jax.enable_x64(True):
        c = columns(
            trace,
            order,
            trace.stop,
            server,
            none,
            np.full(trace.n_requests, np.inf),
            instant(),
            refresh=True,
            lines=lines,
        )
        begin = start(trace, none, n_slots=4, samples=8, lines=lines)
        for r in range(trace.n_requests):
            how = rules(server, instant(), until_s=r + 0.5, sample_s=1.0)
            state = serve(c, how, begin, trace.block_tokens)
            words = np.asarray(state.pool.cached.words).view(np.uint8)
            bits = np.unpackbits(words, bitorder="little")[: trace.n_accesses]
            yield set(owner[np.flatnonzero(bits)].tolist()), int(state.counts[r, HIT])
