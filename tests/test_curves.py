"""LRU's one-pass curve equals replaying LRU at every capacity."""

import numpy as np
import pytest
from hypothesis import given, settings

import perc
from perc.curves import lru_distances, lru_distances_parallel
from perc.metrics import tokens_of_hits
from perc.policies.registry import registry
from tests.strategies import replay_each, traces


@settings(deadline=None, max_examples=60)
@given(traces(max_requests=12))
def test_curve_equals_replay_at_every_capacity(trace):
    curve = perc.lru_curve(trace)
    order = perc.ranks(trace, perc.scores(registry["lru"](), trace))
    sizes = list(range(trace.n_blocks + 1))
    assert replay_each(trace, order, sizes).blocks.sum(axis=1).tolist() == list(curve)


@settings(deadline=None, max_examples=60)
@given(traces(max_requests=30))
def test_the_parallel_form_gives_the_same_distances(trace):
    assert np.array_equal(lru_distances_parallel(trace), lru_distances(trace))


def test_the_parallel_form_on_a_longer_trace(small_chat):
    found = lru_distances_parallel(small_chat)
    assert np.array_equal(found, lru_distances(small_chat))


def test_weights_and_window(small_chat):
    order = perc.ranks(small_chat, small_chat.request)
    hits = perc.replay(small_chat, order, [150, 600]).blocks
    curve = perc.lru_curve(small_chat, weights=small_chat.tokens, warmup_requests=100)
    tokens = [tokens_of_hits(small_chat, row)[100:].sum() for row in hits]
    assert curve[[150, 600]].tolist() == tokens


@pytest.mark.real_trace
def test_reference_integers(traces_folder):
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    curve = perc.lru_curve(trace)
    sizes = [1_000, 1_827, 3_655, 9_139, 10_000, 18_279, 45_697, 100_000]
    assert curve[sizes].tolist() == [
        12_847, 15_136, 22_865, 56_479, 61_046, 80_466, 101_978, 104_924,
    ]  # fmt: skip
    assert np.searchsorted(curve, 0.9 * curve[-1]) == 31_435  # policies.md section 7
