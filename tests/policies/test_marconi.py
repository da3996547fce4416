"""Marconi's utility by hand, and what its rule promises (policies.md 2.12)."""

import jax.numpy as jnp
import numpy as np
import pytest

from perc.compare import run
from perc.errors import InputError
from perc.online import replay_online
from perc.policies.marconi import CHUNK, Extremes, marconi, utility
from perc.policies.registry import registry
from perc.traces.build import Columns, build_trace
from tests.oracles import listed
from tests.oracles.marconi import Marconi, utilities
from tests.test_step import trace_of

LAST, NOW = [2.0, 9.0, 7.0], 10.0


def utilities_of(alpha, work):
    work, last = jnp.float32(work), jnp.float32(LAST)
    ends = Extremes((work.min(), work.max()), (last.min(), last.max()))
    return np.asarray(utility(alpha, work, last, NOW, ends))


@pytest.mark.parametrize(
    ("alpha", "work", "expected"),
    [
        (0.0, [10240, 6656, 3840], [0, 1, 0.2381]),
        (1.0, [10240, 6656, 3840], [1, 1.44, 0.2381]),
        # The third block by its own bytes: 2048 + 4096 + 2 * 512 + 512.
        (1.0, [10240, 6656, 7680], [1, 1, 0.2857 + 0.2381]),
    ],
)
def test_utility(alpha, work, expected):
    assert utilities_of(alpha, work) == pytest.approx(expected, abs=1e-4)
    idle = [NOW - last for last in LAST]
    assert utilities(alpha, work, idle) == pytest.approx(expected, abs=1e-4)


def test_one_candidate_or_equal_ones_are_worth_the_same():
    assert utilities_of(2.0, [5, 5, 5])[1] == 2 + 1
    one = jnp.float32(3)
    assert float(utility(2.0, one, one, NOW, Extremes((one, one), (one, one)))) == 3


def work_of(width, prefix, tokens):
    """FLOPs saved / bytes of one attention and one MLP layer, from the layers up."""

    def flops(n):
        return 8 * n * width**2 + 4 * n * n * width + 16 * n * width**2

    return (flops(prefix + tokens) - flops(prefix)) / (4 * tokens * width)


def test_the_model_leaves_a_constant():
    """2p + n is FLOPs per byte up to what all blocks share."""
    assert work_of(1024, 0, 4096) == 10240 and work_of(1024, 0, 512) == 6656
    for width in (128, 4096):
        rest = {work_of(width, p, n) - (2 * p + n) for p in (0, 64) for n in (3, 16)}
        assert len(rest) == 1


def test_depth_or_recency_decides():
    """Tails of a long prompt and of a short one; the long one is older."""
    requests = [[0, 1, 2], [3], [4], [5], [0, 1, 2], [3]]
    for alpha, expected in ((0, [2, 0]), (4, [3, 0])):
        found = replay_online(trace_of(requests), marconi(alpha=alpha), [5])
        assert found.blocks[0, -2:].tolist() == expected


def served(requests, capacity, alpha):
    """Leading hits by the engine and by the oracle, for blocks of one token."""
    work = [{b: 2 * depth + 1 for depth, b in enumerate(row)} for row in requests]
    cache = Marconi(capacity, work, alpha)
    hits, _ = listed.simulate(requests, cache, root_first=True)
    found = replay_online(trace_of(requests), marconi(alpha=alpha), [capacity])
    return found.blocks[0].tolist(), hits


def test_a_hit_renews_the_deepest_block_only():
    """The prompt of `b` finds four blocks at its second use; three of them stay old.

    Had all been renewed, the last request but one would find one block less.
    """
    a, b, c, d = [0, 1, 2], [10, 11, 12, 13, 14], [20], [30, 31]
    requests = [a, b[:4], b, a[:2], c, c, d, d[:1], a[:2], d]
    found, expected = served(requests, 6, 0.25)
    assert found == expected == [0, 0, 4, 1, 0, 1, 0, 1, 2, 2]


def test_without_work_it_is_lru():
    """A parent that becomes a leaf is older than all that outlived its child."""
    rng = np.random.default_rng(1)
    chains = [[10 * i + j for j in range(4)] for i in range(9)]
    requests = [chains[i][:n] for i, n in rng.integers(1, (9, 5), (120, 2))]
    lru = run(registry["lru"](), trace_of(requests), [12])[0].tolist()
    found, expected = served(requests, 12, 0)
    assert found == expected == lru


def test_a_partial_block_counts_its_own_tokens():
    """4 tokens, 4 + 1 and 8 + 4: 2p + n lies at 0, .3125 and 1 between the extremes.

    At alpha 5 the second outlives the first, which is newer; p + n would put it at
    .125, below the first.
    """
    requests = [[0, 1], [10, 11, 12], [20], [30], [0, 1]]
    trace = build_trace(
        Columns(
            arrival_s=np.arange(5.0),
            input_tokens=np.array([5, 12, 4, 4, 5]),
            output_tokens=np.ones(5, np.int64),
            ids=np.array(sum(requests, [])),
            lengths=np.array([len(row) for row in requests]),
        ),
        block_tokens=4,
        source="by hand",
    )
    found = replay_online(trace, marconi(alpha=5), [6])
    assert found.blocks[0].tolist() == [0, 0, 0, 0, 2]


N = CHUNK + 50  # leaves, more than one turn of the loop looks at


def test_leaves_beyond_the_first_chunk_are_looked_at():
    """The first chunk is used again, so the oldest leaf is the next one."""
    ids = [*range(N), *range(CHUNK), N, *range(CHUNK), CHUNK]
    found = replay_online(trace_of([[b] for b in ids]), marconi(), [N]).blocks[0]
    assert found[N : N + CHUNK].all() and found[N + CHUNK + 1 : -1].all()
    assert not found[-1]


def test_of_equal_leaves_the_oldest_goes():
    """After 3,000 requests 1024 + 1 / idle is the same float in both chunks."""
    ids = [*range(N), *[N - 1] * 3000, N, CHUNK, 0]
    found, expected = served([[b] for b in ids], N, 1024)
    assert found == expected and found[-2:] == [1, 0]


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_alpha_out_of_range_is_refused(value):
    with pytest.raises(InputError, match="marconi: alpha is .*, must be 0 or more"):
        marconi(alpha=value)
