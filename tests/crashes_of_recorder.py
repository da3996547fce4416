"""`perc record` that is killed while an engine tells it of requests."""

import random
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import zmq

from perc.bridges.recording_join import join

ROWS = 10_000  # of a part, see perc.bridges.recording
BATCH = 500  # requests of a message
STEP_S = 0.05  # between messages, by their own clock


def play_recorder(perc: Path, kills: int, seed: int = 0) -> int:
    """Kills a recorder so often; each time what its folder has is whole and in order.

    Requests have one block each and come in order, so the requests of whole parts are
    the first ones that were sent.
    """
    rng, struck = random.Random(f"record {seed}"), 0
    for _ in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            sent = _killed(perc, Path(folder), rng.uniform(0.5, 3.0))
            parts = [pl.read_parquet(p) for p in Path(folder).glob("[!.]*.parquet")]
            assert all(len(part) == ROWS for part in parts)
            if not parts:
                continue
            struck += 1
            trace = join(folder).trace
            assert trace.n_requests == ROWS * len(parts) <= sent
            assert trace.n_blocks == trace.n_requests
            number = np.arange(trace.n_requests) // BATCH
            assert np.allclose(trace.arrival_s, number * STEP_S), "one is missing"
    return struck


def _killed(perc: Path, folder: Path, after_s: float) -> int:
    """Kills a recorder so long after it has subscribed; requests sent by then."""
    socket = zmq.Context.instance().socket(zmq.XPUB)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    words = ["record", "--from", f"tcp://127.0.0.1:{port}", "--out", str(folder)]
    recorder = subprocess.Popen(
        [perc, *words, "--gap-s", "0.01"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    socket.recv()  # it has subscribed
    end_s = time.monotonic() + after_s
    number = 0
    while time.monotonic() < end_s:
        socket.send_multipart([b"", number.to_bytes(8, "big"), _message(number)])
        time.sleep(0.002)
        number += 1
    recorder.kill()
    recorder.wait()
    socket.close(0)
    return number * BATCH


def _message(number: int) -> bytes:
    """Requests of one block."""
    events = [
        {
            "type": "BlockStored",
            "block_hashes": [number * BATCH + i],
            "parent_block_hash": None,
            "token_ids": [0],
            "block_size": 1,
        }
        for i in range(BATCH)
    ]
    return msgspec.msgpack.encode([number * STEP_S, events, 0])
