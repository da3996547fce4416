"""`rag`: popular passages that never hit, because of what stands before them."""

import numpy as np
import pytest

from perc.workloads import rag
from tests.oracles.lru import lru_hit_ratio
from tests.workloads.facts import ideal_hit_ratio

SYSTEM_BLOCKS = 1_024 // 16


def test_only_the_system_prompt_hits():
    trace = rag(requests=500)
    hits = np.bincount(trace.request[trace.prev >= 0], minlength=500)
    assert hits[0] == 0 and set(hits[1:]) == {SYSTEM_BLOCKS}


def test_a_block_is_shared_only_if_its_last_token_is():
    """A token less of the common prompt, and its last block ends in another text."""
    trace = rag(requests=100, system_tokens=1_023)
    hits = np.bincount(trace.request[trace.prev >= 0], minlength=100)
    assert set(hits[1:]) == {SYSTEM_BLOCKS - 1}


def test_no_head_room_for_a_policy():
    """Real: LRU reaches the ideal hit ratio with 1 % of the blocks."""
    trace = rag(requests=500)
    assert ideal_hit_ratio(trace) == pytest.approx(0.33, abs=0.03)
    assert lru_hit_ratio(trace, 600) == pytest.approx(ideal_hit_ratio(trace))


def test_most_sessions_have_one_turn():
    trace = rag(requests=5_000)
    turns = np.bincount(trace.session)
    assert (turns == 1).mean() == pytest.approx(0.59, abs=0.03)


def test_passages_hit_without_the_volatile_part():
    trace = rag(requests=1_000, volatile_tokens=0)
    hits = np.bincount(trace.request[trace.prev >= 0], minlength=1_000)
    assert (hits[1:] >= SYSTEM_BLOCKS).all()
    assert (hits[1:] > SYSTEM_BLOCKS + 3).mean() > 0.15


def test_one_passage_gives_one_prefix():
    """With a single passage in store, prompts differ only in what is asked."""
    trace = rag(requests=50, passages=1, retrieval_p=1.0, volatile_tokens=0)
    length = trace.input_tokens.min()  # a short question, no history
    shared = (length - 60) // 16
    heads = {tuple(trace.block[s : s + shared]) for s in trace.start}
    assert shared > SYSTEM_BLOCKS and len(heads) == 1


def test_a_passage_is_sent_once():
    """Two passages in store, drawn a dozen times: AB or BA, whatever was repeated."""
    trace = rag(
        requests=50,
        passages=2,
        passages_per_prompt=12,
        retrieval_p=1.0,
        volatile_tokens=0,
    )
    shared = (trace.input_tokens.min() - 60) // 16
    heads = {tuple(trace.block[s : s + shared]) for s in trace.start}
    assert shared > SYSTEM_BLOCKS and len(heads) == 2


def test_history_grows_in_a_session():
    trace = rag(requests=2_000, retrieval_p=0.0)
    order = np.lexsort((trace.turn, trace.session))
    follows = np.diff(trace.session[order]) == 0
    before, after = order[:-1][follows], order[1:][follows]
    said = trace.input_tokens[after] - trace.input_tokens[before]
    assert (said > trace.output_tokens[before]).all()
