"""kv-cache-tester sessions: one JSON object a line, with all requests of a session.

Three traps. Ids are content hashes, not chained: interned as (parent, id). A turn is
recorded twice, type `s` (streaming) and then `n` with the same ids: collapsed. Some
sessions are in the file twice, partly with other ids: the first is kept.

There are no absolute times. Starts are *invented*: uniform over a span that gives the
density asked for, from a seed; a warning says so.
"""

import random
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perc.errors import InputError, TraceWarning, bad_line
from perc.traces.build import build_trace
from perc.traces.fields import (
    MEND,
    block_ids,
    check_count,
    label,
    length,
    number,
    required,
    required_label,
    wrong,
)
from perc.traces.files import Record, records
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

SPAN_HOURS = 24.0  # of the starts, where no density is given
# A twin is looked for among this many requests before it, of the same agent. With six
# the published count of 25,294 requests comes out, request for request.
TWIN_WINDOW = 6
MAIN = "main"


class _Entry(NamedTuple):
    """A request as it is recorded, twins and all."""

    agent: object
    type: object  # "s": streamed, "n": not
    row: Row


def read(path: str, options: Options) -> Trace:
    """Reads sessions and spreads their starts over time.

    A session of the trace is one agent of one recorded session. Starts are drawn as
    `random.Random(start_seed).uniform(0, span_s)` in the order of the file; the span
    is sessions / `options.sessions_per_hour`, or 24 hours where that is not given.

    Raises:
        InputError: if the file is damaged or a line is not as it must be.
    """
    distinct, repeats = _distinct(path, options)
    block_tokens = _one_block_size(distinct, options.block_tokens, path)
    sessions = [_collapsed(entries) for _, entries in distinct]
    twins = sum(len(entries) for _, entries in distinct) - sum(map(len, sessions))
    del distinct  # the twins' ids with it
    span_s = _span_s(len(sessions), options.sessions_per_hour)
    columns = gather(_spread(sessions, span_s, options.start_seed), path)
    _warn(path, len(sessions), repeats, twins, span_s, options.start_seed)
    del sessions
    return build_trace(columns, block_tokens=block_tokens, source=path, chained=False)


def _spread(sessions: list[list[Row]], span_s: float, seed: int) -> list[Row]:
    draw = random.Random(seed)
    starts = [draw.uniform(0, span_s) for _ in sessions]
    rows = [
        row._replace(arrival_s=row.arrival_s + start)
        for start, session in zip(starts, sessions, strict=True)
        for row in session
    ]
    return sorted(rows, key=lambda row: row.arrival_s)


def _span_s(n_sessions: int, per_hour: float | None) -> float:
    if per_hour is None:
        return SPAN_HOURS * 3600
    if not 0 < per_hour < float("inf"):
        raise InputError(
            f"--sessions-per-hour is {per_hour}, must be more than 0; "
            "422 sessions in a day are 17.6."
        )
    return n_sessions / per_hour * 3600


def _one_block_size(
    distinct: list[tuple[int, list[_Entry]]], asked: int | None, path: str
) -> int:
    found = sorted({block_tokens for block_tokens, _ in distinct})
    if len(found) > 1:
        raise InputError(
            f"{path}: sessions with blocks of {', '.join(map(str, found))} tokens; "
            "split the file by size."
        )
    if asked not in (None, found[0]):
        raise InputError(
            f"{path}: the file says blocks of {found[0]} tokens, not {asked}; "
            "leave --block-tokens out."
        )
    return found[0]


def _warn(
    path: str, kept: int, repeats: int, twins: int, span_s: float, seed: int
) -> None:
    facts = [
        f"session starts are invented: {kept} sessions, uniform over "
        f"{span_s / 3600:.4g} h (--sessions-per-hour), seed {seed} (--start-seed)."
    ]
    if twins:
        facts.append(f"{twins} requests are the twin of another; collapsed.")
    if repeats:
        facts.append(
            f"{repeats} of {kept + repeats} sessions repeat the times and lengths of "
            "another; dropped."
        )
    for fact in facts:
        warnings.warn(f"{path}: {fact}", TraceWarning, stacklevel=4)


def _distinct(
    path: str, options: Options
) -> tuple[list[tuple[int, list[_Entry]]], int]:
    """Block size and entries of each session, and how many repeats were dropped."""
    seen, distinct, repeats = set(), [], 0
    for record in records(path, options.progress):
        block_tokens = length(record, "block_size", least=1)
        session = required_label(record, "id")
        try:
            entries = list(_entries(record, session, MAIN, 0.0, block_tokens))
        except RecursionError:
            what = "sub-agents of sub-agents, hundreds deep"
            raise bad_line(path, record.line, what, MEND) from None
        signature = tuple((e.agent, e.type, *e.row[:3]) for e in entries)
        if signature in seen:
            repeats += 1
            continue
        seen.add(signature)
        distinct.append((block_tokens, entries))
    return distinct, repeats


def _entries(
    record: Record, session: object, agent: object, start_s: float, block_tokens: int
) -> Iterator[_Entry]:
    """The requests of a session or sub-agent, whose `t` count from its own."""
    nested = required(record, "requests")
    if type(nested) is not list:
        raise wrong(record, "requests", nested, "a list of requests")
    for i, fields in enumerate(nested):
        if type(fields) is not dict:
            raise wrong(record, f"requests[{i}]", fields, "an object, {...}")
        at = record._replace(fields=fields, inside=f"{record.inside}requests[{i}].")
        arrival_s = start_s + number(at, "t")
        if fields.get("type") == "subagent":
            inner = required_label(at, "agent_id")
            yield from _entries(at, session, inner, arrival_s, block_tokens)
            continue
        tokens, ids = length(at, "in"), block_ids(at, "hash_ids")
        full = tokens // block_tokens
        check_count(at, len(ids), full, full, tokens, block_tokens)
        row = Row(
            arrival_s=arrival_s,
            input_tokens=tokens,
            output_tokens=length(at, "out"),
            ids=ids,
            line=record.line,
            session=(session, agent),
            kind=label(at, "stop") or "unknown",
        )
        yield _Entry(agent, label(at, "type"), row)


def _collapsed(entries: list[_Entry]) -> list[Row]:
    """One row a turn: it arrives with the first of two twins and ends as the second."""
    rows: list[Row] = []
    kept: dict[object, list[int]] = {}  # agent: its rows
    waiting: set[int] = set()  # rows that were streamed and have no twin yet
    for entry in entries:
        mine = kept.setdefault(entry.agent, [])
        twin = None
        if entry.type == "n":
            recent = (i for i in reversed(mine[-TWIN_WINDOW:]) if i in waiting)
            same = (i for i in recent if np.array_equal(rows[i].ids, entry.row.ids))
            twin = next(same, None)
        if twin is None:
            mine.append(len(rows))
            if entry.type == "s":
                waiting.add(len(rows))
            rows.append(entry.row)
            continue
        waiting.remove(twin)
        ends = entry.row
        rows[twin] = rows[twin]._replace(
            output_tokens=ends.output_tokens, kind=ends.kind
        )
    return rows
