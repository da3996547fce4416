"""Tiers below the GPU: equal to the plain server, request by request."""

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.serving.offload import LowerTier, Offload
from perc.serving.settings import Server
from perc.traces.build import Columns, build_trace
from tests.serving.common import machine, named
from tests.serving.test_oracle import compare


@st.composite
def offloads(draw):
    tiers = tuple(
        LowerTier(
            f"tier {t}",
            draw(st.sampled_from([1, 2, 4, 9, 50])),
            block_s=draw(st.sampled_from([0.00137, 0.0531, 0.713])),
            latency_s=draw(st.sampled_from([0.0, 0.0173, 0.917])),
            duplex=draw(st.booleans()),
        )
        for t in range(draw(st.sampled_from([1, 2, 2])))
    )
    placement = draw(st.sampled_from(["inclusive", "exclusive"]))
    writes = ["back"] if placement == "exclusive" else ["back", "through"]
    return Offload(
        tiers,
        placement=placement,
        write=draw(st.sampled_from(writes)),
        store=draw(st.sampled_from(["all", "all", "likely"])),
        load=draw(st.sampled_from(["reload", "reload", "cheapest", "recompute"])),
        prefetch=len(tiers) > 1 and draw(st.booleans()),
    )


@st.composite
def servers(draw):
    running = draw(st.sampled_from([1, 2, 4]))
    return Server(
        draw(st.sampled_from([3, 6, 8, 12])),
        token_budget=draw(st.sampled_from([running, 6, 100])) + running,
        max_running=running,
        max_queue=draw(st.sampled_from([None, None, 2])),
        order=draw(st.sampled_from(["fcfs", "deadline"])),
        batching=draw(
            st.sampled_from(["max_throughput", "low_latency", "adaptive", "static"])
        ),
        chunked=draw(st.booleans()),
        closed_loop=draw(st.booleans()),
        cache_outputs=draw(st.booleans()),
        adaptive_queue=draw(st.sampled_from([0, 2])),
        adaptive_latency_s=draw(st.sampled_from([0.0, 0.15])),
        offload=draw(offloads()),
    )


@st.composite
def reusing(draw):
    """Few documents, read again and again: what left the GPU is soon wanted."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, block_tokens = draw(st.integers(6, 30)), draw(st.sampled_from([1, 4]))
    docs, depth = draw(st.integers(2, 6)), draw(st.integers(1, 4))
    doc, length = rng.integers(0, docs, n), rng.integers(1, depth + 1, n)
    answers = draw(st.sampled_from([[1], [1, 9, 30]]))
    columns = Columns(
        arrival_s=rng.exponential(draw(st.sampled_from([0.013, 0.3, 3.0])), n).cumsum(),
        # The last block may be a part.
        input_tokens=length * block_tokens - rng.integers(0, block_tokens, n),
        output_tokens=rng.choice(answers, n),
        ids=np.concatenate(
            [d * depth + np.arange(k) for d, k in zip(doc, length, strict=True)]
        ),
        lengths=length,
        session=doc % 3,
    )
    trace = build_trace(columns, block_tokens=block_tokens, source="documents")
    return dataclasses.replace(trace, deadline_s=rng.choice([np.inf, 2.0], n))


@settings(deadline=None, max_examples=60)
@given(reusing(), servers(), st.booleans(), st.data())
def test_tiers_equal_the_oracle(trace, server, refresh, data):
    until_s = data.draw(st.sampled_from([np.inf, np.inf, 1.7]))
    order = np.arange(named(trace, server).trace.n_accesses)
    if data.draw(st.booleans()):
        order = np.random.default_rng(data.draw(st.integers(0, 9))).permutation(order)
    options = {"refresh": refresh, "until_s": until_s}
    served = compare(trace, order.astype(np.int32), server, machine(), **options)
    assert served.below is not None
