"""KV-cache events of a running engine become requests: the way that needs no plug-in.

vLLM, and engines that speak its protocol, publish over ZeroMQ which blocks they store
(`--kv-events-config`). An event names a run of blocks and the block before it, so whole
chains can be told; but nothing is said of hits, answers or ends. What follows:

* a prompt that is cached as a whole leaves no event, unless it was sent with
  `kv_cache_report_mode: "full"`, and then it does;
* full blocks of an answer look like blocks of the prompt, and lengths are whole blocks;
* stored runs that follow each other within `gap_s` seconds are taken for one request.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from perc.bridges.recording import UNKNOWN, Key, Row
from perc.errors import INT32_MAX, InputError

BLOCKS_REMEMBERED = 1 << 20  # whose parents are known, the latest
GPU = (None, "GPU")  # the medium of the cache itself, not of a tier below
INSTALL = 'Install them: pip install "pyzmq" "msgspec"'
WAIT_MS = 200
# What reading a message can raise that is none.
NO_EVENTS = (AttributeError, KeyError, OverflowError, RecursionError, TypeError)
NO_EVENTS += (ValueError,)


class Stored(NamedTuple):
    """A run of blocks that the engine has cached."""

    hashes: list[Any]
    parent: Any  # the block before it, None = it starts the prompt
    block_tokens: int
    session: Any


class Chain:
    """A request that may go on."""

    __slots__ = ("began_s", "hashes", "last_s", "session")

    def __init__(self, began_s: float, hashes: list[Any], session: Any):
        self.began_s = self.last_s = began_s
        self.hashes = hashes
        self.session = session


class Assembler:
    """Makes requests of events, in the time that the events tell.

    Args:
        gap_s: a run that follows another one later than that is a new request.
    """

    def __init__(self, gap_s: float):
        self.block_tokens = 0  # until the first event tells
        self.orphans = 0  # runs whose beginning was never seen
        self._gap_s = gap_s
        self._due_s = float("-inf")
        self._parent: dict[Any, Any] = {}  # of a block, the longest unused first
        self._open: dict[Any, deque[Chain]] = {}  # by the last block

    def stored(self, now_s: float, event: Stored) -> None:
        """The engine has cached blocks.

        Raises:
            InputError: if the size of a block has changed.
        """
        if event.block_tokens != (self.block_tokens or event.block_tokens):
            raise InputError(
                f"blocks of {self.block_tokens} and of {event.block_tokens} tokens "
                "come from one address; record one engine at a time."
            )
        self.block_tokens = event.block_tokens
        chain = self._continued(event.parent, now_s)
        if chain is None:
            above = self._ancestors(event.parent)
            chain = Chain(now_s, [*above, *event.hashes], event.session)
        else:
            chain.hashes += event.hashes
            chain.last_s = now_s
        self._learn(event)
        self._open.setdefault(event.hashes[-1], deque()).append(chain)

    def ended(self, now_s: float) -> Iterator[Chain]:
        """Takes out requests that cannot go on, by beginning; looks now and then."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._gap_s / 4
        over: list[Chain] = []
        for tail, chains in list(self._open.items()):
            while chains and now_s - chains[0].last_s > self._gap_s:
                over.append(chains.popleft())
            if not chains:
                del self._open[tail]
        yield from sorted(over, key=lambda chain: chain.began_s)

    def _continued(self, parent: Any, now_s: float) -> Chain | None:
        chains = self._open.get(parent) if parent is not None else None
        if not chains or now_s - chains[0].last_s > self._gap_s:
            return None
        chain = chains.popleft()
        if not chains:
            del self._open[parent]
        return chain

    def _ancestors(self, block: Any) -> list[Any]:
        """A block and those before it, root first, as far as known."""
        found = []
        while block is not None:
            found.append(block)
            if block not in self._parent:
                self.orphans += 1
                break
            above = self._parent.pop(block)
            self._parent[block] = above  # it is in use
            block = above
        return found[::-1]

    def _learn(self, event: Stored) -> None:
        above = event.parent
        for block in event.hashes:
            self._parent.pop(block, None)
            self._parent[block] = above
            above = block
        while len(self._parent) > BLOCKS_REMEMBERED:
            del self._parent[next(iter(self._parent))]


def row_of(chain: Chain, block_tokens: int, key: Key) -> Row:
    """A request of which only the blocks are known."""
    return Row(
        arrival_s=chain.began_s,
        started_s=chain.began_s,
        released_s=chain.last_s,
        input_tokens=len(chain.hashes) * block_tokens,
        output_tokens=0,
        hit_tokens=UNKNOWN,
        turn=UNKNOWN,
        priority=0,
        preempted=False,
        session=key.session(chain.session),
        kind="request",
        blocks=key.blocks(repr(block).encode() for block in chain.hashes),
    )


def parse(payload: bytes) -> tuple[float, list[Stored]]:
    """The time of a message, and the runs of blocks that it says were cached.

    Blocks of other tiers than the accelerator's, or of other groups of layers than the
    first, are left out.

    Raises:
        ValueError: if it is no batch of KV-cache events.
    """
    import msgspec

    try:
        time_s, events, *_ = msgspec.msgpack.decode(payload)
        found = [_stored(event) for event in events]
        if not math.isfinite(time_s):
            raise ValueError(f"its time is {time_s}")
        return float(time_s), [event for event in found if event is not None]
    except (*NO_EVENTS, msgspec.MsgspecError) as error:
        raise ValueError(f"no batch of KV-cache events ({error})") from error


def _stored(event: Any) -> Stored | None:
    if isinstance(event, list):  # as engines sent it before fields had names
        names = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size")
        names += ("lora_id", "medium")
        event = dict(zip(names, event, strict=False))
    if event["type"] != "BlockStored":
        return None
    if event.get("medium") not in GPU or event.get("group_idx"):
        return None
    if not event["block_hashes"]:
        return None
    hashes, parent = event["block_hashes"], event.get("parent_block_hash")
    if not all(isinstance(name, int | bytes | str) for name in hashes):
        raise ValueError("the hash of a block is no number and no text")
    if not isinstance(parent, int | bytes | str | None):
        raise ValueError("the hash of a parent is no number and no text")
    size = event["block_size"]
    if type(size) is not int or not 0 < size <= INT32_MAX:
        raise ValueError(f"blocks of {size!r} tokens")
    return Stored(list(hashes), parent, size, event.get("session_id"))


class Messages:
    """Listens to one publisher.

    Raises:
        InputError: if a package is missing or the address is none.
    """

    def __init__(self, endpoint: str, topic: str = ""):
        try:
            import msgspec  # noqa: F401
            import zmq
        except ImportError as error:
            raise InputError(
                f"KV-cache events need pyzmq and msgspec ({error}). {INSTALL}"
            ) from None
        self.lost = 0  # messages between those that came
        self._next: int | None = None
        self._nothing = zmq.Again
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self._socket.close(0)
            raise InputError(
                f"--from {endpoint}: {error}; give an address such as "
                "tcp://localhost:5557."
            ) from None
        self._socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._socket.setsockopt(zmq.RCVTIMEO, WAIT_MS)

    def get(self) -> bytes | None:
        """The next message, None if none comes for a moment."""
        try:
            frames = self._socket.recv_multipart()
        except self._nothing:
            return None
        number = int.from_bytes(frames[1], "big") if len(frames) > 2 else None
        if number is not None:
            if self._next is not None and number > self._next:
                self.lost += number - self._next
            self._next = number + 1
        return frames[-1]

    def close(self) -> None:
        """Stops listening."""
        self._socket.close(0)
