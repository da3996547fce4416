"""vLLM records its traffic: the hook that `PERC_RECORD` switches on.

    PERC_RECORD=folder vllm serve MODEL
    perc record --join folder --out mine.parquet

Each request that gives its blocks back, finished or preempted, becomes a row of
`perc.bridges.recording`. The engine only puts it into a queue; hashing and writing are
another thread's work, which never holds the engine up: what does not fit into the queue
is dropped and counted. Whatever fails ends the recording with one warning.

Blocks are those of the prompt. Of answers the recording holds the number of tokens.
"""

# pyright: reportMissingImports=false

import functools
import logging
import os
import queue
import threading
import time
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

from perc.bridges.recording import UNKNOWN, Key, Parts, Row
from perc.bridges.uses import Facts
from perc.bridges.vllm_release import heard
from perc.bridges.vllm_requests import Reader
from perc.errors import INT32_MAX
from perc.files import check_writable
from perc.traces.build import TURN_MAX

logger = logging.getLogger("vllm.perc")
QUEUE_REQUESTS = 4_096
QUEUE_BLOCKS = 4_000_000  # that wait to be written: pointers, 32 MB
PART_S = 60.0  # no request waits longer to be written
CLOSE_S = 5.0  # what an engine that ends waits for the last part
NAME_LENGTH = 40  # of a kind
_recorder: "Recorder | None" = None


class Seen(NamedTuple):
    """A request as the engine hands it over."""

    arrival_s: float
    started_s: float
    released_s: float
    hit_tokens: int
    facts: Facts
    kind: str
    hashes: list[bytes]


class Note:
    """What is known of a request until it gives its blocks back."""

    __slots__ = ("hit_tokens", "preempted", "started_s")

    def __init__(self, hit_tokens: int, started_s: float):
        self.hit_tokens = hit_tokens
        self.started_s = started_s
        self.preempted = False


class Recorder:
    """Hears of requests, and lets a thread write them.

    Nothing is started before the first request: vLLM loads plug-ins in every process.
    """

    def __init__(
        self,
        folder: str,
        *,
        queue_requests: int = QUEUE_REQUESTS,
        part_s: float = PART_S,
        **limits: int,
    ):
        check_writable(Path(folder))
        self.dropped = 0
        self.failed = False
        self._folder = folder
        self._part_s = part_s
        self._limits = limits  # of `Parts`
        self._reader = Reader()
        self._kinds = {0: "request"}
        self._waiting: queue.Queue[Seen | None] = queue.Queue(queue_requests)
        self._put = self._got = 0  # blocks into the queue and out of it
        self._thread: threading.Thread | None = None
        self._key = Key()

    # The engine's side: all of it is caught, none of it waits.

    def looked_up(self, request: Any, hit_tokens: int) -> None:
        """The engine has looked for a prompt in its cache; it may do so repeatedly."""
        try:
            note = getattr(request, "perc_note", None)
            if note is None or not note.preempted:
                request.perc_note = Note(hit_tokens, time.time())
        except Exception as error:
            self._fail(error)

    def released(self, manager: Any, request: Any) -> None:
        """`request` is about to give back all its blocks."""
        try:
            note = getattr(request, "perc_note", None)
            if note is None:  # it never ran
                return
            if self.failed:
                self.dropped += 1
                return
            self._hand_over(note, request, manager.block_pool.hash_block_size)
        except Exception as error:
            self._fail(error)

    def _hand_over(self, note: Note, request: Any, block_tokens: int) -> None:
        if self._thread is None:
            self._start(block_tokens)
        facts = self._reader.facts(request)
        note.preempted = facts.preempted
        full = request.num_prompt_tokens // block_tokens
        if self._put - self._got + full > QUEUE_BLOCKS:
            self.dropped += 1
            return
        seen = Seen(
            request.arrival_time,
            note.started_s,
            time.time(),
            note.hit_tokens,
            facts,
            self._kind(facts, request),
            request.block_hashes[:full],
        )
        try:
            self._waiting.put_nowait(seen)
            self._put += full
        except queue.Full:
            self.dropped += 1

    def _kind(self, facts: Facts, request: Any) -> str:
        """The client's word; `Reader` numbers no more than a few of them."""
        if facts.kind not in self._kinds:
            word = request.sampling_params.extra_args["perc_kind"]
            self._kinds[facts.kind] = str(word)[:NAME_LENGTH]
        return self._kinds[facts.kind]

    def _start(self, block_tokens: int) -> None:
        # polars would take every core for its own.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        parts = Parts(self._folder, block_tokens, "vLLM", **self._limits)
        self._thread = threading.Thread(
            target=self._write, args=(parts,), name="perc-recorder", daemon=True
        )
        self._thread.start()
        # Runs in forked and spawned processes too, where atexit may not.
        Finalize(None, self.close, exitpriority=100)
        logger.info(
            "perc: requests are recorded in %s as %s.", parts.folder, parts.name
        )

    # The thread's side.

    def _write(self, parts: Parts) -> None:
        try:
            due_s = time.monotonic() + self._part_s
            while True:
                try:
                    seen = self._waiting.get(timeout=max(due_s - time.monotonic(), 0))
                except queue.Empty:
                    pass
                else:
                    if seen is None:
                        break
                    self._take(seen, parts)
                if time.monotonic() >= due_s:
                    parts.flush()
                    due_s = time.monotonic() + self._part_s
            parts.dropped = self.dropped
            parts.flush()
        except Exception as error:
            self._fail(error)
        finally:
            self.failed = True  # nobody writes any more

    def _take(self, seen: Seen, parts: Parts) -> None:
        self._got += len(seen.hashes)
        parts.dropped = self.dropped
        parts.add(row_of(seen, self._key))

    def _fail(self, error: Exception) -> None:
        if not self.failed:
            self.failed = True
            logger.warning(
                "perc: the recording in %s has ended (%s: %s). Requests are not "
                "affected.",
                self._folder,
                type(error).__name__,
                error,
            )

    def close(self) -> None:
        """Writes what is waiting, as the process ends."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        try:
            self._waiting.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        thread.join(CLOSE_S)


def row_of(seen: Seen, key: Key) -> Row:
    """A request with its blocks renamed."""
    facts = seen.facts
    turn = facts.turn
    return Row(
        arrival_s=seen.arrival_s,
        started_s=seen.started_s,
        released_s=seen.released_s,
        input_tokens=facts.input_tokens,
        output_tokens=facts.output_tokens,
        hit_tokens=seen.hit_tokens,
        turn=turn if turn is not None and 1 <= turn <= TURN_MAX else UNKNOWN,
        priority=max(-INT32_MAX, min(facts.priority, INT32_MAX)),
        preempted=facts.preempted,
        session=key.session(facts.session),
        kind=seen.kind,
        blocks=key.blocks(seen.hashes),
    )


def register() -> None:
    """Starts what `PERC_RECORD` asks for; does nothing without it, or a second time."""
    global _recorder
    folder = os.environ.get("PERC_RECORD", "").strip()
    if _recorder is not None or not folder:
        return
    try:
        from perc.bridges import vllm_versions

        reason = vllm_versions.unfit()
        if reason is None:
            recorder = Recorder(folder)
            _install(recorder)
            _recorder = recorder
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is not None:
        logger.warning("perc: PERC_RECORD=%s: %s. Nothing is recorded.", folder, reason)


def _install(recorder: Recorder) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    for name, wrap in (
        ("get_computed_blocks", _looked),
        ("free", heard),
        ("pop_blocks_for_free", heard),
    ):
        setattr(KVCacheManager, name, wrap(getattr(KVCacheManager, name), recorder))


def _looked(method: Any, recorder: Recorder) -> Any:
    """The look-up, whose answer is told to the recorder."""

    @functools.wraps(method)
    def wrapper(manager: Any, request: Any) -> Any:
        found = method(manager, request)
        recorder.looked_up(request, found[1])
        return found

    return wrapper
