"""From a file to records: decompress by magic bytes, split into lines, parse JSON.

Whatever is wrong with a file becomes an `InputError` that names file and line.
"""

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from perc.errors import InputError, bad_line, column_name, first_repeated

CHUNK_BYTES = 1 << 18
LONGEST_LINE = 1 << 28  # bytes; a small file can unpack to more than memory holds
ZSTD_PIECE = 1 << 10  # bytes; each may unpack to tens of thousands of times as many
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
UNSUPPORTED = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"7z\xbc\xaf": "7z"}
BOM = b"\xef\xbb\xbf"
Progress = Callable[[float], None] | None


class Record(NamedTuple):
    """A JSON object of a file, and where it stands."""

    path: str
    line: int  # from 1
    fields: dict
    inside: str = ""  # where in the line, e.g. "requests[3]."


def chunks(path: str | Path, progress: Progress = None) -> Iterator[bytes]:
    """The content of a plain, gzip, xz or zstd file, decompressed, piece by piece.

    Args:
        path: the file; its magic bytes tell the compression, not its name.
        progress: called with the share of the file that was read, 0 to 1.

    Raises:
        InputError: if the file is missing, a folder, damaged or cut short.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the trace file in it.")
    try:
        size = path.stat().st_size or 1
        with path.open("rb") as raw:
            for chunk in _decompressed(raw, path):
                if progress:
                    progress(raw.tell() / size)
                yield chunk
    except EOFError as error:
        raise InputError(f"{path}: cut short ({error}); fetch it again.") from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path.") from error
    except (lzma.LZMAError, zlib.error, zstandard.ZstdError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error


def magic(path: str | Path, n_bytes: int = 6) -> bytes:
    """The first bytes of a file as it lies on the disk; empty for a folder."""
    try:
        with Path(path).open("rb") as raw:
            return raw.read(n_bytes)
    except IsADirectoryError:
        return b""
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check the path.") from error


def _decompressed(raw: BinaryIO, path: Path) -> Iterator[bytes]:
    start = raw.read(6)
    raw.seek(0)
    for prefix, name in UNSUPPORTED.items():
        if start.startswith(prefix):
            raise InputError(
                f"{path}: a {name} file, but perc reads .gz, .xz, .zst; unpack it."
            )
    if start.startswith(ZSTD):
        yield from _zstd_chunks(raw)
        return
    stream: io.BufferedIOBase | BinaryIO = raw
    if start.startswith(GZIP):
        stream = gzip.GzipFile(fileobj=raw)
    elif start.startswith(XZ):
        stream = lzma.LZMAFile(raw)
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def _zstd_chunks(raw: BinaryIO) -> Iterator[bytes]:
    """Frame by frame: the library's own reader takes a cut file for a whole one."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    fed = False
    while data := raw.read(ZSTD_PIECE):
        while data:
            yield frame.decompress(data)
            fed, data = not frame.eof, frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
    if fed:
        raise EOFError("the last zstd frame does not end")


def split_lines(path: str, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, from 1, without line ends (LF or CRLF) and byte-order mark.

    Raises:
        InputError: if a line is longer than any request can be.
    """
    number, rest = 0, []  # pieces of a line that is not over yet
    length = 0  # theirs
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        length += len(first)
        for line in others:
            number += 1
            yield number, _bare(b"".join(rest), number)
            rest, length = [line], len(line)
        if length > LONGEST_LINE:
            raise bad_line(
                path,
                number + 1,
                f"longer than {LONGEST_LINE >> 20} MiB",
                "A trace has a line a request; is it one?",
            )
    if any(rest):
        yield number + 1, _bare(b"".join(rest), number + 1)


def _bare(line: bytes, number: int) -> bytes:
    return (line.removeprefix(BOM) if number == 1 else line).removesuffix(b"\r")


def text_lines(
    path: str, numbered: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, str]]:
    """Numbered lines as text; blank lines may stand at the end only.

    Raises:
        InputError: on a blank line before the end, on what is not UTF-8, or if there
            is no line at all.
    """
    blank, number = 0, 0
    for number, line in numbered:
        if not line.strip():
            blank = blank or number
            continue
        if blank:
            raise bad_line(path, blank, "blank, but more follows", "Remove the line.")
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise bad_line(
                path,
                number,
                f"byte {error.start + 1} is no UTF-8",
                "Is it a text file? Save it as UTF-8.",
            ) from error
    if not number or blank == 1:
        raise InputError(f"{path}: the file is empty; a trace has a line a request.")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = first_repeated(name for name, _ in pairs)
        raise ValueError(f"field {column_name(str(twice))!r} occurs twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def parse_records(
    path: str, lines: Iterable[tuple[int, str]], *, private: bool = False
) -> Iterator[Record]:
    """One `Record` a line; errors do not quote a line of a `private` file.

    Raises:
        InputError: if a line is no JSON object, or names a field twice.
    """
    for number, text in lines:
        try:
            fields = _DECODER.decode(text)
        except (ValueError, RecursionError) as error:
            shown = text if len(text) <= 40 else text[:37] + "..."
            what = f"no JSON ({error})" + ("" if private else f": {shown}")
            raise bad_line(path, number, what, "Mend or drop the line.") from error
        if not isinstance(fields, dict):
            raise bad_line(
                path,
                number,
                f"a JSON {type(fields).__name__}",
                "Each line must be an object, {...}.",
            )
        yield Record(path, number, fields)


def records(
    path: str | Path, progress: Progress = None, *, private: bool = False
) -> Iterator[Record]:
    """The JSON objects of a JSONL file, compressed or not; see `chunks` for errors."""
    name = str(path)
    lines = split_lines(name, chunks(path, progress))
    return parse_records(name, text_lines(name, lines), private=private)
