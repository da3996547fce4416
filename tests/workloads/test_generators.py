"""What holds for every generator."""

import dataclasses

import numpy as np
import pytest

from perc.errors import InputError
from perc.traces.build import link_accesses
from perc.types import Trace
from perc.workloads import generators, make

NAMES = list(generators)


def columns(trace: Trace) -> dict:
    return {f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}


@pytest.mark.parametrize("name", NAMES)
def test_same_arguments_give_the_same_bits(name):
    first, again = (columns(make(name, requests=200, seed=3)) for _ in range(2))
    for column, value in first.items():
        assert type(value) is type(again[column])
        assert np.array_equal(value, again[column]), column


@pytest.mark.parametrize("name", NAMES)
def test_other_seeds_give_other_traces(name):
    first, other = (make(name, requests=200, seed=seed) for seed in (1, 2))
    assert not np.array_equal(first.arrival_s, other.arrival_s)
    assert not np.array_equal(first.block, other.block)


@pytest.mark.parametrize("name", NAMES)
def test_contract(name):
    trace = make(name, requests=300, seed=5)
    assert trace.n_requests == 300
    assert trace.source == f"{name}(requests=300, seed=5)"
    assert not trace.sessions_inferred
    assert trace.arrival_s[0] == 0 and (np.diff(trace.arrival_s) >= 0).all()
    assert (trace.output_tokens > 0).all() and (trace.input_tokens > 0).all()
    assert np.array_equal(trace.start, np.r_[0, trace.stop[:-1]])
    lengths = trace.stop - trace.start
    assert np.array_equal(lengths, -(-trace.input_tokens // trace.block_tokens))
    assert np.array_equal(trace.request, np.repeat(np.arange(300), lengths))
    assert trace.tokens.min() > 0 and trace.tokens.max() <= trace.block_tokens
    assert np.array_equal(np.bincount(trace.request, trace.tokens), trace.input_tokens)
    prev, next_ = link_accesses(trace.block)
    assert np.array_equal(trace.prev, prev) and np.array_equal(trace.next, next_)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_form_a_forest(name):
    """A block has one parent, one depth and one number of tokens wherever it stands."""
    trace = make(name, requests=300, seed=5, block_tokens=64)
    parent = np.where(trace.depth > 0, np.roll(trace.block, 1), -1)
    for value in (parent, trace.depth, trace.tokens):
        of_block = np.zeros(trace.n_blocks, value.dtype)
        of_block[trace.block] = value
        assert np.array_equal(of_block[trace.block], value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("requests", [0, 1, 2])
def test_small_traces(name, requests):
    assert make(name, requests=requests).n_requests == requests


@pytest.mark.parametrize(
    ("name", "params"),
    [(name, {"requests": -1}) for name in NAMES]
    + [(name, {"seed": -1}) for name in NAMES]
    + [(name, {"block_tokens": 0}) for name in NAMES]
    + [
        ("chat", {"sessions_per_s": -2.0}),
        ("chat", {"continue_p": ()}),
        ("chat", {"continue_p": (0.5, 1.5)}),
        ("chat", {"branch_p": -0.1}),
        ("chat", {"warm_up_s": float("inf")}),
        ("agent", {"sessions_per_h": 0.0}),
        ("agent", {"system_tokens": (200, 100)}),
        ("agent", {"context_tokens": 20_000}),
        ("agent", {"subagent_p": 2.0}),
        ("rag", {"sessions_per_s": float("nan")}),
        ("rag", {"passages": 0}),
        ("rag", {"retrieval_p": 1.1}),
        ("zipf", {"alpha": -1.0}),
        ("zipf", {"n_blocks": 0}),
        ("scan", {"requests_per_s": -1.0}),
        ("scan", {"scan_every": 0}),
        ("scan", {"hot_order": "sorted"}),
    ],
)
def test_bad_arguments_are_named(name, params):
    (culprit,) = params
    with pytest.raises(InputError, match=culprit):
        make(name, **params)


def test_unknown_names_list_the_known_ones():
    with pytest.raises(InputError, match="'chart'.*chat, agent"):
        make("chart")
    with pytest.raises(InputError, match="'blocks'.*n_blocks"):
        make("zipf", blocks=3)


def test_source_tells_what_is_not_the_default():
    assert make("zipf", requests=5, alpha=0.5).source == (
        "zipf(requests=5, seed=0, alpha=0.5)"
    )
