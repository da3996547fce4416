"""One way for bytes of others into perc, and the helpers that describe one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import perc
from perc.cli import main
from perc.types import Trace
from tests.fuzz import seeds
from tests.fuzz.mutations import damage, mutate


@dataclass(frozen=True)
class Target:
    """One way for bytes of others into perc."""

    name: str
    seeds: Callable[[], list[bytes]]  # valid ones
    use: Callable[[Path], object]  # as a person would
    file: str = "input.jsonl"  # what it is called; suffixes may count
    pack: Callable[[bytes, Random], bytes] = lambda data, draw: data  # around it
    mutate: Callable[[list[bytes], Random], bytes] = mutate


def read_trace(path: Path, form: str = "auto") -> Trace:
    """Loads a trace; what is no trace must not come out."""
    # Of the size, only the format `blocks` may have to be told.
    size = 64 if form == "blocks" else None
    trace = perc.load(str(path), format=form, block_tokens=size)
    requests, accesses = np.arange(trace.n_requests), np.arange(trace.n_accesses)
    assert trace.n_requests > 0 and trace.block_tokens > 0
    assert np.isfinite(trace.arrival_s).all() and (np.diff(trace.arrival_s) >= 0).all()
    assert (trace.input_tokens >= 0).all() and (trace.output_tokens >= 0).all()
    assert (trace.stop - trace.start >= 0).all()
    assert (np.repeat(requests, trace.stop - trace.start) == trace.request).all()
    assert ((0 <= trace.block) & (trace.block < trace.n_blocks)).all()
    assert ((-1 <= trace.prev) & (trace.prev < accesses)).all()
    assert ((0 < trace.tokens) & (trace.tokens <= trace.block_tokens)).all()
    assert trace.kind.min() >= 0 and trace.kind.max() < len(trace.kinds)
    return trace


def command(*before: object, after: tuple[object, ...] = ()) -> Callable[[Path], None]:
    """`perc BEFORE PATH AFTER`."""

    def use(path: Path) -> None:
        main([*map(str, before), str(path), *map(str, after)])

    return use


def in_folder(folder: Callable[[], Path], name: str, then: Callable[[Path], object]):
    """The file in place of one of that name in a folder."""
    return lambda path: then(seeds.copied(folder(), name, path))


def packed(pack: Callable[[bytes], bytes]) -> Callable[[bytes, Random], bytes]:
    """Compressed; in half of the cases something then happens to the archive."""

    def around(data: bytes, draw: Random) -> bytes:
        whole = pack(data)
        return damage(whole, draw) if draw.random() < 0.5 else whole

    return around
