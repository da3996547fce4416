"""`perc record`: from a running engine to a trace, in two steps."""

import json as json_module
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, arg

from perc.cli.loading import save_trace
from perc.errors import InputError, check_number

if TYPE_CHECKING:
    from perc.bridges.kv_events import Chain, Messages
    from perc.bridges.recording import Parts
    from perc.bridges.recording_join import Joined

FLUSH_S = 60.0


def record(
    *,
    out: Annotated[Path, arg(metavar="PATH")],
    join: Annotated[str | None, arg(metavar="FOLDER")] = None,
    recording: Annotated[str | None, arg(metavar="NAME")] = None,
    source: Annotated[str | None, arg(name="from", metavar="ADDRESS")] = None,
    topic: str = "",
    seconds: Annotated[float | None, arg(metavar="S")] = None,
    requests: Annotated[int | None, arg(metavar="N")] = None,
    gap_s: float = 2.0,
    redact: FlagCreatePairsOff[bool] = False,
    json: FlagCreatePairsOff[bool] = False,
) -> None:
    """Record a running engine, and make one trace of the parts.

    vLLM with perc installed records itself: start it with PERC_RECORD=FOLDER, then
    `perc record --join FOLDER --out trace.parquet`. Other engines that publish KV-cache
    events (vLLM: --kv-events-config) are listened to with --from, until Ctrl-C. Events
    tell less: nothing of hits, of answers, or of prompts that are cached as a whole,
    unless requests say kv_cache_report_mode=full; lengths are whole blocks, and blocks
    of an answer count as its prompt's. docs/bridges/record.md has the whole walk.

    Args:
        out: with --join the trace to write, a name that ends in .parquet; with --from
            the folder for the parts.
        join: folder of recorded parts.
        recording: which of several recordings in it; by default all, one after the
            other.
        source: where KV-cache events are published, such as tcp://localhost:5557.
        topic: of the events; by default all.
        seconds: stop listening after so long.
        requests: stop listening after so many.
        gap_s: blocks that are stored later than that after the ones before them belong
            to a new request.
        redact: with --join: leave out clients' words for kinds of requests and the
            recording's name, before the trace is given to others. Prompts and names of
            sessions are never in it.
        json: print one JSON object instead of sentences.

    Raises:
        InputError: if a flag, a part or the address is not as it must be.
    """
    if (join is None) == (source is None):
        raise InputError(
            "Say --join FOLDER to make a trace of recorded parts, or --from ADDRESS to "
            "listen to an engine."
        )
    if join is not None:
        _join(join, out, recording, redact, json)
        return
    if redact:
        raise InputError("--redact changes nothing here; say it to --join.")
    assert source is not None
    check_number("--gap-s", "seconds", gap_s, above=True)
    if seconds is not None:
        check_number("--seconds", "seconds", seconds, above=True)
    if requests is not None and requests < 1:
        raise InputError(f"--requests is {requests}, must be 1 or more.")
    _listen(source, topic, out, seconds, requests, gap_s, json)


def _join(
    folder: str, out: Path, recording: str | None, redact: bool, json: bool
) -> None:
    from perc.bridges.recording_join import join

    if out.suffix != ".parquet":
        raise InputError(f"--out {out}: must end in .parquet.")
    joined = join(folder, recording)
    save_trace(joined.trace, out, redact=redact)
    facts = _facts(joined)
    if json:
        print(json_module.dumps({"out": os.fspath(out), **facts}, allow_nan=False))
        return
    print(
        f"{out}: {facts['requests']:,} requests, {facts['accesses']:,} accesses of "
        f"{facts['blocks']:,} distinct blocks of {facts['block_tokens']:,} tokens"
    )
    if facts["token_hit_ratio"] is not None:
        print(
            f"the engine served {facts['token_hit_ratio']:.2%} of prompt tokens from "
            f"its cache; {facts['preemptions']:,} preemptions"
        )
    print(f"next: perc compare {out}, then perc train {out} --out policy.npz")


def _facts(joined: "Joined") -> dict[str, Any]:
    trace, known = joined.trace, joined.hit_tokens >= 0
    asked = int(trace.input_tokens[known].sum())
    return {
        "requests": trace.n_requests,
        "accesses": trace.n_accesses,
        "blocks": trace.n_blocks,
        "block_tokens": trace.block_tokens,
        "token_hit_ratio": (
            int(joined.hit_tokens[known].sum()) / asked if asked else None
        ),
        "preemptions": joined.preemptions,
        "dropped": joined.dropped,
    }


class _Listening:
    """What has come so far, and where it goes."""

    def __init__(self, out: Path, source: str, gap_s: float):
        from perc.bridges.kv_events import Assembler
        from perc.bridges.recording import Key
        from perc.files import check_writable

        check_writable(out)
        self.damaged = 0
        self.assembler: Assembler = Assembler(gap_s)
        self.parts: Parts | None = None
        self._key: Key = Key()
        self._out, self._source = out, source

    def take(self, payload: bytes) -> None:
        from perc.bridges.kv_events import parse

        try:
            now_s, events = parse(payload)
        except ValueError:
            self.damaged += 1
            return
        for event in events:
            self.assembler.stored(now_s, event)
        self._write(list(self.assembler.ended(now_s)))

    def close(self) -> None:
        self._write(list(self.assembler.ended(float("inf"))))
        if self.parts is not None:
            self.parts.flush()

    @property
    def requests(self) -> int:
        return self.parts.requests if self.parts else 0

    def _write(self, chains: "list[Chain]") -> None:
        from perc.bridges.kv_events import row_of
        from perc.bridges.recording import Parts

        if chains and self.parts is None:
            size = self.assembler.block_tokens
            self.parts = Parts(self._out, size, f"KV events of {self._source}")
        for chain in chains:
            assert self.parts is not None
            self.parts.add(row_of(chain, self.assembler.block_tokens, self._key))


def _listen(
    source: str,
    topic: str,
    out: Path,
    seconds: float | None,
    requests: int | None,
    gap_s: float,
    json: bool,
) -> None:
    from perc.bridges.kv_events import Messages

    messages = Messages(source, topic)
    heard = _Listening(out, source, gap_s)
    print(f"listening to {source}; Ctrl-C ends it", file=sys.stderr)
    try:
        _run(messages, heard, seconds, requests)
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        heard.close()
        messages.close()
    _say(heard, messages, out, json)


def _run(
    messages: "Messages",
    heard: _Listening,
    seconds: float | None,
    requests: int | None,
) -> None:
    from perc.cli.progress import progress_bar

    start_s = flushed_s = time.monotonic()
    with progress_bar("recording") as progress:
        while requests is None or heard.requests < requests:
            now_s = time.monotonic()
            if seconds is not None and now_s - start_s >= seconds:
                return
            payload = messages.get()
            if payload is not None:
                heard.take(payload)
            if heard.parts and now_s - flushed_s >= FLUSH_S:
                heard.parts.flush()
                flushed_s = now_s
            if progress:
                progress(heard.requests, requests or 0, "requests")


def _say(heard: _Listening, messages: "Messages", out: Path, json: bool) -> None:
    facts = {
        "out": os.fspath(out),
        "recording": heard.parts.name if heard.parts else None,
        "requests": heard.requests,
        "messages_lost": messages.lost,
        "messages_damaged": heard.damaged,
        "beginnings_unknown": heard.assembler.orphans,
    }
    if json:
        print(json_module.dumps(facts))
        return
    print(f"{out}: {heard.requests:,} requests")
    for name in ("messages_lost", "messages_damaged", "beginnings_unknown"):
        if facts[name]:
            print(f"{name.replace('_', ' ')}: {facts[name]:,}")
    if heard.requests:
        print(f"next: perc record --join {out} --out trace.parquet")
