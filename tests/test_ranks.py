"""Scores to ranks: the order of leaving, and the worth of a chain."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.ranks import chain_worth
from perc.step import replay_steps
from perc.types import Policy
from tests.oracles import cache as oracle
from tests.strategies import rows_of, traces
from tests.test_step import trace_of

special = st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2e-38, 2.0, np.inf])


def draw_scores(data, trace):
    n = trace.n_accesses
    return np.array(data.draw(st.lists(special, min_size=n, max_size=n)), np.float32)


@settings(deadline=None)
@given(traces(), st.data())
def test_ranks_sort_by_score_then_recency_then_depth(trace, data):
    score = draw_scores(data, trace)
    expected = sorted(
        range(trace.n_accesses),
        key=lambda i: (score[i], trace.request[i], -trace.depth[i]),
    )
    rank = perc.ranks(trace, score)
    assert np.argsort(rank).tolist() == expected


@settings(deadline=None)
@given(traces(), st.data())
def test_chain_worth_is_the_best_of_all_uses_below(trace, data):
    score = draw_scores(data, trace)
    if not trace.n_accesses:
        return
    expected = oracle.chain_worth(rows_of(trace, trace.block), rows_of(trace, score))
    assert rows_of(trace, chain_worth(trace, score)) == [list(r) for r in expected]


def test_denormals_are_zeros_as_in_compiled_code():
    """With two slots, 1 2 3 1: a score of 1e-39 ties with 0 and is the oldest."""
    trace = trace_of([[1], [2], [3], [1]])
    table = jnp.array([1e-39, 0, 0, 0], jnp.float32)
    policy = Policy(table, lambda params, f: params[f.step], "table", ("step",))
    order = perc.ranks(trace, np.asarray(table))
    fast = perc.replay(trace, order, [2]).blocks[0].tolist()
    assert fast == replay_steps(policy, trace, 2).blocks.tolist() == [0, 0, 0, 0]


def test_nan_has_no_place_in_an_order(small_chat):
    policy = Policy((), lambda params, f: f.step * np.nan, "broken", ("step",))
    with pytest.raises(ValueError, match="policy broken: the score of access 0 is NaN"):
        perc.scores(policy, small_chat)


def test_scores_of_another_length_are_refused(small_chat):
    with pytest.raises(ValueError, match="one score an access"):
        perc.ranks(small_chat, np.zeros(3))
