"""Block traces: JSONL with `timestamp` s, `session_id`, lengths and chained `hash_ids`.

Ids stand for full blocks only. Optional: `agent` (a session is then an agent of a
session), `turn`, `stop` or `type` (either becomes the request's kind). The file does
not tell the block's size, but its lengths nearly always leave one that fits.
"""

import math
import warnings
from collections.abc import Iterator

import numpy as np

from perc.errors import InputError, TraceWarning
from perc.traces.build import Columns, build_trace
from perc.traces.fields import (
    block_ids,
    check_count,
    label,
    length,
    number,
    required_label,
)
from perc.traces.files import Record, records
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

SIZES_TRIED = 64  # when no size fits every line, to name the likely one


def read(path: str, options: Options) -> Trace:
    """Reads a block trace; `options.block_tokens` says what the lengths leave open.

    Turns that start at 0 in the file start at 1 in the trace.

    Raises:
        InputError: if the file is damaged, a line is not as it must be, or the size
            of a block is neither given nor to be derived.
    """
    rows = list(_rows(path, options))
    columns = gather(rows, path)
    block_tokens = options.block_tokens or _block_tokens(columns, path)
    _check_counts(rows, block_tokens, path)
    if columns.turn is not None and columns.turn.min() == 0:
        columns.turn += 1
    return build_trace(columns, block_tokens=block_tokens, source=path)


def _check_counts(rows: list[Row], block_tokens: int, path: str) -> None:
    short = 0
    for row in rows:
        full = row.input_tokens // block_tokens
        # Some writers cut a little off the prompt before they cut it into blocks.
        low = max(full - 1, 0)
        where = Record(path, row.line, {})
        check_count(where, len(row.ids), low, full, row.input_tokens, block_tokens)
        short += len(row.ids) < full
    if short:
        warnings.warn(
            f"{path}: {short} of {len(rows)} requests have one block less than their "
            "length fills; those tokens count as never cached.",
            TraceWarning,
            stacklevel=4,
        )


def _rows(path: str, options: Options) -> Iterator[Row]:
    for record in records(path, options.progress):
        session, agent = required_label(record, "session_id"), label(record, "agent")
        kind = label(record, "stop")
        kind = label(record, "type") if kind is None else kind
        yield Row(
            arrival_s=number(record, "timestamp"),
            input_tokens=length(record, "input_length"),
            output_tokens=length(record, "output_length"),
            ids=block_ids(record, "hash_ids"),
            line=record.line,
            session=session if agent is None else (session, agent),
            turn=length(record, "turn") if "turn" in record.fields else None,
            kind="unknown" if kind == "" else kind,
        )


def _block_tokens(columns: Columns, path: str) -> int:
    """The only b with floor(tokens / b) == number of ids on every line."""
    tokens, counts = columns.input_tokens, columns.lengths
    lowest = math.floor((tokens / (counts + 1)).max()) + 1
    some = counts > 0
    if not some.any():
        fit = f"{lowest} and more"
    else:
        highest = math.floor((tokens[some] / counts[some]).min())
        if lowest == highest:
            return highest
        fit = f"{lowest} to {highest}"
        if lowest > highest:
            fit = f"no size on every line: {_best_fit(columns)}"
    raise InputError(
        f"{path}: the size of a block is not in the file, and the lengths allow {fit}. "
        "Say --block-tokens."
    )


def _best_fit(columns: Columns) -> str:
    """The size that explains most requests, and the first line that it does not."""
    tokens, counts = columns.input_tokens, columns.lengths
    sizes, often = np.unique(tokens // np.maximum(counts, 1), return_counts=True)
    likely = np.maximum(sizes[np.argsort(-often)][:SIZES_TRIED], 1)
    right = [np.count_nonzero(tokens // size == counts) for size in likely]
    best = likely[int(np.argmax(right))]
    other = np.flatnonzero(tokens // best != counts)[0]
    assert columns.lines is not None
    return (
        f"{best} explains {max(right)} of {len(counts)} requests, but not line "
        f"{columns.lines[other]} with {counts[other]} ids for {tokens[other]} tokens"
    )
