"""Prompts and answers, whatever a data set calls them: files, rows, conversations.

A file is CSV, JSON (a list of rows, or an object with one under `data`), JSONL or
parquet; all but the last also as .gz, .xz or .zst. Its rows have one of three schemas,
the first that fits:

    conversation_list     a column of messages, as in ShareGPT
    turn_table            a row a message, with a column that names the conversation
    flat_prompt_response  a row a prompt, with or without its answer
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from perc.errors import InputError, column_name, first_repeated, outline
from perc.profile_table import table_rows
from perc.traces.files import chunks, magic, records

LISTS = ("conversations", "messages", "conversation", "chat", "dialogue")
GROUPS = (
    "conversation_id",
    "dialogue_id",
    "chat_id",
    "thread_id",
    "session_id",
    "message_tree_id",
)
ROLES = ("role", "from", "speaker", "author")
TEXTS = ("content", "value", "message", "text", "utterance")
PROMPTS = (
    "instruction",
    "input",
    "prompt",
    "question",
    "query",
    "context",
    "user_input",
)
ANSWERS = ("output", "response", "answer", "completion", "assistant_response")
ANSWERING = {"gpt", "assistant", "chatgpt", "model", "bot"}  # other roles ask


class Message(NamedTuple):
    """What one side said."""

    answer: bool  # written by the model
    text: str


class Conversation(NamedTuple):
    """One row of a data set, or the rows of one conversation."""

    name: str  # row-0, row-1, ... or its label in a turn table
    messages: tuple[Message, ...]


class Dataset(NamedTuple):
    """What a file or a hub's data set holds."""

    source: str
    schema: str
    conversations: list[Conversation]
    total: int | None  # conversations there, those beyond the limit too; None: unknown


def read_dataset(path: str | os.PathLike[str], *, limit: int | None = None) -> Dataset:
    """Reads a file of prompts and answers.

    Args:
        path: of the file.
        limit: conversations to keep; None keeps all.

    Raises:
        InputError: if the file cannot be read, has no schema that is known, or a row
            is not as its schema wants it.
    """
    source = os.fspath(path)
    return conversations(source, list(_rows(source)), limit=limit)


def conversations(
    source: str, rows: list[dict], *, limit: int | None = None
) -> Dataset:
    """Finds the schema of rows and reads them by it.

    Example:
        >>> rows = [{"instruction": "Say", "input": "hi", "output": "Hi."}]
        >>> found = conversations("made", rows)
        >>> found.schema, found.conversations[0].messages[0].text
        ('flat_prompt_response', 'Say\\nhi')
    """
    if not rows:
        raise InputError(f"{source}: holds no row; a row is a prompt or a message.")
    if limit is not None and limit < 1:
        raise InputError(f"{source}: a limit of {limit} rows; give 1 or more.")
    names = set().union(*rows)
    lists, group = _first(LISTS, names), _first(GROUPS, names)
    role, text = _first(ROLES, names), _first(TEXTS, names)
    if lists:
        found = _numbered(rows, limit, lambda at, row: _listed(source, at, lists, row))
        return Dataset(source, "conversation_list", found, len(rows))
    if group and role and text:
        found = _grouped(source, rows, group, role, text)
        return Dataset(source, "turn_table", found[:limit], len(found))
    if not names & set(PROMPTS):
        raise InputError(
            f"{source}: no column of messages ({', '.join(LISTS)}), no turns (a column "
            f"such as {GROUPS[0]} with {ROLES[0]} and {TEXTS[0]}), and no prompt "
            f"({', '.join(PROMPTS)}); there are: "
            f"{', '.join(sorted(map(column_name, names)))}. Rename one."
        )
    found = _numbered(rows, limit, lambda at, row: _flat(source, at, row))
    return Dataset(source, "flat_prompt_response", found, len(rows))


def _numbered(rows: list[dict], limit: int | None, read) -> list[Conversation]:
    return [
        Conversation(f"row-{at}", read(at, row)) for at, row in enumerate(rows[:limit])
    ]


def _listed(source: str, at: int, name: str, row: dict) -> tuple[Message, ...]:
    """Messages of a list of objects, of texts that alternate, or of either as JSON."""
    told = row.get(name)
    if isinstance(told, str):
        try:
            told = _load(f"{source}, row-{at}: {name}", told)
        except InputError:
            raise
        except (ValueError, RecursionError):
            raise _wrong(source, at, name, told, "a list of messages") from None
    if told is None:
        other = _first(LISTS + PROMPTS + TEXTS, (key for key in row if row[key]))
        if other is not None:
            raise InputError(
                f"{source}, row-{at}: no {name}, but {other}. A file has rows of one "
                "kind: split it."
            )
        return ()
    if not isinstance(told, list):
        raise _wrong(source, at, name, told, "a list of messages")
    found = []
    for turn, message in enumerate(told):
        if isinstance(message, str):
            said = _text(source, at, name, message)
            found.append(Message(turn % 2 == 1, said))
            continue
        if not isinstance(message, dict):
            raise _wrong(source, at, name, message, "made of messages")
        role, text = _first(ROLES, message), _first(TEXTS, message)
        if role is None or text is None:
            raise _wrong(
                source, at, name, message, f"of messages with {ROLES[0]} and {TEXTS[0]}"
            )
        said = _text(source, at, text, message[text])
        found.append(Message(_answers(message[role]), said))
    return tuple(found)


def _grouped(
    source: str, rows: list[dict], group: str, role: str, text: str
) -> list[Conversation]:
    found: dict[object, list[Message]] = {}
    for at, row in enumerate(rows):
        label = row.get(group)
        several = isinstance(label, list | dict)
        if label is None or several or not _sound(str(label)):
            raise _wrong(source, at, group, label, "the name of a conversation")
        said = _text(source, at, text, row.get(text))
        found.setdefault(label, []).append(Message(_answers(row.get(role)), said))
    return [Conversation(str(name), tuple(said)) for name, said in found.items()]


def _flat(source: str, at: int, row: dict) -> tuple[Message, ...]:
    asked = [_text(source, at, name, row.get(name)) for name in PROMPTS]
    answered = [_text(source, at, name, row.get(name)) for name in ANSWERS]
    prompt = Message(False, "\n".join(filter(str.strip, asked)))
    answer = next(filter(str.strip, answered), "")
    return (prompt, Message(True, answer)) if answer else (prompt,)


def _text(source: str, at: int, name: str, value: object) -> str:
    """A text, nothing, or parts such as {"type": "text", "text": ...}; joined."""
    if value is None:
        return ""
    joined = value
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        joined = "\n".join(part for part in parts if isinstance(part, str))
    if isinstance(joined, str) and _sound(joined):
        return joined
    raise _wrong(source, at, name, value, "text that UTF-8 can hold")


def _sound(text: str) -> bool:
    """A lone surrogate can be written in JSON, but is no text."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _answers(role: object) -> bool:
    return str(role).strip().lower() in ANSWERING


def _first(wanted: tuple[str, ...], there: Iterable[str]) -> str | None:
    there = set(there)
    return next((name for name in wanted if name in there), None)


def _rows(path: str) -> Iterator[dict]:
    if magic(path).startswith(b"PAR1"):
        yield from table_rows(path, "parquet")
    elif ".csv" in (suffix.lower() for suffix in Path(path).suffixes[-2:]):
        yield from table_rows(path, "CSV")
    elif (told := _whole_json(path)) is None:
        yield from (record.fields for record in records(path, private=True))
    else:
        for at, row in enumerate(told):
            if not isinstance(row, dict):
                raise _wrong(path, at, "the row", row, "an object")
            yield row


def _whole_json(path: str) -> list | None:
    """The rows of a JSON file; None where it is one object a line."""
    data = b"".join(chunks(path)).removeprefix(b"\xef\xbb\xbf").strip()
    first = data.split(b"\n", 1)[0]
    if data.startswith(b"{") and _is_json(first) and first != data:
        return None
    try:
        told = _load(path, data)
    except InputError:
        raise
    except (ValueError, RecursionError):
        return None  # line by line there is a better message
    if isinstance(told, dict):
        inner = told.get("data")
        return inner if isinstance(inner, list) else [told]
    return told if isinstance(told, list) else None


def _load(where: str, text: str | bytes) -> object:
    """JSON in which no object names a field twice; the first would be lost unsaid."""

    def fields(pairs: list[tuple[str, object]]) -> dict:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = first_repeated(name for name, _ in pairs)
            shown = column_name(str(twice))
            raise InputError(f"{where}: field {shown!r} occurs twice. Drop one.")
        return found

    return json.loads(text, object_pairs_hook=fields)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _wrong(source: str, at: int, name: str, value: object, allowed: str) -> InputError:
    return InputError(
        f"{source}, row-{at}: {name} is {outline(value)}, must be {allowed}. Mend or "
        "drop it."
    )
