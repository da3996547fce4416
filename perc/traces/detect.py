"""Which format a file has, by its content; what is unknown is said, never guessed."""

from pathlib import Path

from perc.errors import InputError
from perc.traces.files import (
    chunks,
    magic,
    parse_records,
    split_lines,
    text_lines,
)
from perc.traces.formats import known_formats
from perc.traces.ragpulse import TRACE_FILE

TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257


def detect_format(path: str) -> str:
    """The name of the format of a file or folder.

    Raises:
        InputError: if it cannot be read, or is of no known format.
    """
    if Path(path).is_dir():
        if (Path(path) / TRACE_FILE).is_file():
            return "ragpulse"
        raise InputError(
            f"{path}: is a folder without {TRACE_FILE}; give a file. (A run of --out "
            "is shown by perc report, and compared with a second one.)"
        )
    if magic(path).startswith(b"PAR1"):
        return "parquet"
    pieces = chunks(path)
    start = next(pieces, b"")
    if start[TAR_MAGIC_AT:].startswith(TAR_MAGIC):
        return "ragpulse"
    lines = text_lines(path, split_lines(path, _again(start, pieces)))
    return _by_first_line(path, lines)


def _again(start: bytes, pieces):
    yield start
    yield from pieces


def _by_first_line(path: str, lines) -> str:
    number, first = next(lines)
    if not first.lstrip().startswith("{"):
        if "ContextTokens" in first:
            return "azure"
        raise _unknown(path, f"it starts with {first[:40]!r}")
    fields = next(parse_records(path, [(number, first)])).fields
    found = _by_fields(fields)
    if found:
        return found
    raise _unknown(path, f"its first line has the fields {', '.join(fields) or 'none'}")


def _by_fields(fields: dict) -> str | None:
    if {"requests", "block_size"} <= fields.keys():
        return "sessions"
    if {"chat_id", "parent_chat_id"} <= fields.keys():
        return "bailian"
    if not {"timestamp", "input_length", "hash_ids"} <= fields.keys():
        return None
    if isinstance(fields["hash_ids"], dict):
        return "ragpulse"
    return "blocks" if "session_id" in fields else "mooncake"


def _unknown(path: str, what: str) -> InputError:
    return InputError(
        f"{path}: an unknown format; {what}. Known formats, to be said with --format:\n"
        + known_formats()
    )
