"""How the public reports are given to perc: requests as rows of block keys."""

import numpy as np

from perc.compare import run
from perc.policies.registry import registry
from perc.traces.build import Columns, build_trace
from perc.types import Trace


def trace_of(requests, *, block_tokens=1, input_tokens=None, **columns) -> Trace:
    """One request a row of block keys, root first, one second apart."""
    lengths = np.array([len(row) for row in requests], np.int64)
    if input_tokens is None:
        input_tokens = lengths * block_tokens
    return build_trace(
        Columns(
            arrival_s=np.arange(len(requests), dtype=float),
            input_tokens=np.asarray(input_tokens, np.int64),
            output_tokens=np.ones(len(requests), np.int64),
            ids=np.array([block for row in requests for block in row], np.int64),
            lengths=lengths,
            **columns,
        ),
        block_tokens=block_tokens,
        source="a public report",
    )


def hits_of(policy, trace, capacity) -> list[int]:
    """Leading hits of each request under a policy or the policy of a name."""
    if isinstance(policy, str):
        policy = registry[policy]()
    return run(policy, trace, [capacity])[0].tolist()


def fresh(requests, blocks, first=1000):
    """Prompts of blocks that nothing else uses."""
    ids = np.arange(first, first + requests * blocks).reshape(requests, blocks)
    return ids.tolist()
