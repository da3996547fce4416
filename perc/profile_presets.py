"""Lengths by the names of data sets: CachePilot's normals, as traffic.

They are hand-picked, not fitted: mean and deviation of prompt and response, drawn
until both ends hold, a response a session, and nothing is shared. Where a data set is
at hand, `perc.profile_trace` takes lengths and sharing from it.

    t     += expovariate(rate)                         for each request, first
    tokens = int(gauss(mean, deviation)), drawn again up to 50 times until it is within
             16..16384 (prompt) or 16..4096 (response), then the mean within these

References:
    CachePilot, its generator of "real" workloads.
"""

from random import Random
from typing import NamedTuple

import numpy as np

from perc.errors import InputError, check_number, check_whole
from perc.traces.build import Columns, build_trace
from perc.types import Trace

LEAST, MOST_PROMPT, MOST_RESPONSE = 16, 16_384, 4_096
TRIES = 50


class Lengths(NamedTuple):
    """Normals of a preset, tokens."""

    prompt: float
    prompt_sd: float
    response: float
    response_sd: float


PRESETS = {
    "sharegpt": Lengths(170, 200, 216, 230),
    "lmsys": Lengths(85, 110, 152, 180),
    "instruction": Lengths(22, 45, 140, 180),
    "code": Lengths(256, 150, 128, 100),
    "longbench": Lengths(4096, 2048, 256, 200),
}


def trace_of_preset(
    name: str,
    *,
    requests: int = 1000,
    per_s: float = 1.0,
    block_tokens: int = 16,
    seed: int = 0,
) -> Trace:
    """Draws a trace of requests that share nothing.

    Raises:
        InputError: for an unknown preset, or a number out of range.

    Example:
        >>> trace = trace_of_preset("lmsys", requests=4)
        >>> trace.input_tokens.min() >= 16, (trace.prev < 0).all()
        (np.True_, np.True_)
    """
    of, rng = preset(name), Random(seed)
    check_whole("preset", "requests", requests, 1, 10_000_000)
    check_number("preset", "per_s", per_s, above=True)
    check_whole("preset", "seed", seed, 0, 2**63 - 1)  # Random takes -1 for 1
    now, arrivals, prompts, responses = 0.0, [], [], []
    for _ in range(requests):
        now += rng.expovariate(per_s)
        arrivals.append(now)
        prompts.append(_draw(rng, of.prompt, of.prompt_sd, MOST_PROMPT))
        responses.append(_draw(rng, of.response, of.response_sd, MOST_RESPONSE))
    inputs = np.array(prompts, np.int64)
    counts = inputs // max(block_tokens, 1)
    columns = Columns(
        arrival_s=np.array(arrivals),
        input_tokens=inputs,
        output_tokens=np.array(responses, np.int64),
        ids=np.arange(counts.sum()),
        lengths=counts,
        session=list(range(requests)),
    )
    source = f"preset {name}, {requests:,} requests, seed {seed}"
    return build_trace(columns, block_tokens=block_tokens, source=source)


def preset(name: str) -> Lengths:
    """Lengths by a name.

    Raises:
        InputError: for a name that is none.
    """
    if name not in PRESETS:
        raise InputError(
            f"no preset is called {name!r}. There are: {', '.join(PRESETS)}."
        )
    return PRESETS[name]


def _draw(rng: Random, mean: float, deviation: float, most: int) -> int:
    for _ in range(TRIES):
        tokens = int(rng.gauss(mean, deviation))
        if LEAST <= tokens <= most:
            return tokens
    return int(min(max(mean, LEAST), most))
