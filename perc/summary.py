"""What a trace is like, in plain numbers: the facts that decide what a cache can do.

Ideal hit ratio = accesses of blocks seen before / all accesses: an infinite cache.
"""

from typing import Any

import numpy as np

from perc.metrics import ratio
from perc.traces.build import parent_requests
from perc.types import Trace

QUANTILES = (0.1, 0.5, 0.9, 0.99)


def summarize(trace: Trace) -> dict[str, Any]:
    """Describes a trace; every value is a number, text, list or dict of such.

    Args:
        trace: any trace, empty ones too: shares and ratios are then 0.

    Returns:
        source, requests, sessions, sessions_inferred, block_tokens, accesses: as named.
        blocks: distinct ones.
        span_s, requests_per_s: from the first arrival to the last.
        input_tokens, output_tokens: in all.
        request_input_tokens, request_output_tokens: quantiles over requests.
        longest_request_blocks: blocks of the longest prompt.
        ideal_block_hit_ratio: accesses of blocks seen before / accesses.
        ideal_token_hit_ratio: tokens of those / all input tokens.
        never_reused_share: of the distinct blocks, those accessed once.
        partial_share: of the accesses, those of a block that is not full.
        kinds: requests of each kind.
        turns: requests that are the k-th of their session, k from 1.
        continued: of those, the share that a later request continues.
        follow_up_gap_s: quantiles of the time from a request to its continuation.
        reuse_time_s: quantiles of the time between two accesses of a block.

        Quantiles are a dict p10, p50, p90, p99; None where there is nothing to
        measure. A request continues the one before it in its session; where sessions
        are inferred, the one whose prompt it extends.
    """
    n_requests = trace.n_requests
    seen = trace.prev >= 0
    counts = np.bincount(trace.block, minlength=trace.n_blocks)
    span_s = float(trace.arrival_s[-1] - trace.arrival_s[0]) if n_requests else 0.0
    input_total = int(trace.input_tokens.sum(dtype=np.int64))
    parent = continued_requests(trace)
    child = np.flatnonzero(parent >= 0)
    gap_s = trace.arrival_s[child] - trace.arrival_s[parent[child]]
    kinds = np.bincount(trace.kind, minlength=len(trace.kinds)).tolist()
    return {
        "source": trace.source,
        "requests": n_requests,
        "sessions": len(np.unique(trace.session)),
        "sessions_inferred": trace.sessions_inferred,
        "block_tokens": trace.block_tokens,
        "accesses": trace.n_accesses,
        "blocks": trace.n_blocks,
        "span_s": span_s,
        "requests_per_s": ratio(n_requests, span_s),
        "input_tokens": input_total,
        "output_tokens": int(trace.output_tokens.sum(dtype=np.int64)),
        "request_input_tokens": _quantiles(trace.input_tokens),
        "request_output_tokens": _quantiles(trace.output_tokens),
        "longest_request_blocks": trace.longest_request,
        "ideal_block_hit_ratio": ratio(int(seen.sum()), trace.n_accesses),
        "ideal_token_hit_ratio": ratio(
            int(trace.tokens[seen].sum(dtype=np.int64)), input_total
        ),
        "never_reused_share": ratio(int((counts == 1).sum()), trace.n_blocks),
        "partial_share": ratio(
            int((trace.tokens < trace.block_tokens).sum()), trace.n_accesses
        ),
        "kinds": dict(zip(trace.kinds, kinds, strict=True)),
        **_turns(trace.turn, parent),
        "follow_up_gap_s": _quantiles(gap_s),
        "reuse_time_s": _quantiles(_reuse_time_s(trace, seen)),
    }


def continued_requests(trace: Trace) -> np.ndarray:
    """The request that each request continues, i32[R], -1 = it opens its session."""
    if trace.sessions_inferred:
        return parent_requests(
            trace.request,
            trace.prev,
            trace.start,
            trace.stop,
            trace.input_tokens // trace.block_tokens,
        )
    order = np.argsort(trace.session, kind="stable").astype(np.int32)
    same = trace.session[order[1:]] == trace.session[order[:-1]]
    parent = np.full(trace.n_requests, -1, np.int32)
    parent[order[1:][same]] = order[:-1][same]
    return parent


def _turns(turn: np.ndarray, parent: np.ndarray) -> dict[str, list]:
    turns = np.bincount(turn)[1:]
    continued = np.unique(parent[parent >= 0])
    followed = np.bincount(turn[continued], minlength=len(turns) + 1)[1:]
    return {
        "turns": turns.tolist(),
        "continued": [
            ratio(a, b) for a, b in zip(followed.tolist(), turns.tolist(), strict=True)
        ],
    }


def _reuse_time_s(trace: Trace, seen: np.ndarray) -> np.ndarray:
    now, before = trace.request[seen], trace.request[trace.prev[seen]]
    return trace.arrival_s[now] - trace.arrival_s[before]


def _quantiles(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    found = np.quantile(values, QUANTILES).tolist()
    return {f"p{round(100 * q)}": x for q, x in zip(QUANTILES, found, strict=True)}
