"""Traces that take turns, and the player against a guard."""

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.types import Guard
from perc.workloads.adversary import punish
from perc.workloads.shifts import take_turns


def pair():
    zipf = perc.make("zipf", requests=25, block_tokens=512)
    return perc.make("scan", requests=50, seed=1), zipf


def test_each_goes_on_where_it_was_interrupted():
    scan, zipf = pair()
    trace = take_turns([scan, zipf], requests=10, requests_per_s=2)
    turns = [0] * 10 + [1] * 10 + [0] * 10 + [1] * 10 + [0] * 10 + [1] * 5 + [0] * 20
    names = np.array(trace.kinds)[trace.kind]
    assert [int(name[0]) for name in names] == turns
    np.testing.assert_array_equal(trace.arrival_s, np.arange(75) / 2)
    for i, whole in enumerate((scan, zipf)):
        own = np.array(turns) == i
        mine = own[trace.request]
        blocks, first = np.unique(trace.block[mine], return_index=True)
        again = np.empty(trace.n_blocks, int)  # numbered by first appearance
        again[blocks[np.argsort(first)]] = np.arange(len(blocks))
        np.testing.assert_array_equal(again[trace.block[mine]], whole.block)
        np.testing.assert_array_equal(trace.depth[mine], whole.depth)
        np.testing.assert_array_equal(trace.tokens[mine], whole.tokens)
        for column in ("turn", "input_tokens", "output_tokens"):
            mine_now = getattr(trace, column)[own]
            np.testing.assert_array_equal(mine_now, getattr(whole, column))
        kinds = [f"{i}:{whole.kinds[kind]}" for kind in whole.kind]
        assert names[own].tolist() == kinds
    of = np.array(turns)
    assert not set(trace.session[of == 0]) & set(trace.session[of == 1])
    assert not set(trace.block[of[trace.request] == 0]) & set(
        trace.block[of[trace.request] == 1]
    )


def test_without_a_number_one_follows_the_other():
    scan, zipf = pair()
    trace = take_turns([scan, zipf])
    np.testing.assert_array_equal(trace.block[: scan.n_accesses], scan.block)
    later = trace.block[scan.n_accesses :]
    np.testing.assert_array_equal(later, zipf.block + scan.n_blocks)


def test_bad_turns_are_refused():
    scan, zipf = pair()
    with pytest.raises(InputError, match="block_tokens"):
        take_turns([])
    with pytest.raises(InputError, match=r"\[16, 512\]"):
        take_turns([scan, perc.make("zipf", requests=3, block_tokens=16)])
    with pytest.raises(InputError, match="requests is 0"):
        take_turns([scan], requests=0)
    with pytest.raises(InputError, match="requests_per_s is 0"):
        take_turns([scan], requests_per_s=0)


def test_a_player_s_trace_is_its_arguments():
    one, same = (punish(Guard(), capacity=5, requests=100) for _ in range(2))
    other = punish(Guard(share=0.5), capacity=5, requests=100)
    np.testing.assert_array_equal(one.block, same.block)
    assert not np.array_equal(one.block, other.block)
    assert one.n_requests == one.n_accesses == 100
    with pytest.raises(InputError, match="capacity is 0"):
        punish(Guard(), capacity=0)
