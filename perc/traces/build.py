"""From raw columns to a `Trace`: sort by time, intern blocks, link accesses.

A block is identified by (identity of its parent, id), as in a trie. Ids that are
already chained (each id hashes everything before it) keep their partition; content
ids, which may stand under several parents, are split.
"""

import warnings
from dataclasses import dataclass, field

import numpy as np

from perc.errors import InputError, TraceWarning
from perc.types import Trace

INT32_MAX = np.iinfo(np.int32).max
TURN_MAX = 1_000_000  # beyond that a turn is some other number


@dataclass
class Columns:
    """What a reader or a generator knows of R requests, row by row.

    `ids` holds the block ids of all requests one after the other, root first;
    `lengths[r]` of them belong to row r. They may be integers of any width, or
    strings. Labels may be anything hashable; None means unknown.
    """

    arrival_s: np.ndarray  # f64[R]
    input_tokens: np.ndarray  # i64[R]
    output_tokens: np.ndarray  # i64[R]
    ids: np.ndarray  # [N]
    lengths: np.ndarray  # i64[R]
    session: list | np.ndarray | None = None  # label [R]; None in a row: on its own
    turn: np.ndarray | None = None  # i64[R], 1 = first; None: counted in the session
    kind: list | np.ndarray | None = None  # label [R]
    priority: np.ndarray | None = None  # i64[R]
    deadline_s: np.ndarray | None = None  # f64[R], after arrival
    lines: np.ndarray | None = field(default=None)  # i64[R], line in the file, from 1


def build_trace(
    columns: Columns, *, block_tokens: int, source: str, chained: bool = True
) -> Trace:
    """Checks the columns, sorts them by time and interns their blocks.

    Args:
        columns: the raw requests, in the order of the file.
        block_tokens: tokens of a full block.
        source: where they came from, for messages and reports.
        chained: the ids claim to identify the whole prefix, not just a block's
            content. A repeated id in one request is then an error.

    Returns:
        The trace, requests sorted by arrival (equal times keep their order), times
        counted from the first one.

    Raises:
        InputError: if a value is out of range; the message names source and line.
    """
    if block_tokens < 1:
        raise InputError(f"{source}: a block of {block_tokens} tokens; give 1 or more.")
    columns = _sorted_by_time(_checked(columns, block_tokens, source), source)
    lengths = columns.lengths.astype(np.int64)
    n_requests, n_accesses = len(lengths), int(lengths.sum())
    if n_accesses > INT32_MAX:
        raise InputError(
            f"{source}: {n_accesses} block accesses; at most {INT32_MAX} fit. "
            "Use larger blocks or a part of the trace."
        )
    stop = np.cumsum(lengths).astype(np.int32)
    start = (stop - lengths).astype(np.int32)
    request = np.repeat(np.arange(n_requests, dtype=np.int32), lengths)
    depth = np.arange(n_accesses, dtype=np.int32) - start[request]
    block = _intern(columns, request, depth, source, chained)
    prev, next_ = link_accesses(block)
    before = depth.astype(np.int64) * block_tokens
    tokens = np.minimum(block_tokens, columns.input_tokens[request] - before)
    session, turn, inferred = _sessions(
        columns, request, prev, start, stop, block_tokens
    )
    kind, kinds = _kinds(columns.kind, n_requests)
    arrival = columns.arrival_s - (columns.arrival_s[0] if n_requests else 0.0)
    return Trace(
        block=block,
        request=request,
        depth=depth,
        tokens=tokens.astype(np.int32),
        prev=prev,
        next=next_,
        start=start,
        stop=stop,
        arrival_s=arrival,
        input_tokens=columns.input_tokens.astype(np.int32),
        output_tokens=columns.output_tokens.astype(np.int32),
        session=session,
        turn=turn,
        kind=kind,
        priority=_or_neutral(columns.priority, n_requests, 0, np.int32),
        deadline_s=_or_neutral(columns.deadline_s, n_requests, np.inf, np.float64),
        block_tokens=block_tokens,
        source=source,
        kinds=kinds,
        sessions_inferred=inferred,
    )


def link_accesses(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`prev` and `next` of a trace: the neighbouring accesses of the same block."""
    prev = np.full(len(block), -1, np.int32)
    next_ = np.full(len(block), -1, np.int32)
    order = np.argsort(block, kind="stable").astype(np.int32)
    same = block[order[1:]] == block[order[:-1]]
    earlier, later = order[:-1][same], order[1:][same]
    prev[later], next_[earlier] = earlier, later
    return prev, next_


def _checked(columns: Columns, block_tokens: int, source: str) -> Columns:
    """Raises on the first row that cannot be; the message names its line."""
    arrival_s, inputs = columns.arrival_s, columns.input_tokens
    outputs = columns.output_tokens
    blocks_needed = np.ceil(inputs / block_tokens)
    at_most = f"at most {INT32_MAX}"
    tests = [
        (~np.isfinite(arrival_s), arrival_s, "time stamp", "a number"),
        (arrival_s < 0, arrival_s, "time stamp", "0 or more"),
        (inputs < 0, inputs, "input length", "0 or more"),
        (outputs < 0, outputs, "output length", "0 or more"),
        (inputs > INT32_MAX, inputs, "input length", at_most),
        (outputs > INT32_MAX, outputs, "output length", at_most),
        (
            columns.lengths > blocks_needed,
            columns.lengths,
            "number of block ids",
            f"at most one for every {block_tokens} tokens of input, the last may be "
            "partial; check the block size",
        ),
    ]
    if columns.turn is not None:
        strange = (columns.turn < 1) | (columns.turn > TURN_MAX)
        tests.append((strange, columns.turn, "turn", f"1 to {TURN_MAX}"))
    if columns.priority is not None:
        within = f"within {INT32_MAX}"
        far = np.abs(columns.priority.astype(np.float64)) > INT32_MAX
        tests.append((far, columns.priority, "priority", within))
    for wrong, values, name, allowed in tests:
        rows = np.flatnonzero(wrong)
        if len(rows):
            line = columns.lines[rows[0]] if columns.lines is not None else rows[0] + 1
            raise InputError(
                f"{source}, line {line}: {name} is {values[rows[0]]}, "
                f"must be {allowed}. {len(rows)} such line(s); mend or drop them."
            )
    return columns


def _sorted_by_time(columns: Columns, source: str) -> Columns:
    late = np.count_nonzero(np.diff(columns.arrival_s) < 0)
    if not late:
        return columns
    warnings.warn(
        f"{source}: {late} request(s) arrive before the one above them; "
        "sorted by time, equal times keep their order.",
        TraceWarning,
        stacklevel=4,
    )
    order = np.argsort(columns.arrival_s, kind="stable")
    stop = np.cumsum(columns.lengths)
    starts = (stop - columns.lengths)[order]
    lengths = columns.lengths[order]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)

    def pick(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[order]

    def pick_labels(values: list | np.ndarray | None) -> list | None:
        return None if values is None else [values[i] for i in order]

    return Columns(
        arrival_s=columns.arrival_s[order],
        input_tokens=columns.input_tokens[order],
        output_tokens=columns.output_tokens[order],
        ids=columns.ids[np.repeat(starts, lengths) + within],
        lengths=lengths,
        session=pick_labels(columns.session),
        turn=pick(columns.turn),
        kind=pick_labels(columns.kind),
        priority=pick(columns.priority),
        deadline_s=pick(columns.deadline_s),
        lines=pick(columns.lines),
    )


def _intern(
    columns: Columns,
    request: np.ndarray,
    depth: np.ndarray,
    source: str,
    chained: bool,
) -> np.ndarray:
    """Dense block numbers i32[N] by first appearance of (parent, id)."""
    code = factorize(columns.ids)
    if not len(code):
        return code
    first = _first_index(code)
    parent = np.where(depth > 0, np.roll(code, 1), -1)
    if np.array_equal(parent, parent[first][code]):
        return code  # each id has one parent already: chained, as nearly always
    if chained:
        _reject_repeats(columns, code, request, source)
        torn = np.flatnonzero(parent != parent[first][code])
        row = int(request[torn[0]])
        line = columns.lines[row] if columns.lines is not None else row + 1
        warnings.warn(
            f"{source}: {len(np.unique(code[torn]))} block id(s) stand under several "
            f"parents, first on line {line}, although this format chains them; told "
            "apart by (parent, id).",
            TraceWarning,
            stacklevel=4,
        )
    return _intern_levels(code, depth)


def _reject_repeats(
    columns: Columns, code: np.ndarray, request: np.ndarray, source: str
) -> None:
    pair = request.astype(np.int64) * (int(code.max()) + 1) + code
    _, where, counts = np.unique(pair, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = int(request[where[counts > 1].min()])
        line = columns.lines[row] if columns.lines is not None else row + 1
        raise InputError(
            f"{source}, line {line}: a block id occurs twice in one request, but ids "
            "of this format name a whole prefix. Mend or drop the line."
        )


def _intern_levels(code: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Interns (parent, id), all requests one level deeper at a time."""
    n_codes = np.int64(code.max()) + 1
    node = np.full(len(code), -1, np.int64)
    taken = 0
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.cumsum(np.bincount(depth))
    for lower, upper in zip(np.r_[0, bounds[:-1]], bounds, strict=True):
        at = by_depth[lower:upper]
        above = node[at - 1] if lower else np.full(len(at), -1, np.int64)
        _, inverse = np.unique((above + 1) * n_codes + code[at], return_inverse=True)
        node[at] = taken + inverse
        taken += int(inverse.max()) + 1
    return factorize(node)


def factorize(ids: np.ndarray) -> np.ndarray:
    """Dense numbers i32[N] for ids of any type, in order of first appearance."""
    if not len(ids):
        return np.zeros(0, np.int32)
    if ids.dtype.kind not in "iu":
        table: dict = {}
        return np.array([table.setdefault(x, len(table)) for x in ids], np.int32)
    low, high = int(ids.min()), int(ids.max())
    if high - low < 4 * len(ids) + 1024:
        wide = ids if ids.dtype.itemsize == 8 else ids.astype(np.int64)
        code = (wide - wide.dtype.type(low)).astype(np.int64)
    else:
        code = np.unique(ids, return_inverse=True)[1]
    first = _first_index(code)
    seen = np.flatnonzero(first >= 0)
    label = np.empty(len(first), np.int32)
    label[seen[np.argsort(first[seen], kind="stable")]] = np.arange(len(seen))
    return label[code]


def _first_index(code: np.ndarray) -> np.ndarray:
    """First position of each code, -1 where it does not occur."""
    first = np.full(int(code.max()) + 1, -1, np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)  # the last write wins
    return first


def _sessions(
    columns: Columns,
    request: np.ndarray,
    prev: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    block_tokens: int,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Session and turn of each request, inferred where the source has none."""
    n_requests = len(start)
    if columns.session is None:
        parent = parent_requests(
            request, prev, start, stop, columns.input_tokens // block_tokens
        )
        return *_follow(parent), True
    labels = [
        (None, i) if label is None else label for i, label in enumerate(columns.session)
    ]
    session = factorize(np.fromiter(labels, dtype=object, count=n_requests))
    if columns.turn is not None:
        return session, columns.turn.astype(np.int32), False
    order = np.argsort(session, kind="stable")
    counts = np.bincount(session) if n_requests else np.zeros(0, np.int64)
    opens = np.repeat(np.cumsum(counts) - counts, counts)
    turn = np.empty(n_requests, np.int32)
    turn[order] = np.arange(n_requests) - opens + 1
    return session, turn, False


def parent_requests(
    request: np.ndarray,
    prev: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    full_blocks: np.ndarray,
) -> np.ndarray:
    """The request that each request continues, i32[R], -1 = none, by prefix extension.

    Of the leading blocks seen before, the last one names the candidate: the request
    that touched it last. It is the parent if at least two blocks are shared, and all
    its full blocks.
    """
    n_requests = len(start)
    seen = np.bincount(request[prev >= 0], minlength=n_requests)  # a leading run
    rows = np.flatnonzero(seen >= 2)
    candidate = request[prev[start[rows] + seen[rows] - 1]]
    continues = seen[rows] >= full_blocks[candidate]
    parent = np.full(n_requests, -1, np.int32)
    parent[rows[continues]] = candidate[continues]
    return parent


def _follow(parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Session i32[R] and turn i32[R] from each request's parent, by pointer jumping."""
    index = np.arange(len(parent), dtype=np.int32)
    root = np.where(parent >= 0, parent, index)
    turn = (parent >= 0).astype(np.int32)
    while True:
        above = root[root]
        if np.array_equal(above, root):
            return factorize(root), turn + 1
        turn = turn + turn[root]
        root = above


def _kinds(
    labels: list | np.ndarray | None, n_requests: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    if labels is None or not n_requests:
        return np.zeros(n_requests, np.int32), ("request",)
    names = ["unknown" if label is None else str(label) for label in labels]
    return factorize(np.array(names, dtype=object)), tuple(dict.fromkeys(names))


def _or_neutral(values: np.ndarray | None, n: int, neutral: float, dtype) -> np.ndarray:
    return np.full(n, neutral, dtype) if values is None else values.astype(dtype)
