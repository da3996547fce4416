"""Alibaba Bailian traces: JSONL with `chat_id`, `parent_chat_id`, 16-token blocks.

A session is the chain of `parent_chat_id` up to its root (-1). The publication does
not say that an id covers the blocks before it, so ids are taken as content ids.
"""

import warnings
from collections.abc import Iterator

import numpy as np

from perc.errors import TraceWarning, bad_line
from perc.traces.build import build_trace
from perc.traces.fields import (
    block_ids,
    check_count,
    label,
    length,
    number,
    required_label,
)
from perc.traces.files import records
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

BLOCK_TOKENS = 16
NO_PARENT = -1


def read(path: str, options: Options) -> Trace:
    """Reads a Bailian trace; `options.block_tokens` replaces 16.

    Raises:
        InputError: if the file is damaged, a line is not as it must be, a chat_id
            occurs twice or the parents form a circle.
    """
    block_tokens = options.block_tokens or BLOCK_TOKENS
    chats = list(_rows(path, options, block_tokens))
    columns = gather((row for row, _, _ in chats), path)
    columns.session = _roots(chats, path)
    return build_trace(columns, block_tokens=block_tokens, source=path, chained=False)


def _rows(
    path: str, options: Options, block_tokens: int
) -> Iterator[tuple[Row, object, object]]:
    """Row, chat_id and parent_chat_id (None = none) of each line."""
    for record in records(path, options.progress):
        tokens = length(record, "input_length")
        ids = block_ids(record, "hash_ids")
        full = tokens // block_tokens
        whole = -(-tokens // block_tokens)
        check_count(record, len(ids), full, whole, tokens, block_tokens)
        chat, parent = (
            required_label(record, "chat_id"),
            label(record, "parent_chat_id"),
        )
        row = Row(
            arrival_s=number(record, "timestamp"),
            input_tokens=tokens,
            output_tokens=length(record, "output_length"),
            ids=ids,
            line=record.line,
            turn=length(record, "turn", least=1) if "turn" in record.fields else None,
            kind=label(record, "type"),
        )
        yield row, chat, None if parent in (NO_PARENT, str(NO_PARENT)) else parent


def _roots(chats: list[tuple[Row, object, object]], path: str) -> np.ndarray:
    """The row of each chat's root, i64[R], by pointer jumping."""
    rows: dict = {}
    for i, (row, chat, _) in enumerate(chats):
        if rows.setdefault(chat, i) != i:
            first = chats[rows[chat]][0].line
            what = f"chat_id {chat!r} stands on line {first} already"
            raise bad_line(path, row.line, what, "Drop one of the two.")
    above = [None if parent is None else rows.get(parent) for _, _, parent in chats]
    lost = sum(parent is not None and parent not in rows for _, _, parent in chats)
    if lost:
        warnings.warn(
            f"{path}: {lost} of {len(chats)} requests continue a chat that is not in "
            "the file; each starts a session here and keeps its turn.",
            TraceWarning,
            stacklevel=3,
        )
    root = np.array([i if x is None else x for i, x in enumerate(above)], np.int64)
    is_root = np.array([x is None for x in above])
    for _ in range(len(root).bit_length()):
        root = root[root]
    if not is_root[root].all():
        line = chats[int(np.flatnonzero(~is_root[root])[0])][0].line
        what = "parent_chat_id leads in a circle"
        raise bad_line(path, line, what, "A parent must be an earlier chat.")
    return root
