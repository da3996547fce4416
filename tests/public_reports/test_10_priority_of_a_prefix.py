"""vllm#47802: the priority of a request, and of those who share its prefix."""

import numpy as np
import pytest

from perc.policies.registry import registry
from tests.public_reports.traffic import fresh, hits_of, trace_of

HI = [0, 1, 2, 3]


def last_hits(policy, requests, priority):
    trace = trace_of(requests, priority=np.array(priority))
    return hits_of(policy, trace, 12)


@pytest.mark.parametrize(("policy", "last"), [("lru", 0), ("priority", 4)])
def test_five_unimportant_requests_come_between(policy, last):
    """vllm#47802."""
    requests = [HI, *fresh(5, 4), HI]
    assert last_hits(policy, requests, [5, 0, 0, 0, 0, 0, 5])[-1] == last


@pytest.mark.parametrize(("merge", "last"), [("max", 4), ("override", 0)])
def test_an_unimportant_request_shares_the_prefix(merge, last):
    """vllm#47802; override is TensorRT-LLM's rule."""
    requests = [HI, HI, *fresh(5, 4), HI]
    policy = registry["priority"](merge=merge)
    hits = last_hits(policy, requests, [5, 0, 0, 0, 0, 0, 0, 5])
    assert (hits[1], hits[-1]) == (4, last)
