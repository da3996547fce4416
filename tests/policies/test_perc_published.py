"""The published formula, digit for digit (policies.md 2.2), and its faults."""

import math

import jax.numpy as jnp
import pytest

import perc
from perc.policies.perc_published import perc_published
from perc.types import Features


@pytest.mark.parametrize(
    ("tokens", "blocks", "gap_s", "score"),
    [
        (1024, 32, jnp.nan, 0.0141567),
        (1024, 32, 2.0, 0.0587466),
        (32, 1, 2.0, 0.0587466),
        (33, 2, 2.0, 0.0302912),
        (8192, 256, 0.028, 0.0640000),
        (64, 2, 100.0, 0.00312132),
        (1000, 1, 0.0001, 2.0),  # the floor of 10 ms: a rate of 100 a second
    ],
)
def test_vectors(tokens, blocks, gap_s, score):
    policy = perc_published()
    values = Features(
        mean_gap_s=jnp.float32(gap_s),
        input_tokens=jnp.int32(tokens),
        request_blocks=jnp.int32(blocks),
    )
    assert float(policy.score(policy.params, values)) == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize(
    ("parameters", "gap_s", "score"),
    [
        ({"horizon_s": 2.0}, 2.0, 2 * (1 - math.exp(-1))),
        ({"recompute_s_per_token": 0.02}, 5.0, 20 * (1 - math.exp(-1))),
        ({"default_rate_per_s": 0.2}, math.nan, 2 * (1 - math.exp(-1))),
        ({"shortest_gap_s": 5.0}, 0.1, 2 * (1 - math.exp(-1))),
    ],
)
def test_each_parameter_reaches_the_score(parameters, gap_s, score):
    """1,000 tokens in one block, so 2 s to compute at the default rate."""
    policy = perc_published(**parameters)
    for blocks in (0, 1):  # a prompt that fills no block counts as one
        values = Features(
            mean_gap_s=jnp.float32(gap_s),
            input_tokens=jnp.int32(1000),
            request_blocks=jnp.int32(blocks),
        )
        found = float(policy.score(policy.params, values))
        assert found == pytest.approx(score, rel=1e-5)


def test_length_cancels():
    """Fault: tokens and blocks grow together, so only the rate orders."""
    policy = perc_published()
    values = Features(
        mean_gap_s=jnp.full(3, 2.0),
        input_tokens=jnp.array([32, 3200, 320_000]),
        request_blocks=jnp.array([1, 100, 10_000]),
    )
    score = policy.score(policy.params, values)
    assert score == pytest.approx(float(score[0]), rel=1e-5)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_parameters_must_be_positive(value):
    with pytest.raises(ValueError, match="horizon_s is .*, must be above 0"):
        perc_published(horizon_s=value)


@pytest.mark.real_trace
def test_it_loses_to_lru_on_conversations(traces_folder):
    """The holes that it leaves cost most of what LRU hits: .2116 at 10,000 blocks."""
    trace = perc.load(traces_folder / "mooncake_conversation_trace.jsonl.gz")
    rows = perc.compare(trace, ["lru", "perc_published"], [10_000]).rows
    assert rows[1].block_hit_ratio < 0.4 * rows[0].block_hit_ratio
