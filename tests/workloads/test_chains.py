"""Block ids of prompts that share their beginnings, small enough to read."""

import numpy as np

from perc.workloads.chains import Chains, block_ids


def ids_of(parent, shared, chain, tokens):
    chains = Chains(np.array(parent), np.array(shared))
    ids, lengths = block_ids(chains, np.array(chain), np.array(tokens), 10)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]


def test_a_branch_shares_the_full_blocks_of_its_parent():
    trunk, branch = ids_of([-1, 0], [0, 25], [0, 1], [40, 40])
    assert trunk[:2] == branch[:2], "20 of the 25 tokens fill blocks"
    assert set(trunk[2:]).isdisjoint(branch[2:])


def test_a_partial_last_block_is_its_requests_own():
    first, again, longer = ids_of([-1], [0], [0, 0, 0], [15, 15, 20])
    assert first[0] == again[0] == longer[0]
    assert len({first[1], again[1], longer[1]}) == 3


def test_a_root_shares_with_nobody():
    one, other = ids_of([-1, -1], [30, 30], [0, 1], [30, 30])
    assert set(one).isdisjoint(other)
