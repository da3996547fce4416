"""What is recorded is what was sent, and nothing else; the engine never notices."""

import json
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("vllm")

import msgspec  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import perc  # noqa: E402
from perc.bridges import kv_events, vllm_events  # noqa: E402
from perc.bridges.recording import Key, Parts  # noqa: E402
from perc.bridges.recording_join import join  # noqa: E402
from perc.errors import InputError, TraceWarning  # noqa: E402
from perc.policies.store import load, save_named  # noqa: E402
from perc.ranks import lru_ranks  # noqa: E402
from perc.replay import replay  # noqa: E402
from tests.bridges.traffic import differs_from_aged  # noqa: E402
from tests.vllm.manager import BLOCK, Manager  # noqa: E402
from tests.vllm.tiny import BLOCK as TOKENS  # noqa: E402
from tests.vllm.tiny import run  # noqa: E402


class Recorded(Manager):
    """A cache manager whose requests are told to a recorder."""

    def __init__(self, usable, recorder, policy=None):
        super().__init__(usable, policy)
        self.recorder = recorder
        self.sent = []  # prompt, hints, priority, hit tokens, of each finished request

    def start(self, request):
        found = self.kv.get_computed_blocks(request)
        self.recorder.looked_up(request, found[1])
        return super().start(request)

    def stop(self, request, *, preempted=False):
        if preempted:
            self.recorder.released(self.kv, request)
            self.kv.free(request)
            request.num_computed_tokens = 0
            return
        hits = request.perc_note.hit_tokens
        request.status = type(request.status).FINISHED_STOPPED
        self.recorder.released(self.kv, request)
        super().stop(request)
        self.sent.append((request, hits))

    def serve(self, number, tokens, hints=None, priority=0):
        request = self.request(number, tokens, hints, priority)
        request.arrival_time = 1000.0 + number
        assert self.start(request)
        request.append_output_token_ids([7])
        self.stop(request)


@contextmanager
def recording(folder, usable=40, policy=None, **options):
    """A manager that is recorded into a folder; all is written at the end."""
    recorder = vllm_events.Recorder(str(folder), **options)
    try:
        yield Recorded(usable, recorder, policy)
    finally:
        recorder.close()


def prompts_of(seed, n=60):
    """Prompts of sessions that grow; none fills its last block."""
    rng = np.random.default_rng(seed)
    sessions = [list(rng.integers(0, 50, BLOCK)) for _ in range(4)]
    found = []
    for _ in range(n):
        session = sessions[rng.integers(4)]
        if len(session) > 8 * BLOCK:
            del session[2 * BLOCK :]
        session.extend(rng.integers(0, 50, BLOCK))
        found.append([*session, 1])
    return found


def chains(prompts):
    """Blocks of each prompt, numbered by first appearance: what a trace holds."""
    numbers = {}
    return [
        [
            numbers.setdefault(tuple(prompt[: end * BLOCK]), len(numbers))
            for end in range(1, len(prompt) // BLOCK + 1)
        ]
        for prompt in prompts
    ]


def blocks_of(trace):
    return [
        trace.block[a:b].tolist() for a, b in zip(trace.start, trace.stop, strict=True)
    ]


@settings(deadline=None, max_examples=20)
@given(
    prompts=st.lists(
        st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=12
    ),
    data=st.data(),
)
def test_what_is_loaded_is_what_was_sent(tmp_path_factory, prompts, data):
    folder = tmp_path_factory.mktemp("parts")
    n = len(prompts)
    said = [
        {"perc_session": s, "perc_turn": t, "perc_kind": k, "perc_priority": p}
        for s, t, k, p in data.draw(
            st.lists(
                st.tuples(
                    st.sampled_from(["a", "b", 3]),
                    st.integers(1, 9),
                    st.sampled_from(["tool", "chat"]),
                    st.integers(-5, 5),
                ),
                min_size=n,
                max_size=n,
            )
        )
    ]
    with recording(folder, rows=5) as manager:
        for number, (prompt, hints) in enumerate(zip(prompts, said, strict=True)):
            manager.serve(number, prompt, hints)
    trace, hits, preemptions, dropped = join(str(folder))
    assert blocks_of(trace) == chains(prompts)
    assert trace.input_tokens.tolist() == [len(p) for p in prompts]
    assert set(trace.output_tokens) == {1} and trace.block_tokens == BLOCK
    assert trace.arrival_s.tolist() == list(range(n))
    assert trace.turn.tolist() == [hint["perc_turn"] for hint in said]
    assert trace.priority.tolist() == [hint["perc_priority"] for hint in said]
    assert [trace.kinds[k] for k in trace.kind] == [h["perc_kind"] for h in said]
    names = [hint["perc_session"] for hint in said]
    assert trace.session.tolist() == [
        list(dict.fromkeys(names)).index(s) for s in names
    ]
    assert hits.tolist() == manager.hits
    assert (preemptions, dropped) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_of_the_recording_hits_what_the_engine_hit(tmp_path, seed):
    """One usable block less: the last, partial one of a prompt is never cached."""
    usable = 14
    with recording(tmp_path, usable) as manager:
        for number, prompt in enumerate(prompts_of(seed)):
            manager.serve(number, prompt)
    trace, hits, *_ = join(str(tmp_path))
    found = replay(trace, lru_ranks(trace), [usable - 1])
    assert (hits // BLOCK).tolist() == np.asarray(found.blocks)[0].tolist()
    assert hits.sum() > 0 and manager.victims


def test_a_request_that_was_preempted_counts_once_with_its_first_hits(tmp_path):
    with recording(tmp_path) as manager:
        manager.serve(0, range(9))
        request = manager.request(1, [*range(9), 5, 5, 5, 5])
        request.arrival_time = 1001.0
        manager.start(request)
        manager.stop(request, preempted=True)
        manager.start(request)
        manager.stop(request)
        waiting = manager.request(2, range(30))  # aborted before it ran
        manager.recorder.released(manager.kv, waiting)
    joined = join(str(tmp_path))
    assert joined.trace.n_requests == 2 and joined.preemptions == 1
    assert joined.hit_tokens.tolist() == [0, 8]


def test_no_name_of_a_block_or_session_can_be_made_again(tmp_path):
    sent = []
    for folder in ("a", "b"):
        with recording(tmp_path / folder) as manager:
            manager.serve(0, range(20), {"perc_session": "alice@example.org"})
            sent = manager.sent[0][0].block_hashes
    files = [next((tmp_path / f).glob("*.parquet")) for f in ("a", "b")]
    import polars as pl

    names = [pl.read_parquet(f)["blocks"][0].to_list() for f in files]
    assert len(names[0]) == 5 and not set(names[0]) & set(names[1])
    sessions = [pl.read_parquet(f)["session"][0] for f in files]
    assert sessions[0] != sessions[1]
    for file in files:
        data = file.read_bytes()
        assert b"alice" not in data
        assert not any(part in data for block in sent for part in (block, block[:8]))


def test_parts_rotate_and_the_oldest_make_room(tmp_path):
    with recording(tmp_path, rows=10, limit_bytes=1) as manager:
        for number, prompt in enumerate(prompts_of(0, 35)):
            manager.serve(number, prompt)
    (last,) = tmp_path.glob("*.parquet")
    assert last.name.endswith("-000003.parquet")
    with pytest.warns(TraceWarning, match="3 of 4 parts"):
        assert join(str(tmp_path)).trace.n_requests == 5


def test_a_part_appears_when_its_time_has_come(tmp_path):
    with recording(tmp_path, part_s=0.05) as manager:
        manager.serve(0, range(9))
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("[!.]*.parquet")) and time.monotonic() < deadline:
            time.sleep(0.01)  # until it has its name: hidden ones are being written
        assert join(str(tmp_path)).trace.n_requests == 1


def test_what_does_not_fit_is_dropped_and_counted(tmp_path, monkeypatch):
    gate = threading.Event()
    take = vllm_events.Recorder._take

    def slow(self, seen, parts):
        gate.wait(30)
        take(self, seen, parts)

    monkeypatch.setattr(vllm_events.Recorder, "_take", slow)
    with recording(tmp_path, queue_requests=4) as manager:
        for number in range(20):
            manager.serve(number, range(9))
        assert manager.recorder._waiting.qsize() <= 4
        gate.set()
    with pytest.warns(TraceWarning, match="no time"):
        joined = join(str(tmp_path))
    assert joined.trace.n_requests + joined.dropped == 20
    assert 4 <= joined.trace.n_requests <= 5


def test_blocks_that_wait_are_bounded_too(tmp_path, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(vllm_events, "QUEUE_BLOCKS", 6)
    monkeypatch.setattr(
        vllm_events.Recorder, "_take", lambda self, seen, parts: gate.wait(30)
    )
    with recording(tmp_path) as manager:
        for number in range(10):
            manager.serve(number, range(9))  # two full blocks
        assert manager.recorder.dropped == 7
        gate.set()


def test_a_writer_that_crashes_never_reaches_the_engine(tmp_path, monkeypatch, caplog):
    def broken(self):
        raise OSError("disk full")

    monkeypatch.setattr(Parts, "flush", broken)
    with recording(tmp_path, rows=1) as manager:
        manager.serve(0, range(9))
        assert manager.recorder._thread is not None
        manager.recorder._thread.join(30)
        for number in range(1, 9):
            manager.serve(number, range(9))
        assert manager.recorder.failed and manager.recorder.dropped == 8
    assert caplog.text.count("disk full") == 1
    assert not list(tmp_path.glob("*.parquet"))


def test_a_hook_that_fails_never_reaches_the_engine(tmp_path, monkeypatch, caplog):
    def broken(self, request):
        raise RuntimeError("broken on purpose")

    with recording(tmp_path) as manager:
        monkeypatch.setattr(type(manager.recorder._reader), "facts", broken)
        for number in range(3):
            manager.serve(number, range(9))
    assert caplog.text.count("has ended") == 1


def test_an_interrupted_part_is_not_read_as_whole(tmp_path):
    with recording(tmp_path, rows=10) as manager:
        for number, prompt in enumerate(prompts_of(0, 25)):
            manager.serve(number, prompt)
    first, *_, last = sorted(tmp_path.glob("*.parquet"))
    data = last.read_bytes()
    (tmp_path / f".{last.name}-half").write_bytes(data[:50])
    assert join(str(tmp_path)).trace.n_requests == 25
    last.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=last.name):
        join(str(tmp_path))
    flipped = bytearray(data)
    flipped[len(data) // 3] ^= 1
    last.write_bytes(flipped)
    with pytest.raises(InputError, match=last.name):
        join(str(tmp_path))
    last.unlink()
    first.unlink()
    with pytest.warns(TraceWarning, match="1 of 2 parts"):
        assert join(str(tmp_path)).trace.n_requests == 10


def test_two_engines_at_once_are_two_traces(tmp_path):
    for _ in range(2):
        with recording(tmp_path) as manager:
            manager.serve(0, range(9))
    with pytest.raises(InputError, match="--recording"):
        join(str(tmp_path))
    name = next(tmp_path.glob("*.parquet")).name.split("-")[0]
    assert join(str(tmp_path), name).trace.n_requests == 1


# KV-cache events.


def messages(events):
    """What vLLM would publish: one message an event, as its own structs encode it."""
    from vllm.distributed.kv_events import BlockStored, KVEventBatch

    for now_s, hashes, parent, more in events:
        stored = BlockStored(
            block_hashes=hashes,
            parent_block_hash=parent,
            token_ids=[0] * (4 * len(hashes)),
            block_size=4,
            lora_id=None,
            medium=more.get("medium", "GPU"),
            lora_name=None,
            group_idx=more.get("group_idx", 0),
            session_id=more.get("session_id"),
        )
        yield msgspec.msgpack.encode(KVEventBatch(ts=now_s, events=[stored]))


def assembled(payloads, gap_s=2.0):
    """Begin and blocks of every request."""
    assembler, found = kv_events.Assembler(gap_s), []
    for payload in payloads:
        now_s, events = kv_events.parse(payload)
        for event in events:
            assembler.stored(now_s, event)
        found += assembler.ended(now_s)
    found += assembler.ended(float("inf"))
    return [(chain.began_s, chain.hashes) for chain in found], assembler


def test_runs_that_follow_each_other_are_one_request():
    events = [
        (0.0, [1, 2], None, {}),
        (0.5, [3], 2, {}),  # the next chunk of the prompt
        (10.0, [4], 3, {}),  # a later request that finds 1, 2 and 3
        (10.1, [9], 1, {}),  # another one that finds 1
        (10.2, [5], 4, {}),
        (10.3, [7], None, {"medium": "CPU"}),
        (10.4, [8], None, {"group_idx": 1}),
    ]
    found, assembler = assembled(messages(events))
    assert found == [
        (0.0, [1, 2, 3]),
        (10.0, [1, 2, 3, 4, 5]),
        (10.1, [1, 9]),
    ]
    assert assembler.orphans == 0 and assembler.block_tokens == 4


def test_a_run_after_an_unknown_block_is_counted():
    found, assembler = assembled(messages([(0.0, [5], 4, {}), (9.0, [6], 5, {})]))
    assert [blocks for _, blocks in found] == [[4, 5], [4, 5, 6]]
    assert assembler.orphans == 2


def test_events_without_names_of_fields_are_understood():
    payload = msgspec.msgpack.encode(
        [1.5, [["BlockStored", [b"x", b"y"], None, [1] * 8, 4, None, "GPU"]], 0]
    )
    assert kv_events.parse(payload) == (
        1.5,
        [kv_events.Stored([b"x", b"y"], None, 4, None)],
    )


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode({"a": 1})])
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(ValueError, match="no batch"):
        kv_events.parse(payload)


def test_the_memory_of_parents_is_bounded(monkeypatch):
    monkeypatch.setattr(kv_events, "BLOCKS_REMEMBERED", 10)
    events = [(float(10 * i), [i], None, {}) for i in range(50)]
    _, assembler = assembled(messages(events))
    assert len(assembler._parent) == 10 and not assembler._open


def test_listening_to_an_address(tmp_path):
    """vLLM's own publisher, `perc record`, and the trace."""
    from vllm.config.kv_events import KVEventsConfig
    from vllm.distributed.kv_events import EventPublisherFactory, KVEventBatch

    from perc.cli import main

    endpoint = f"ipc://{tmp_path}/events"
    publisher = EventPublisherFactory.create(
        KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=endpoint, topic="kv"
        )
    )
    decode = msgspec.msgpack.Decoder(KVEventBatch).decode
    stop = threading.Event()

    def publish():
        """The same requests over and over, until somebody has heard them."""
        start = 0.0
        while not stop.is_set():
            for payload in messages(
                [(start, [1, 2], None, {}), (start + 5, [3], 2, {})]
            ):
                publisher.publish(decode(payload))
            start += 10
            time.sleep(0.01)

    thread = threading.Thread(target=publish)
    thread.start()
    words = ["record", "--from", endpoint, "--out", str(tmp_path / "parts")]
    try:
        main([*words, "--requests", "40", "--seconds", "60"])
    finally:
        stop.set()
        thread.join()
        publisher.shutdown()
    trace = join(str(tmp_path / "parts")).trace
    assert trace.n_requests >= 40 and trace.n_blocks == 3
    assert {tuple(b) for b in blocks_of(trace)} <= {(0, 1), (0, 1, 2)}
    assert trace.input_tokens.max() == 12


# A real engine, and the whole way round.

LOOP = """
import json
from tests.vllm.tiny import *
from perc.bridges import vllm_events
from perc.bridges.vllm_plugin import register

vllm_events.register()
register()
prompts, hints = traffic(n=60)
prompts = [p[: len(p) // BLOCK * BLOCK + 1] for p in prompts]
llm = engine(blocks=20)
found = serve(llm, prompts, hints, tokens=1)
queue = scheduler_of(llm).kv_cache_manager.block_pool.free_block_queue
found["queue"], found["failures"] = type(queue).__name__, getattr(queue, "failures", 0)
print(json.dumps(found))
"""


def loop(folder, policy=None):
    """A recorded engine serves the traffic, with a policy or without; and its log."""
    given = {"PERC_RECORD": str(folder), "PERC_CLOCK": "requests"}
    if policy is not None:
        given["PERC_POLICY"] = str(policy)
    return run(LOOP, **given)


FEW = ("--space", "tau_s=60:600:log", "--samples", 8, "--bootstrap", 0)


def test_record_sweep_train_deploy_verify(tmp_path, capsys):
    """docs/bridges/record.md, with a tiny model."""
    from perc.cli import main

    def said(*words):
        main([str(word) for word in words])
        return json.loads(capsys.readouterr().out)

    trace, policy = tmp_path / "mine.parquet", tmp_path / "policy.npz"
    stock, _ = loop(tmp_path / "before")
    assert stock["queue"] == "FreeKVCacheBlockQueue"
    before = said("record", "--join", tmp_path / "before", "--out", trace, "--json")
    assert before["requests"] == 60 and before["dropped"] == 0
    assert before["token_hit_ratio"] == pytest.approx(
        sum(stock["hits"]) / perc.load(trace).input_tokens.sum()
    )
    grid = tmp_path / "grid.toml"
    grid.write_text(
        f'capacities = [18]\n[[traces]]\npath = "{trace}"\n'
        '[[policies]]\nname = "lru"\n[[policies]]\nname = "belady"\n'
    )
    main(["sweep", f"@{grid}", "--out", str(tmp_path / "sweep")])
    assert "2 configurations" in capsys.readouterr().out
    found = said("tune", trace, "perc_decay", "--capacities", 18, *FEW, "--json")
    save_named(policy, "perc_decay", found["parameters"], about={"trace": str(trace)})
    served, log = loop(tmp_path / "after", policy)
    assert served["queue"] == "PolicyQueue" and not served["failures"], log
    assert served["outputs"] == stock["outputs"]
    after = said(
        "record",
        "--join",
        tmp_path / "after",
        "--out",
        tmp_path / "b.parquet",
        "--json",
    )
    again = perc.load(tmp_path / "b.parquet")
    assert blocks_of(again) == blocks_of(perc.load(trace))
    found = np.asarray(replay(again, lru_ranks(again), [18]).blocks)[0]
    assert (TOKENS * found).tolist() == stock["hits"]  # what LRU would have hit
    assert sum(served["hits"]) > sum(stock["hits"]), (served["hits"], stock["hits"])
    assert after["token_hit_ratio"] == pytest.approx(
        sum(served["hits"]) / again.input_tokens.sum()
    )


def test_a_file_of_perc_train_can_be_deployed(tmp_path):
    """Record, train, deploy; and it evicts what the replay of the recording evicts."""
    from perc.cli import main

    with recording(tmp_path / "parts") as manager:
        for number, prompt in enumerate(prompts_of(0)):
            manager.serve(number, prompt)
    trace, policy = tmp_path / "t.parquet", tmp_path / "policy.npz"
    perc.save(join(str(tmp_path / "parts")).trace, trace)
    quick = ("--steps 5 --members 1 --classes 4 --batch 64 --train 1").split()
    main(["train", str(trace), "--out", str(policy), *quick, "--no-guard"])
    with recording(tmp_path / "again", 20, policy=load(policy)) as served:
        for number, prompt in enumerate(prompts_of(0)):
            served.clock.now_s = float(number)
            served.serve(number, prompt)
    assert served.failures == 0
    again = join(str(tmp_path / "again"))
    found = differs_from_aged(load(policy), again.trace, 19, victims_of(served))
    assert found in (None, "tie")
    assert len(served.victims) > 100


def victims_of(manager):
    """Blocks that have left, numbered by first use as in a trace of what was sent."""
    numbers = {}
    for request, _ in manager.sent:
        for name in request.block_hashes:
            numbers.setdefault(name, len(numbers))
    return [numbers[name[:-4]] for name in manager.victims]


def test_a_key_names_the_same_block_the_same():
    key = Key()
    first, again = key.blocks([b"a", b"b"]), key.blocks([b"b", b"a"])
    assert first[0] == again[1] and first[1] == again[0] and first[0] != first[1]
    assert key.session("a") != key.session("b") and key.session(None) is None
