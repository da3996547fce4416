"""Files with checksums, whose checksum is right: what is in them is what is wrong.

Each kind stands as JSON for the mutations; here it becomes a file, with the checksum
that its reader wants. So the reader's checks behind the checksum are met.
"""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from perc import npz
from perc.bridges import recording
from perc.policies import store
from perc.traces import parquet
from tests.fuzz import seeds

# What a mutated value may break on the way into a file; then there is no such file.
NO_FILE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)


def policy_text(kind: str) -> bytes:
    """Header and arrays of a policy file as JSON."""
    header, raw = npz.unpack(seeds.policy_file(kind).read_bytes())
    arrays = {name: npz.to_array(name, part) for name, part in raw.items()}
    told = {name: [a.dtype.str, a.tolist()] for name, a in arrays.items()}
    return json.dumps({"header": header, "arrays": told}).encode()


def policy(text: bytes) -> bytes:
    """The file of such a text; the text itself if it can be none."""
    try:
        told = json.loads(text)
        arrays = {name: _array(*given) for name, given in told["arrays"].items()}
        header = told["header"]
        for name, array in arrays.items():  # sizes that fit, or the arrays are not met
            if isinstance(header.get("arrays", {}).get(name), dict):
                header["arrays"][name]["shape"] = list(array.shape)
        header["sha256"] = store._checksum(header, arrays)
        return npz.pack(header, arrays)
    except (*NO_FILE, RecursionError):
        return text


def _array(dtype: str, values: object) -> np.ndarray:
    """Of numbers; numpy takes other words for programs of theirs."""
    if dtype not in npz.DTYPES:
        raise ValueError(dtype)
    return np.array(values, dtype)


def trace_text() -> bytes:
    """Facts and columns of a trace file as JSON."""
    return _text(seeds.trace_file().read_bytes(), parquet.METADATA_KEY)


def trace(text: bytes) -> bytes:
    """The file of such a text."""
    return _parquet(
        text,
        parquet.METADATA_KEY,
        lambda table, facts: parquet._digest(parquet._trace(table, facts), facts),
    )


def part_text() -> bytes:
    """Facts and columns of a part of a recording as JSON."""
    (part,) = seeds.recording().iterdir()
    return _text(part.read_bytes(), recording.METADATA_KEY)


def part(text: bytes) -> bytes:
    """The file of such a text."""
    return _parquet(text, recording.METADATA_KEY, recording.digest)


def _text(data: bytes, key: str) -> bytes:
    import polars as pl

    facts = json.loads(pl.read_parquet_metadata(io.BytesIO(data))[key])
    table = pl.read_parquet(io.BytesIO(data))
    types = {name: str(dtype) for name, dtype in table.schema.items()}
    columns = table.to_dict(as_series=False)
    return json.dumps({"facts": facts, "types": types, "columns": columns}).encode()


def _parquet(text: bytes, key: str, digest: Callable[[Any, dict], str]) -> bytes:
    import polars as pl

    dtypes = {str(kind): kind for kind in _dtypes()}
    try:
        told = json.loads(text)
        columns = {
            name: pl.Series(name, v, dtypes[told["types"][name]], strict=False)
            for name, v in told["columns"].items()
        }
        table, facts = pl.DataFrame(columns), told["facts"]
    except (*NO_FILE, RecursionError, pl.exceptions.PolarsError):
        return text
    file = io.BytesIO()
    try:
        bare = {name: value for name, value in facts.items() if name != "sha256"}
        with np.errstate(invalid="ignore"):  # whatever the columns hold
            facts = bare | {"sha256": digest(table, bare)}
    except (*NO_FILE, pl.exceptions.PolarsError):
        pass  # the reader will not get as far as the checksum
    table.write_parquet(file, metadata={key: json.dumps(facts)})
    return file.getvalue()


def _dtypes() -> list[Any]:
    import polars as pl

    plain = [
        pl.Float64(),
        pl.Int32(),
        pl.Int64(),
        pl.UInt64(),
        pl.Boolean(),
        pl.String(),
    ]
    return [*plain, pl.List(pl.Int32), pl.List(pl.UInt64)]
