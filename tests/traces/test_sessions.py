"""The reader of kv-cache-tester sessions: twins, repeats, sub-agents, starts."""

import json
import random

import numpy as np
import pytest

from perc.errors import InputError, TraceWarning
from perc.traces import load


def request(t, type="n", n_ids=2, **fields) -> dict:
    lengths = {"in": 8 * n_ids + 3, "out": 5, "hash_ids": list(range(n_ids))}
    return {"t": t, "type": type, "stop": "end_turn", **lengths, **fields}


def session(*requests, id: object = "x", **fields) -> str:
    return json.dumps({"id": id, "block_size": 8, "requests": requests, **fields})


def load_quietly(path, **kwargs):
    with pytest.warns(TraceWarning) as caught:
        trace = load(path, **kwargs)
    return trace, "\n".join(str(warning.message) for warning in caught)


def test_sample(data_folder):
    trace, said = load_quietly(data_folder / "sessions.jsonl")
    assert (trace.n_requests, trace.n_accesses, trace.n_blocks) == (20, 56, 26)
    assert trace.block_tokens == 8
    assert len(np.unique(trace.session)) == 10  # 9 sessions, one with a sub-agent
    assert "11 requests are the twin" in said
    assert "1 of 10 sessions repeat" in said
    assert "9 sessions, uniform over 24 h" in said


def test_a_twin_ends_the_request_that_it_repeats(write):
    path = write([session(request(1.0, "s", out=4, stop=""), request(3.0, out=9))])
    trace, said = load_quietly(path)
    assert trace.output_tokens.tolist() == [9]
    assert trace.kinds == ("end_turn",)
    assert "1 requests are the twin" in said


def test_the_latest_streamed_request_is_the_twin(write):
    pair = [request(0, "s", out=1), request(1, "s", out=2)]
    path = write([session(*pair, request(2, out=3), request(3, out=4))])
    assert load_quietly(path)[0].output_tokens.tolist() == [4, 3]


@pytest.mark.parametrize(
    "second",
    [request(1, "n", n_ids=3), request(1, "s"), request(1, "n", hash_ids=[0, 9])],
    ids=["longer", "streamed too", "other ids"],
)
def test_other_requests_are_no_twins(write, second):
    trace, said = load_quietly(write([session(request(0, "s"), second)]))
    assert trace.n_requests == 2
    assert "twin" not in said


def test_a_request_far_above_is_no_twin(write):
    between = [request(t, n_ids=t + 2) for t in range(1, 7)]
    path = write([session(request(0, "s"), *between, request(8))])
    assert load_quietly(path)[0].n_requests == 8


def test_sub_agents_are_sessions_and_their_times_count_from_their_own(write):
    inner = {"t": 10, "type": "subagent", "agent_id": "a"}
    nested = {**inner, "requests": [request(0.5), request(1.5, n_ids=3)]}
    trace, _ = load_quietly(write([session(request(0), nested, request(11, n_ids=4))]))
    assert trace.arrival_s.tolist() == pytest.approx([0, 10.5, 11, 11.5])
    assert trace.session.tolist() == [0, 1, 0, 1]
    assert trace.turn.tolist() == [1, 1, 2, 2]


def test_content_ids_are_told_apart_by_their_parent(write):
    path = write([session(request(0, hash_ids=[1, 2]), request(1, hash_ids=[3, 2]))])
    assert load_quietly(path)[0].n_blocks == 4


def test_repeats_are_dropped_even_with_other_ids(write):
    lines = [session(request(0)), session(request(0, hash_ids=[8, 9]), id="y")]
    trace, said = load_quietly(write(lines))
    assert trace.n_requests == 1
    assert "1 of 2 sessions repeat" in said


def test_starts_follow_seed_and_density(write):
    lines = [session(request(0, out=k), id=k) for k in range(20)]
    trace, said = load_quietly(write(lines), sessions_per_hour=40, start_seed=3)
    draw = random.Random(3)
    starts = sorted(draw.uniform(0, 1800) for _ in lines)
    assert trace.arrival_s == pytest.approx(np.array(starts) - starts[0])
    assert "uniform over 0.5 h" in said
    other, _ = load_quietly(write(lines), sessions_per_hour=40, start_seed=4)
    assert other.arrival_s.tolist() != trace.arrival_s.tolist()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [session(request(0, n_ids=3, hash_ids=[1]))],
            r"line 1: requests\[0\].hash_ids",
        ),
        ([session(request(True))], r"field 'requests\[0\].t' is True"),
        ([session({"type": "subagent", "t": 0})], r"'requests\[0\].agent_id' is miss"),
        ([session({"type": "subagent", "t": 0, "agent_id": []})], "agent_id' is"),
        ([session(id=None)], "field 'id' is None"),
        ([session(7)], r"field 'requests\[0\]' is 7, must be an object"),
        ([json.dumps({"id": 1, "block_size": 8, "requests": {}})], "must be a list"),
        ([session(request(0)), session(id="y", block_size=16)], "of 8, 16 tokens"),
        ([session(block_size=0)], "field 'block_size' is 0"),
        ([session()], "holds no request"),
    ],
)
def test_what_is_wrong_is_named(write, lines, message):
    with pytest.raises(InputError, match=message):
        load(write(lines))


def test_the_file_knows_its_block_size(write):
    path = write([session(request(0))])
    with pytest.raises(InputError, match="blocks of 8 tokens, not 16"):
        load(path, block_tokens=16)
    assert load_quietly(path, block_tokens=8)[0].block_tokens == 8


@pytest.mark.parametrize("density", [0, -1, float("nan"), float("inf")])
def test_a_density_is_more_than_zero(write, density):
    with pytest.raises(InputError, match="--sessions-per-hour is"):
        load(write([session(request(0))]), sessions_per_hour=density)
