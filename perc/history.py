"""What a server remembers of the traffic when a request has run: inputs of a network.

One row an access, one column a name of `NAMES`. A request's blocks fall into *runs*:
neighbours that one and the same earlier request used last (or none did), and that are
all full or all partial. Every column is constant along a run, so whatever is computed
from a row needs to be computed once a run.

All columns are causal: they use this request, its output included, and earlier ones:
those above it in the trace, be they of the same time. A server can keep them up with
one record a block, a session and a request (`tests/oracles/history.py` does).

Counts, tokens and seconds enter as log2(1 + x): a network sees ratios of them. What is
0 or 1, and a share, enters as it is.
"""

import numpy as np

from perc.groups import (
    count_before,
    distinct_so_far,
    first_equal,
    group_by,
    last_before,
)
from perc.types import Trace

RECENT_S = 60.0  # window of the request rate
NEVER_S = 86_400.0  # in place of a time since something that has not happened
# Why a request stopped, where its kind says so; as Anthropic's and OpenAI's servers
# name it.
TOOL_STOPS = ("tool_use", "tool_calls", "function_call")
TURN_STOPS = ("end_turn", "stop")


def history(trace: Trace) -> np.ndarray:
    """What is remembered at each access.

    Args:
        trace: N accesses of R requests. Requests without blocks have no rows, but
            count in the columns of the session and in `rate`.

    Returns:
        f32[N, H], columns in the order of `NAMES`; all finite, none negative.
    """
    if not trace.n_accesses:
        return np.zeros((0, len(NAMES)), np.float32)
    last, run = runs(trace)
    by_request = {**_of_requests(trace), **_of_sessions(trace), **_of_roots(trace)}
    columns = {name: column[trace.request[last]] for name, column in by_request.items()}
    columns |= _of_blocks(trace, last)
    table = np.stack([columns[name].astype(np.float32) for name in NAMES], axis=1)
    return table[run]


def runs(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Runs of accesses: the last access of each i64[S], and the run of each i64[N]."""
    user = np.where(trace.prev >= 0, trace.request[trace.prev], -1)
    partial = trace.tokens < trace.block_tokens
    first = np.ones(trace.n_accesses, bool)
    first[1:] = (
        (trace.request[1:] != trace.request[:-1])
        | (user[1:] != user[:-1])
        | (partial[1:] != partial[:-1])
    )
    last = np.flatnonzero(np.append(first, True)[1:])
    return last, np.cumsum(first) - 1


# "Seen before" is said of a block that an earlier request used. Such blocks lead their
# prompt. A time since what has not happened is `NEVER_S`; one that has may be longer.
NAMES = (
    # The request.
    "input",  # tokens of its prompt
    "output",  # tokens that it generated
    "new",  # input less `block_tokens` for each block seen before, at least 0
    "seen",  # share of its blocks that were seen before
    "filled",  # tokens of its last block / `block_tokens`
    "rate",  # earlier requests that arrived at its arrival - `RECENT_S` or later
    # Its kind, or what follows the last colon of it (`workloads.shifts` puts a number
    # before it), is one of these words, letter by letter; a trace whose kinds say
    # something else has 0 in both.
    "tools",  # it ended in a call of a tool: `TOOL_STOPS`, 0 or 1
    "ended",  # it ended the turn: `TURN_STOPS`, 0 or 1
    # The one before: the last earlier request that used its deepest block seen before.
    # All are 0, and `since` is `NEVER_S`, where no block was seen before.
    "follows",  # it shares all blocks of that one, the last one excepted, 0 or 1
    "typed",  # input less that one's prompt and output, at least 0; 0 if not `follows`
    "before_input",  # tokens of that one's prompt
    "before_output",  # tokens of that one's output
    "since",  # seconds from that one's arrival
    "siblings",  # earlier requests of which that one is the one before
    # The session. Requests without blocks count here.
    "turn",  # requests of the session so far, this one included
    "session_age",  # seconds from its first request, 0 at it
    "session_gap",  # seconds from its request before this one
    "mean_gap",  # session_age / (turn - 1), the mean seconds between its requests
    # The first block.
    "prefix_users",  # earlier requests that began with the same block
    "prefix_gap",  # seconds from the last of them
    # The run of blocks; what differs along it is of its last block.
    "partial",  # the block is not full, 0 or 1
    "uses",  # earlier requests that used it
    "gap",  # seconds from the last of them
    "age",  # seconds from the first of them, 0 if there is none
    "children",  # distinct blocks that came right after it in earlier requests
    "sessions",  # distinct sessions that used it, this one included
    "depth",  # blocks from the root to it, itself included
    "below",  # blocks of the request after it
)


def _log(x: np.ndarray) -> np.ndarray:
    return np.log2(1 + np.maximum(np.asarray(x, np.float64), 0))


def _since(t: Trace, request: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Seconds f64 between two requests, `NEVER_S` where the earlier one is -1."""
    seconds = t.arrival_s[request] - t.arrival_s[earlier]
    return np.where(earlier >= 0, seconds, NEVER_S)


def _of_requests(t: Trace) -> dict[str, np.ndarray]:
    """Columns of the request and of the one before it, [R] each.

    What stands in the rows of requests without blocks is never looked at.
    """
    index, blocks = np.arange(t.n_requests), t.stop - t.start
    inputs, outputs = t.input_tokens.astype(np.int64), t.output_tokens.astype(np.int64)
    seen = np.bincount(t.request[t.prev >= 0], minlength=t.n_requests)
    some = seen > 0
    before = np.full(t.n_requests, -1)
    before[some] = t.request[t.prev[(t.start + seen - 1)[some]]]
    # The end of a prompt may be written anew, as the mark where the answer begins is.
    follows = some & (seen >= blocks[before] - 1)
    typed = inputs - inputs[before] - outputs[before]
    recent = index - np.searchsorted(t.arrival_s, t.arrival_s - RECENT_S)
    return {
        "input": _log(inputs),
        "output": _log(outputs),
        "new": _log(inputs - seen * t.block_tokens),
        "seen": seen / np.maximum(blocks, 1),
        "filled": t.tokens[t.stop - 1] / t.block_tokens,
        "rate": _log(recent),
        "tools": _stopped(t, TOOL_STOPS),
        "ended": _stopped(t, TURN_STOPS),
        "follows": follows,
        "typed": _log(typed) * follows,
        "before_input": _log(inputs[before]) * some,
        "before_output": _log(outputs[before]) * some,
        "since": _log(_since(t, index, before)),
        "siblings": _log(count_before(group_by(before))) * some,
    }


def _stopped(t: Trace, words: tuple[str, ...]) -> np.ndarray:
    named = [kind.rpartition(":")[2] in words for kind in t.kinds]
    return np.array(named)[t.kind]


def _of_sessions(t: Trace) -> dict[str, np.ndarray]:
    groups, index = group_by(t.session), np.arange(t.n_requests)
    turns = count_before(groups)
    age = _since(t, index, first_equal(groups))
    return {
        "turn": _log(turns + 1),
        "session_age": _log(age),
        "session_gap": _log(_since(t, index, last_before(groups))),
        "mean_gap": _log(np.where(turns > 0, age / np.maximum(turns, 1), NEVER_S)),
    }


def _of_roots(t: Trace) -> dict[str, np.ndarray]:
    index = np.arange(t.n_requests)
    some = t.stop > t.start  # where the others start, another request's blocks are
    root = np.full(t.n_requests, -1)
    root[some] = t.block[t.start[some]]
    groups = group_by(root)
    return {
        "prefix_users": _log(count_before(groups)),
        "prefix_gap": _log(_since(t, index, last_before(groups))),
    }


def _of_blocks(t: Trace, last: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of the last block of each run, [S] each."""
    groups, request = group_by(t.block), t.request[last]
    user = np.where(t.prev[last] >= 0, t.request[t.prev[last]], -1)
    first = t.request[first_equal(groups)[last]]
    return {
        "partial": t.tokens[last] < t.block_tokens,
        "uses": _log(count_before(groups)[last]),
        "gap": _log(_since(t, request, user)),
        "age": _log(_since(t, request, first)),
        "children": _log(_children(t, last)),
        "sessions": _log(distinct_so_far(groups, t.session[t.request])[last]),
        "depth": _log(t.depth[last] + 1),
        "below": _log(t.stop[request] - 1 - last),
    }


def _children(t: Trace, at: np.ndarray) -> np.ndarray:
    """Distinct blocks that came after the block of each access in earlier requests.

    A block always comes after the same one, so it is new there when it is new at all.
    """
    born = np.flatnonzero((t.prev < 0) & (np.arange(t.n_accesses) > t.start[t.request]))
    width = t.n_requests + 1
    births = np.sort(t.block[born - 1].astype(np.int64) * width + t.request[born])
    none = t.block[at].astype(np.int64) * width
    return np.searchsorted(births, none + t.request[at]) - np.searchsorted(births, none)
