"""RAGPulse: requests as lists of segments, whose token lengths stand in other files.

A prompt is the segments of sys_prompt, passages, history, web_search and user_input,
in this order, cut into full blocks. A block may straddle segments: its content is
(segment, offset) of its first token and the segments that follow in it.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perc.errors import InputError
from perc.traces.build import build_trace
from perc.traces.fields import label, length, number, required, wrong
from perc.traces.files import (
    Progress,
    Record,
    chunks,
    parse_records,
    records,
    split_lines,
    text_lines,
)
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

BLOCK_TOKENS = 16
LARGEST = 1 << 32  # bytes of an archive, unpacked
TRACE_FILE = "0_trace.jsonl"
# File of a segment's length, name of its id there, name of the list in a request;
# in the order of the prompt.
SEGMENTS = (
    ("1_sys_prompt.jsonl", "sys_prompt_id", "sys_prompt"),
    ("2_passages.jsonl", "passage_id", "passages_ids"),
    ("3_history.jsonl", "history_id", "history"),
    ("5_web_search.jsonl", "web_search_id", "web_search"),
    ("4_user_input.jsonl", "user_input_id", "user_input"),
)


class _Segments(NamedTuple):
    """All segments end to end on one line of tokens."""

    number: dict[tuple[str, object], int]  # (list, id) of a segment
    start: np.ndarray  # i64, its first token on that line
    length: np.ndarray  # i64, its tokens


def read(path: str, options: Options) -> Trace:
    """Reads RAGPulse: the folder, its tar archive or `0_trace.jsonl` in the folder.

    Prompts are cut into blocks of `options.block_tokens`, or 16; tokens that fill no
    block have none.

    Raises:
        InputError: if a file is missing or damaged, or a line is not as it must be.
    """
    block_tokens = options.block_tokens or BLOCK_TOKENS
    if block_tokens < 1:
        raise InputError(f"{path}: a block of {block_tokens} tokens; give 1 or more.")
    files = _files(path, options.progress)
    segments = _segments(files)
    columns = gather(_rows(files[TRACE_FILE], segments, block_tokens), path)
    return build_trace(columns, block_tokens=block_tokens, source=path, chained=False)


def _files(path: str, progress: Progress) -> dict[str, Iterator[Record]]:
    names = [TRACE_FILE, *(name for name, _, _ in SEGMENTS)]
    place = Path(path)
    if place.name == TRACE_FILE:
        place = place.parent
    if place.is_dir():
        return {name: records(place / name, progress) for name in names}
    found = _unpacked(path, _joined(place, progress))
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} missing; fetch it again.")
    return found


def _joined(place: Path, progress: Progress) -> bytes:
    archive = io.BytesIO()
    for piece in chunks(place, progress):
        if archive.tell() + len(piece) > LARGEST:
            raise InputError(
                f"{place}: unpacks to more than {LARGEST >> 30} GiB; give its folder."
            )
        archive.write(piece)
    return archive.getvalue()


def _unpacked(path: str, archive: bytes) -> dict[str, Iterator[Record]]:
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                if not member.isfile():  # links may lead nowhere, or to themselves
                    continue
                content = tar.extractfile(member)
                if content:
                    where = f"{path}:{member.name}"
                    lines = text_lines(where, split_lines(where, [content.read()]))
                    found[Path(member.name).name] = parse_records(where, lines)
    except tarfile.TarError as error:
        raise InputError(
            f"{path}: no folder and no tar archive of RAGPulse ({error}); give one."
        ) from error
    return found


def _segments(files: dict[str, Iterator[Record]]) -> _Segments:
    index: dict[tuple[str, object], int] = {}
    lengths = []
    for name, field, group in SEGMENTS:
        for record in files[name]:
            segment = length(record, field)
            if index.setdefault((group, segment), len(lengths)) != len(lengths):
                raise wrong(record, field, segment, "an id that is not used above")
            lengths.append(length(record, "token_length"))
    tokens = np.array(lengths, np.int64)
    return _Segments(index, np.cumsum(tokens) - tokens, tokens)


def _rows(
    requests: Iterator[Record], segments: _Segments, block_tokens: int
) -> Iterator[Row]:
    straddling: dict[tuple, int] = {}
    for record in requests:
        seconds = required(record, "timestamp")
        if type(seconds) is str and seconds.isascii() and seconds.isdigit():
            record.fields["timestamp"] = int(seconds)  # written as a string
        prompt = _prompt(record, segments)
        yield Row(
            arrival_s=number(record, "timestamp"),
            input_tokens=length(record, "input_length"),
            output_tokens=length(record, "output_length"),
            ids=_cut(prompt, segments, block_tokens, straddling),
            line=record.line,
            session=label(record, "session_id"),
            kind="rag+web" if record.fields["hash_ids"]["web_search"] else "rag",
        )


def _prompt(record: Record, segments: _Segments) -> np.ndarray:
    """The segments of a request that hold tokens, in the order of the prompt."""
    lists = required(record, "hash_ids")
    if type(lists) is not dict:
        raise wrong(record, "hash_ids", lists, "an object of five lists")
    inner = record._replace(fields=lists, inside="hash_ids.")
    found = []
    for name, _, group in SEGMENTS:
        ids = required(inner, group)
        if type(ids) is not list:
            raise wrong(inner, group, ids, "a list of segment ids")
        for i, segment in enumerate(ids):
            at = segments.number.get((group, segment)) if type(segment) is int else None
            if at is None:
                raise wrong(inner, f"{group}[{i}]", segment, f"an id of {name}")
            found.append(at)
    prompt = np.array(found, np.int64)
    return prompt[segments.length[prompt] > 0]


def _cut(
    prompt: np.ndarray,
    segments: _Segments,
    block_tokens: int,
    straddling: dict[tuple, int],
) -> np.ndarray:
    """Content ids of the full blocks: where the first token lies on the line of all
    tokens, or, for a block that straddles, a number of its own beyond that line."""
    stop = np.cumsum(segments.length[prompt])
    n_blocks = int(stop[-1]) // block_tokens if len(stop) else 0
    first_token = np.arange(n_blocks) * block_tokens
    first = np.searchsorted(stop, first_token, side="right")
    last = np.searchsorted(stop, first_token + block_tokens - 1, side="right")
    offset = first_token - (stop - segments.length[prompt])[first]
    ids = segments.start[prompt[first]] + offset
    line_end = int(segments.length.sum())
    for block in np.flatnonzero(first != last):
        followers = prompt[first[block] + 1 : last[block] + 1]
        key = (int(ids[block]), *followers.tolist())
        ids[block] = line_end + straddling.setdefault(key, len(straddling))
    return ids
