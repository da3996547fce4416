"""mlx-serve#378, sglang#18843, vllm#40270: one-off prompts evict the live chat."""

import pytest

from tests.public_reports.traffic import fresh, hits_of, trace_of

HOT = [0, 1, 2, 3]


@pytest.mark.parametrize("policy", ["lru", "slru_threshold"])
@pytest.mark.parametrize(("capacity", "last"), [(16, 4), (14, 2), (12, 0)])
def test_a_giant_prompt_takes_the_tail_first(policy, capacity, last):
    """ddalcu/mlx-serve#378. 0 of 4 at 14 blocks would mean that the head went first."""
    trace = trace_of([HOT] * 10 + fresh(1, 12) + [HOT])
    hits = hits_of(policy, trace, capacity)
    assert hits[1:10] == [4] * 9
    assert hits[-1] == last


@pytest.mark.parametrize("policy", ["lfu", "lfu_in_cache", "belady"])
def test_what_runs_must_fit_whatever_the_policy(policy):
    """ddalcu/mlx-serve#378. Twelve new blocks fill a cache of twelve."""
    trace = trace_of([HOT] * 10 + fresh(1, 12) + [HOT])
    assert hits_of(policy, trace, 12)[-1] == 0


@pytest.mark.parametrize(
    ("policy", "last"), [("lru", 0), ("slru_threshold", 4), ("lfu_in_cache", 4)]
)
def test_a_scan_of_one_off_prompts(policy, last):
    """sglang#18843, vllm#40270. What was used twice outlives what was used once."""
    trace = trace_of([HOT] * 10 + fresh(8, 4) + [HOT])
    assert hits_of(policy, trace, 14)[-1] == last
