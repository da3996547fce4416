"""A JSON header and plain arrays in one `.npz`, read as if an enemy had written it.

numpy's own reader trusts a file: it inflates whatever a zip holds, allocates whatever a
header declares, and can be told to unpickle. Here a file has at most 64 MiB, nothing in
it is compressed, so nothing can grow, and only numbers are arrays. `numpy.load` reads
what `pack` writes.
"""

import io
import json
import math
import os
import re
import stat
import struct
import zipfile
from typing import Any

import numpy as np

from perc.errors import InputError

HEADER = "perc_header"  # name of the array that holds the JSON, as bytes
LIMIT_BYTES = 1 << 26
HEADER_LIMIT_BYTES = 1 << 20
MOST_ARRAYS = 256
DEEPEST = 32  # levels of JSON
LONGEST_WHOLE = 19  # digits, as in 2**63 - 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
DTYPES = ("|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
FETCH = "Fetch the file again, or write it anew."
GIVE = "Give a file that perc.policies.store wrote."

_FIRST, _END, _ZIP64 = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07"
_END_RECORD = struct.Struct("<4s4H2LH")
_DIRECTORY_LIMIT = (MOST_ARRAYS + 1) * 160  # bytes: 46 and a name each
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's first day: no clock may show in a file
_ZIP_FAULTS = (  # all that zipfile was seen, or is documented, to answer damage with
    zipfile.BadZipFile,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
)
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(..)"
    rb"(\{'descr': '([^']{1,16})', 'fortran_order': (False|True), "
    rb"'shape': \(((?:\d{1,10}, ?){0,8}(?:\d{1,10})?)\), \} *\n)",
    re.DOTALL,
)


def pack(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of a file; the same content gives the same bytes.

    Args:
        header: plain JSON, as `plain_json` returns it.
        arrays: numbers of any size, by names as in `NAME`.

    Raises:
        InputError: for a name or dtype that no file can hold, or too many bytes.
    """
    if len(arrays) > MOST_ARRAYS:
        raise InputError(f"{len(arrays)} arrays; {MOST_ARRAYS} fit. Join some.")
    text = np.frombuffer(canonical(header), np.uint8)
    if len(text) > HEADER_LIMIT_BYTES:
        raise InputError(
            f"its header has {len(text)} bytes, at most {HEADER_LIMIT_BYTES} fit. Say "
            "less about the training."
        )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {HEADER: text, **dict(sorted(arrays.items()))}.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            entry.create_system = 3  # on every system
            entry.external_attr = 0o644 << 16
            part = io.BytesIO()
            np.lib.format.write_array(part, array, (1, 0), allow_pickle=False)
            archive.writestr(entry, part.getvalue())
    if file.tell() > LIMIT_BYTES:
        raise InputError(f"{file.tell()} bytes; {LIMIT_BYTES} fit. Store less.")
    return file.getvalue()


def plain_array(name: str, given: Any) -> np.ndarray:
    """An array as files hold it: C order, little-endian, of one of `DTYPES`.

    Raises:
        InputError: for a name or dtype that no file can hold.
    """
    if not NAME.fullmatch(name) or name == HEADER:
        raise InputError(f"{short(name)} cannot name an array; use letters and digits.")
    array = np.asarray(given)
    array = array.astype(array.dtype.newbyteorder("<"), order="C")
    if array.dtype.str not in DTYPES:
        raise InputError(
            f"array {name!r} holds {array.dtype}; store numbers: {', '.join(DTYPES)}."
        )
    if array.ndim > 8:
        raise InputError(f"array {name!r} has {array.ndim} axes; at most 8 fit.")
    return array


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The whole of a plain file of at most `LIMIT_BYTES`.

    Raises:
        InputError: if it is none, or cannot be read. The message starts without path.
    """
    try:
        mode = os.stat(path).st_mode  # first: to open a pipe may wait for ever
        if stat.S_ISDIR(mode):
            raise InputError("is a folder; give the file in it.")
        if not stat.S_ISREG(mode):
            raise InputError("is no plain file; copy it into one.")
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise InputError("no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); mend that.") from None
    except ValueError as error:  # InputError as well
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be a path ({error}); check it.") from None
    if len(data) > LIMIT_BYTES:
        raise InputError(f"has more than {LIMIT_BYTES} bytes, the most allowed. {GIVE}")
    return data


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and arrays of a file, the arrays still as bytes: see `to_array`.

    Raises:
        InputError: as `members`, or if there is no header of JSON.
    """
    found = members(data)
    if HEADER not in found:
        raise InputError(f"is an .npz file, but no policy. {GIVE}")
    text = to_array(HEADER, found.pop(HEADER))
    if text.dtype != np.uint8 or text.ndim != 1 or len(text) > HEADER_LIMIT_BYTES:
        raise InputError(f"has a header that is no text, or too long. {GIVE}")
    return parse_json(text.tobytes()), found


def members(data: bytes) -> dict[str, bytes]:
    """What a file holds by name: each array with numpy's header before it.

    Raises:
        InputError: if the bytes are not those of a zip that `pack` could have written.
    """
    _check_end(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, len(data))
            return {e.filename.removesuffix(".npy"): archive.read(e) for e in entries}
    except InputError:
        raise
    except _ZIP_FAULTS as error:
        raise InputError(f"is damaged ({words(error)}). {FETCH}") from error


def _check_end(data: bytes) -> None:
    """Bounds the directory before zipfile reads it, at about 1 kB an entry."""
    if not data:
        raise InputError(f"is empty. {FETCH}")
    if not data.startswith(_FIRST):
        raise InputError(f"is no .npz file. {GIVE}")
    tail = data[-_END_RECORD.size :]
    if len(tail) < _END_RECORD.size or not tail.startswith(_END):
        raise InputError(f"is cut short, or something was added behind it. {FETCH}")
    entries, size = _END_RECORD.unpack(tail)[4:6]
    beyond = data[-_END_RECORD.size - 20 :].startswith(_ZIP64)
    if beyond or entries > MOST_ARRAYS + 1 or size > _DIRECTORY_LIMIT:
        raise InputError(f"holds more than {MOST_ARRAYS} arrays. {GIVE}")


def _check_entries(entries: list[zipfile.ZipInfo], file_bytes: int) -> None:
    names = [entry.filename for entry in entries]
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename or not NAME.fullmatch(name):
            raise InputError(f"holds {short(entry.filename)}, no array. {GIVE}")
        if entry.flag_bits & 1:
            raise InputError(f"is encrypted. {GIVE}")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise InputError(f"is compressed, which perc does not do. {GIVE}")
        if entry.file_size != entry.compress_size or entry.extra:
            raise InputError(f"is damaged (size of {short(name)}). {FETCH}")
    if len(set(names)) < len(names):
        raise InputError(f"holds two arrays of one name. {GIVE}")
    if sum(entry.file_size for entry in entries) > file_bytes:  # they overlap
        raise InputError(f"declares more bytes than it has. {FETCH}")


def to_array(name: str, raw: bytes) -> np.ndarray:
    """The array of a member, a copy in the machine's byte order.

    Raises:
        InputError: unless it is plain numbers in C order, as many as declared.
    """
    found = _NPY.match(raw)
    if not found or len(found[2]) != int.from_bytes(found[1], "little"):
        raise InputError(f"array {short(name)} has no plain numpy header. {GIVE}")
    dtype, shape = found[3].decode("latin-1"), found[5].replace(b" ", b"").split(b",")
    if dtype not in DTYPES:
        raise InputError(
            f"array {short(name)} holds {dtype!r}, no plain numbers; perc unpickles "
            f"nothing. {GIVE}"
        )
    if found[4] == b"True":
        raise InputError(f"array {short(name)} is in Fortran order. {GIVE}")
    sizes = tuple(int(size) for size in shape if size)
    declared = math.prod(size or 1 for size in sizes)  # numpy also counts beside a 0
    payload = raw[found.end() :]
    expected = math.prod(sizes) * np.dtype(dtype).itemsize
    if len(sizes) > 8 or declared > LIMIT_BYTES or expected != len(payload):
        raise InputError(
            f"array {short(name)} of shape {sizes} and {dtype} does not fit its "
            f"{len(payload)} bytes. {FETCH}"
        )
    array = np.ndarray(sizes, dtype, buffer=payload)
    return array.astype(array.dtype.newbyteorder("="))


def canonical(plain: Any) -> bytes:
    """JSON with sorted keys, without spaces, in ASCII."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def plain_json(given: dict[str, Any]) -> dict[str, Any]:
    """A table as a file gives it back: tuples as lists, keys as text.

    Raises:
        InputError: for what JSON cannot say, or says in more than `DEEPEST` levels.
    """
    try:
        return parse_json(json.dumps(given, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"cannot be written as JSON ({words(error)}). Give numbers, texts, "
            "lists and tables."
        ) from error


def parse_json(text: bytes) -> dict[str, Any]:
    """A JSON object whose keys are unique and whose numbers are finite and not huge.

    Raises:
        InputError: for anything else.
    """
    try:
        table = _DECODER.decode(text.decode())
        if not isinstance(table, dict):
            raise ValueError(f"a {type(table).__name__}, no object")
        _check_depth(table, DEEPEST)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no good JSON ({words(error)}). {FETCH}") from error
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key stands twice")
    return table


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > LONGEST_WHOLE:
        raise ValueError(f"a number of more than {LONGEST_WHOLE} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def _check_depth(value: Any, levels: int) -> None:
    if not isinstance(value, dict | list):
        return
    if not levels:
        raise ValueError(f"more than {DEEPEST} levels")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, levels - 1)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_int=_whole,
    parse_float=_finite,
    parse_constant=_finite,
)


def short(value: object) -> str:
    """What a file says, safe to print: in quotes, escaped, and not long."""
    return f"'{words(value)}'"


def words(value: object) -> str:
    """The same without quotes, for sentences such as those of errors."""
    text = str(value).encode("unicode_escape").decode()
    return f"{text[:57]}..." if len(text) > 60 else text
