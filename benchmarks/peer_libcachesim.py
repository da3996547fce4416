"""A peer for `perc.replay` that knows objects only: libCacheSim, and a trace for it.

libCacheSim looks up and inserts one object at a time, so a request of many blocks is
not served as a whole: its first blocks may push out its last ones before they are
looked up. No order of the blocks makes the two agree on prompts. They do agree, hit for
hit, where every request has one block; both replay that trace here.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from perc.traces.build import Columns, build_trace
from perc.types import Trace

# libCacheSim's "oracleGeneral" format; next = place of the next access, -1 = none.
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
HASH_POWER = 18  # the default of 24 makes a table whose set-up takes 10 times the run


def one_block_requests(trace: Trace) -> Trace:
    """Every access as a request of its own, from the leaf to the root of a prompt.

    That order is LRU's inside a request: the tail leaves before the root.
    """
    mirror = (trace.start + trace.stop - 1)[trace.request] - np.arange(trace.n_accesses)
    ones = np.ones(trace.n_accesses, np.int64)
    return build_trace(
        Columns(
            arrival_s=trace.arrival_s[trace.request],
            input_tokens=ones * trace.block_tokens,
            output_tokens=ones,
            ids=trace.block[mirror],
            lengths=ones,
            session=trace.session[trace.request],
        ),
        block_tokens=trace.block_tokens,
        source=f"{trace.source}, one block a request",
    )


def write_records(trace: Trace, path: Path) -> None:
    """Writes the accesses as libCacheSim reads them; an id of 0 is not allowed."""
    records = np.zeros(trace.n_accesses, RECORD)
    records["time"] = trace.arrival_s[trace.request]
    records["id"] = trace.block + 1
    records["size"] = 1
    records["next"] = trace.next
    records.tofile(path)


def stock(
    library: ModuleType, name: str, capacity: int, hash_power: int | None = HASH_POWER
) -> Any:
    """One of its own caches; None leaves the size of the hash table to the library."""
    options = {} if hash_power is None else {"hashpower": hash_power}
    return getattr(library, name)(cache_size=capacity, **options)


class LibCacheSim:
    """One configuration, ready to run once: the set-up is not part of what is timed."""

    def __init__(self, library: ModuleType, path: Path, cache: Any):
        self._cache = cache
        self._reader = library.TraceReader(
            str(path),
            library.TraceType.ORACLE_GENERAL_TRACE,
            library.ReaderInitParam(ignore_obj_size=True),
        )
        self._accesses = path.stat().st_size // RECORD.itemsize
        self.hits = -1  # not run yet

    def replay(self) -> None:
        """Replays the whole file from an empty cache."""
        miss_ratio, _ = self._cache.process_trace(self._reader)
        self.hits = round((1 - miss_ratio) * self._accesses)
