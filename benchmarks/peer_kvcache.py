"""kvcache-simulator's C++ engine, fed with a trace of perc's."""

import importlib
from collections.abc import Sequence

import common
import numpy as np

from perc.types import Trace


def ready() -> bool:
    """Whether it is installed and compiles; says why not."""
    if common.optional("kvcache_sim", "kvcache-simulator") is None:
        return False
    try:
        importlib.import_module("kvcache_sim.cpp_backend").ensure_cpp_simulator()
    except RuntimeError as error:
        common.say(f"skipped   kvcache-simulator: {error}")
        return False
    return True


def hit_tokens(
    trace: Trace, policy: str, sizes: Sequence[int], skip: int
) -> np.ndarray:
    """Tokens i64[K] of the longest resident prefixes, requests from `skip` on."""
    found = importlib.import_module("kvcache_sim.cpp_backend").run_cpp_sweep(
        _trace_data(trace),
        capacities=list(sizes),
        policies=[policy],
        warmup_requests=skip,
    )
    return np.array([found.results[policy, size].hitTokens for size in sizes])


def sizes_that_fill(trace: Trace, skip: int, points: int) -> list[int]:
    """Capacities that hold the longest request and are full before request `skip`.

    It drops all others. Ids are numbered by first appearance: those of the first
    requests are the lowest.
    """
    filled = int(trace.block[: trace.start[skip]].max()) + 1
    return spread(trace.longest_request, filled, points)


def spread(smallest: int, largest: int, points: int) -> list[int]:
    """Capacities at even distances, each once."""
    return sorted({int(size) for size in np.linspace(smallest, largest, points)})


def _trace_data(trace: Trace) -> object:
    """The trace as kvcache-simulator's reader would hand it to its C++."""
    return importlib.import_module("kvcache_sim.trace").TraceData(
        ids=trace.block.tolist(),
        tokens=trace.tokens.tolist(),
        request_starts=[*trace.start.tolist(), trace.n_accesses],
        block_size=trace.block_tokens,
        request_count=trace.n_requests,
        unique_raw_blocks=trace.n_blocks,
        total_input_tokens=int(trace.tokens.sum(dtype=np.int64)),
        average_input_tokens=float(trace.input_tokens.mean()),
        parse_errors=0,
        skipped_records=0,
    )
