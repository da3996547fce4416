"""Cache sizes as people write them."""

import dataclasses

import numpy as np
import pytest

import perc
from perc.capacities import in_blocks, parse_capacities
from perc.errors import InputError


@pytest.fixture(scope="module")
def hundred_blocks():
    """A trace of 100 distinct blocks."""
    trace = perc.make("chat", requests=300)
    keep = np.flatnonzero(trace.block < 100)
    short = dataclasses.replace(trace, block=trace.block[keep])
    assert short.n_blocks == 100
    return short


@pytest.mark.parametrize(
    "text, sizes",
    [
        ("4096", [4096]),
        ("1000,0.05,25%", [1000, 0.05, 0.25]),
        (" 10 , 5% ", [10, 0.05]),
        ("0", [0]),
        ("1_000", [1000]),
        ("1.0", [1.0]),
        ("100%", [1.0]),
        ("-5", [-5]),
    ],
)
def test_blocks_and_shares_are_told_apart(text, sizes):
    found = parse_capacities(text)
    assert found == sizes
    assert [type(x) for x in found] == [type(x) for x in sizes]


@pytest.mark.parametrize("word", ["lots", "", "5%%", "--5", "4k", "²", "0.1.2"])
def test_what_is_no_capacity_is_named(word):
    with pytest.raises(InputError, match=r"is no capacity\. Give blocks") as error:
        parse_capacities(f"100,{word}")
    assert repr(word) in str(error.value)


def test_shares_become_blocks_of_the_working_set(hundred_blocks):
    assert in_blocks(hundred_blocks, [0.05, 0.259, 1.0, 0.0]) == [0, 5, 25, 100]


def test_sizes_are_ascending_and_each_once(hundred_blocks):
    assert in_blocks(hundred_blocks, [50, 7, 0.5, 7, 0.07]) == [7, 50]


def test_one_block_is_not_the_whole_working_set(hundred_blocks):
    assert in_blocks(hundred_blocks, [1]) == [1]
    assert in_blocks(hundred_blocks, [1.0]) == [100]


def test_blocks_may_exceed_the_working_set(hundred_blocks):
    assert in_blocks(hundred_blocks, [10**6]) == [10**6]


def test_a_whole_percentage_of_100_blocks_is_that_many(hundred_blocks):
    every = parse_capacities(",".join(f"{percent}%" for percent in range(101)))
    assert in_blocks(hundred_blocks, every) == list(range(101))


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5)])
def test_numpy_shares_are_shares(hundred_blocks, number):
    assert in_blocks(hundred_blocks, [number]) == [50]


def test_numpy_integers_are_blocks(hundred_blocks):
    assert in_blocks(hundred_blocks, np.array([3, 1])) == [1, 3]


@pytest.mark.parametrize("wrong", [-0.1, 1.01, 4096.0, float("nan"), float("inf")])
def test_a_share_out_of_range_is_refused(hundred_blocks, wrong):
    with pytest.raises(InputError, match=f"capacity of {wrong} is no share"):
        in_blocks(hundred_blocks, [wrong])


def test_negative_blocks_are_refused(hundred_blocks):
    with pytest.raises(InputError, match="capacity of -5 blocks; give 0 or more"):
        in_blocks(hundred_blocks, [-5])


def test_no_capacity_is_refused(hundred_blocks):
    with pytest.raises(InputError, match="no capacity given; for example"):
        in_blocks(hundred_blocks, [])


def test_an_empty_trace_has_a_working_set_of_nothing():
    assert in_blocks(perc.make("chat", requests=0), [0.1, 5]) == [0, 5]
