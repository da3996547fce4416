"""Recorded requests on disk: parts of a recording, each of them whole or not there.

A part is a parquet file, `RECORDING-NUMBER.parquet`, one row a request that gave its
blocks back. It holds times, lengths and names of blocks that mean nothing elsewhere:
hashes of the engine's own hashes under a secret that is never written. So neither text
nor tokens can be found again, not even by guessing prompts, and two recordings of the
same traffic do not match. `perc.bridges.recording_join` makes a trace of the parts.
"""

import hashlib
import json
import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perc.files import check_writable, write_atomically

VERSION = 1
METADATA_KEY = "perc_recording"
PART_ROWS = 10_000
PART_BLOCKS = 1_000_000  # 8 MB
LIMIT_BYTES = 1 << 30  # of a recording; then its oldest parts go
UNKNOWN = -1
COLUMNS = {
    "arrival_s": np.float64,  # UTC, when the engine's front end got the request
    "started_s": np.float64,  # UTC, when its prompt was looked up
    "released_s": np.float64,  # UTC, when it gave its blocks back
    "input_tokens": np.int64,
    "output_tokens": np.int64,
    "hit_tokens": np.int64,  # of the prompt, found in the cache
    "turn": np.int64,
    "priority": np.int64,
    "preempted": np.bool_,  # it goes on later, and will be here again
}


class Row(NamedTuple):
    """A request that has given its blocks back."""

    arrival_s: float
    started_s: float
    released_s: float
    input_tokens: int
    output_tokens: int
    hit_tokens: int  # UNKNOWN = untold
    turn: int  # 1 = first of its session, UNKNOWN = untold
    priority: int
    preempted: bool
    session: int | None  # None = untold
    kind: str
    blocks: np.ndarray  # u64, names of the full blocks of its prompt, root first


class Key:
    """Renames blocks and sessions under a secret that dies with the process."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)

    def blocks(self, hashes: Iterable[bytes]) -> np.ndarray:
        """Names u64 of blocks."""
        names = b"".join(self._digest(block, b"block") for block in hashes)
        return np.frombuffer(names, np.uint64)

    def session(self, label: Hashable) -> int | None:
        """The name of a session, None for None."""
        if label is None:
            return None
        return int.from_bytes(self._digest(repr(label).encode(), b"session"), "little")

    def _digest(self, data: bytes, what: bytes) -> bytes:
        keyed = hashlib.blake2b(data, digest_size=8, key=self._secret, person=what)
        return keyed.digest()


class Parts:
    """Writes the parts of one recording.

    Args:
        folder: made if it does not exist.
        block_tokens: tokens of a full block.
        source: who tells, for people.
        rows: of a part, at most.
        blocks: of a part; the request that passes it is the last one.
        limit_bytes: of all parts; then the oldest are removed.

    Raises:
        InputError: if the folder cannot be written to.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        block_tokens: int,
        source: str,
        *,
        rows: int = PART_ROWS,
        blocks: int = PART_BLOCKS,
        limit_bytes: int = LIMIT_BYTES,
    ):
        self.folder = Path(folder)
        check_writable(self.folder)
        self.name = os.urandom(8).hex()
        self.requests = 0
        self.dropped = 0  # requests that somebody could not hand over in time
        self._block_tokens = block_tokens
        self._source = source
        self._most_rows, self._most_blocks = rows, blocks
        self._limit_bytes = limit_bytes
        self._rows: list[Row] = []
        self._blocks = 0
        self._number = 0
        self._sizes: dict[Path, int] = {}  # of the parts that are there, oldest first

    def add(self, row: Row) -> None:
        """Takes a row, and writes a part when it is full."""
        self._rows.append(row)
        self._blocks += len(row.blocks)
        self.requests += not row.preempted
        if len(self._rows) >= self._most_rows or self._blocks >= self._most_blocks:
            self.flush()

    def flush(self) -> None:
        """Writes what there is; the file appears under its name when it is whole."""
        if not self._rows:
            return
        table = _table(self._rows)
        facts = {
            "version": VERSION,
            "recording": self.name,
            "part": self._number,
            "block_tokens": self._block_tokens,
            "source": self._source,
            "dropped": self.dropped,
        }
        facts["sha256"] = digest(table, facts)
        metadata = {METADATA_KEY: json.dumps(facts)}
        path = write_atomically(
            self.folder / f"{self.name}-{self._number:06}.parquet",
            lambda part: table.write_parquet(part, metadata=metadata),
        )
        self._rows, self._blocks = [], 0
        self._number += 1
        self._sizes[path] = path.stat().st_size
        self._forget()

    def _forget(self) -> None:
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._limit_bytes:
            oldest = next(iter(self._sizes))
            oldest.unlink(missing_ok=True)
            del self._sizes[oldest]


def _table(rows: list[Row]) -> Any:
    import polars as pl

    columns: dict[str, Any] = {
        name: np.array([getattr(row, name) for row in rows], dtype)
        for name, dtype in COLUMNS.items()
    }
    sessions, kinds = [row.session for row in rows], [row.kind for row in rows]
    columns["session"] = pl.Series("session", sessions, dtype=pl.UInt64)
    columns["kind"] = pl.Series("kind", kinds, dtype=pl.String)
    blocks = [pl.Series(row.blocks) for row in rows]
    columns["blocks"] = pl.Series("blocks", blocks, dtype=pl.List(pl.UInt64))
    return pl.DataFrame(columns)


def digest(table: Any, facts: dict[str, Any]) -> str:
    """Of all that a part holds: parquet as such does not notice a flipped bit."""
    found = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in COLUMNS:
        found.update(np.ascontiguousarray(table[name].to_numpy()).data)
    labels = [table["session"].to_list(), table["kind"].to_list()]
    found.update(json.dumps(labels).encode())
    lengths, ids = block_lists(table)
    found.update(lengths.tobytes() + ids.tobytes())
    return found.hexdigest()


def block_lists(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of each row i64[R], and their names u64[N] one row after the other."""
    lengths = table["blocks"].list.len().to_numpy().astype(np.int64)
    some = table.filter(lengths > 0)  # explode makes a null of an empty list
    return lengths, some["blocks"].explode().to_numpy().astype(np.uint64)
