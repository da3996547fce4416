"""Files that are packed, cut, damaged or no text: the right lines or a clear error."""

import gzip
import lzma

import pytest
import zstandard

from perc.errors import InputError
from perc.traces.files import magic, records

TEXT = b'{"a": 1}\n{"a": 2}\n'
PACKERS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def numbers(path: str) -> list[tuple[int, int]]:
    return [(record.line, record.fields["a"]) for record in records(path)]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_packed_files_are_known_by_their_bytes_not_their_name(write, pack):
    assert numbers(write(pack(TEXT), "any.name")) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_parts_packed_one_after_the_other_are_read_on(write, kind):
    pack = PACKERS[kind]
    assert numbers(write(pack(TEXT[:9]) + pack(TEXT[9:]))) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_a_cut_file_is_an_error_and_not_a_shorter_trace(write, kind):
    whole = PACKERS[kind](TEXT * 500)
    for size in (len(whole) - 1, len(whole) // 2, 12):
        with pytest.raises(InputError, match="trace.jsonl: (cut short|cannot be read)"):
            numbers(write(whole[:size]))


@pytest.mark.parametrize("kind", ["gzip", "xz", "zstd"])
def test_a_damaged_file_is_an_error(write, kind):
    whole = bytearray(PACKERS[kind](TEXT * 500))
    whole[len(whole) // 2 :] = b"\x55" * (len(whole) - len(whole) // 2)
    with pytest.raises(InputError, match="trace.jsonl"):
        numbers(write(bytes(whole)))


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT[:-1],
        TEXT + b"\n",
        TEXT + b"\n  \n\n",
        TEXT.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + TEXT,
    ],
    ids=["LF", "no last LF", "blank end", "blank lines at the end", "CRLF", "BOM"],
)
def test_line_ends_and_byte_order_marks_do_not_matter(write, content):
    assert numbers(write(content)) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b'{"a": 1}\n\n{"a": 2}\n', "line 2: blank, but more follows"),
        (b'{"a": 1}\n{"a": \xff}\n', "line 2: byte 7 is no UTF-8"),
        ('{"a": 1}\n'.encode("utf-16"), "line 1: byte 1 is no UTF-8"),
        (b'{"a": 1}\n{"a": 2\n', r"line 2: no JSON .*: \{\"a\": 2"),
        (b'{"a": 1} {"a": 2}\n', "line 1: no JSON"),
        (b"[1, 2]\n", "line 1: a JSON list"),
        (b"17\n", "line 1: a JSON int"),
        (b'{"a": 1, "b": 2, "a": 3}\n', "line 1: .*field 'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 2}}\n', "line 1: .*field 'b' occurs twice"),
        (b"[" * 100_000 + b"\n", "line 1: no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "line 1: no JSON"),
        (b"PK\x03\x04....", "a zip file"),
        (b"BZh9....", "a bzip2 file"),
    ],
)
def test_what_is_no_jsonl_is_named_with_its_line(write, content, message):
    with pytest.raises(InputError, match=message):
        numbers(write(content))


def test_a_long_line_is_shown_in_part(write):
    with pytest.raises(InputError) as error:
        numbers(write("x" * 5000))
    assert len(str(error.value)) < 300


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        numbers(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="is a folder"):
        numbers(str(tmp_path))
    with pytest.raises(InputError, match="check the path"):
        magic(tmp_path / "nowhere")
    assert magic(tmp_path) == b""


def test_progress_ends_at_the_whole_file(write):
    shares: list[float] = []
    list(records(write(TEXT * 100_000), shares.append))
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
