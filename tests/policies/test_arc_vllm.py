"""ARC as in vLLM's CPU tier: where it differs from the paper (policies.md 2.5)."""

from perc.online import replay_online
from perc.policies.arc import arc, arc_vllm
from tests.test_step import trace_of


def hits(policy, ids, capacity):
    trace = trace_of([[b] for b in ids])
    return replay_online(trace, policy, [capacity]).blocks[0].tolist()


def test_a_ghost_that_is_looked_up_is_the_newest():
    """A full list of ghosts forgets another one, and that one returns next."""
    ids = [5, 2, 3, 2, 6, 5, 3, 2]
    assert hits(arc_vllm(), ids, 2) == [0, 0, 0, 1, 0, 0, 0, 1]


def test_what_returns_counts_as_seen_once():
    """0 and 2 were used again, so 1, 3 and 4 pass; 1 returns, and leaves for 5.

    In the paper's rules 1 is seen again by its return, and stays.
    """
    ids = [0, 0, 2, 2, 1, 3, 1, 5, 1]
    assert hits(arc_vllm(), ids, 3)[-1] == 0
    assert hits(arc(), ids, 3)[-1] == 1
