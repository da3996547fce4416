"""Does `perc record` keep up with the KV-cache events of a busy server?

A publisher sends what vLLM publishes of requests of 1,024 tokens with answers of 320: a
prompt's 64 blocks in one event, each block of the answer in one, and one for each block
that leaves for them, 64 events a message. `perc record --from` listens to it in a
process of its own. For each rate: events sent in a second, messages that were lost,
requests that came out whole, and the CPU time of the recorder for an event.

    python benchmarks/recorder.py --rates 10000 50000 100000 --seconds 10
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import common
import msgspec
import zmq

TOKENS, PROMPT, ANSWER = 16, 64, 20  # tokens of a block; blocks
EVENTS = PROMPT + 2 * ANSWER + 1  # of a request
BATCH = 64  # events of a message
HIGH_WATER = 100_000  # messages that vLLM's publisher lets wait
PERC = Path(sys.executable).with_name("perc")


def main() -> None:
    """Measures each rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each rate")
    given = parser.parse_args()
    common.print_conditions(seed=0, peers=("pyzmq", "msgspec"))
    table = common.table(
        f"perc record, {given.seconds:g} s at each rate",
        *("asked for, events/s", "sent", "messages lost", "requests sent", "recorded"),
        "CPU us/event",
    )
    for rate in given.rates:
        table.add_row(f"{rate:,}", *measure(rate, given.seconds))
    common.console.print(table)


def measure(rate: int, seconds: float) -> list[str]:
    """The cells of one rate."""
    requests = int(rate * seconds / EVENTS)
    payloads = list(messages(requests))
    socket = zmq.Context.instance().socket(zmq.XPUB)
    socket.set_hwm(HIGH_WATER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        idle_s, _, _ = serve(socket, port, folder, [], rate)  # what starting takes
        cpu_s, took_s, said = serve(socket, port, folder, payloads, rate)
    socket.close(0)
    sent = len(payloads) * BATCH
    return [
        f"{sent / took_s:,.0f}",
        f"{said['messages_lost']:,}",
        f"{requests:,}",
        f"{said['requests']:,}",
        f"{(cpu_s - idle_s) / sent * 1e6:.1f}",
    ]


def serve(
    socket: zmq.Socket, port: int, folder: str, payloads: list[bytes], rate: int
) -> tuple[float, float, dict]:
    """CPU seconds of a recorder, seconds of sending, and what it said at its end."""
    before_s = common.cpu_seconds() - time.process_time()  # of finished children
    words = ["record", "--from", f"tcp://127.0.0.1:{port}", "--out", folder, "--json"]
    recorder = subprocess.Popen(
        [PERC, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    socket.recv()  # it has subscribed
    began_s = time.monotonic()
    for number, payload in enumerate(payloads):
        due_s = began_s + number * BATCH / rate
        time.sleep(max(0.0, due_s - time.monotonic()))
        socket.send_multipart([b"", number.to_bytes(8, "big"), payload])
    took_s = time.monotonic() - began_s
    time.sleep(2.0)  # what is still on its way
    recorder.send_signal(2)
    out, _ = recorder.communicate(timeout=120)
    socket.recv()  # it has gone
    cpu_s = common.cpu_seconds() - time.process_time() - before_s
    return cpu_s, took_s, json.loads(out)


def messages(requests: int) -> Iterator[bytes]:
    """Payloads of the events of requests, sixteen requests side by side."""
    waiting: list[dict] = []
    encode = msgspec.msgpack.Encoder().encode
    for at, event in enumerate(events(requests)):
        waiting.append(event)
        if len(waiting) == BATCH:
            yield encode([at / EVENTS / 100, waiting, 0])
            waiting = []


def events(requests: int, at_once: int = 16) -> Iterator[dict]:
    """What is stored for each request, and what leaves for it."""
    for first in range(0, requests, at_once):
        some = range(first, min(first + at_once, requests))
        for request in some:
            yield stored(request, 0, PROMPT)
            yield from (removed(request, block) for block in range(PROMPT))
        for block in range(PROMPT, PROMPT + ANSWER):
            for request in some:
                yield stored(request, block, block + 1)
                yield removed(request, block)


def name(request: int, block: int) -> bytes:
    """A hash of 32 bytes, as vLLM's."""
    return request.to_bytes(16, "big") + block.to_bytes(16, "big")


def stored(request: int, start: int, stop: int) -> dict:
    """Blocks of a request have been cached."""
    return {
        "type": "BlockStored",
        "block_hashes": [name(request, block) for block in range(start, stop)],
        "parent_block_hash": name(request, start - 1) if start else None,
        "token_ids": list(range(TOKENS * (stop - start))),
        "block_size": TOKENS,
        "lora_id": None,
        "medium": "GPU",
    }


def removed(request: int, block: int) -> dict:
    """A block of an older request has left."""
    gone = name(max(request - 10_000, 0), block)
    return {"type": "BlockRemoved", "block_hashes": [gone], "medium": "GPU"}


if __name__ == "__main__":
    main()
