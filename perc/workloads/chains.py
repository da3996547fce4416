"""Block ids for prompts that grow, branch and share their beginnings.

A *chain* is one growing text. It may begin with the first tokens of another chain,
its parent: a session with the system prompt, a branch with the session it left.
"""

from typing import NamedTuple

import numpy as np


class Chains(NamedTuple):
    """Where the text of each chain begins, one entry a chain; parents come first."""

    parent: np.ndarray  # i64[S], the chain it begins like, -1 = none
    shared_tokens: np.ndarray  # i64[S], tokens in common with the parent, if any


def block_ids(
    chains: Chains, chain: np.ndarray, input_tokens: np.ndarray, block_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Names the blocks of requests that each send the beginning of a chain.

    Full blocks are shared by all who send the same text. A last, partial block is its
    request's own: the next prompt of the chain fills it up, and so names another one.

    Args:
        chains: the chains, S of them.
        chain: i64[R], the chain that each request sends.
        input_tokens: i64[R], how much of it.
        block_tokens: tokens of a full block.

    Returns:
        The ids i64[N] of all blocks, root first, and i64[R] how many each request has.
    """
    n_requests = len(chain)
    lengths = -(-input_tokens // block_tokens)
    request = np.repeat(np.arange(n_requests), lengths)
    stop = np.cumsum(lengths)
    depth = np.arange(len(request)) - (stop - lengths)[request]
    owner = _owners(chains, chain[request], depth, block_tokens)
    blocks = np.zeros(len(chains.parent), np.int64)
    np.maximum.at(blocks, owner, depth + 1)
    ids = (np.cumsum(blocks) - blocks)[owner] + depth
    partial = np.flatnonzero(input_tokens % block_tokens)
    ids[stop[partial] - 1] = blocks.sum() + partial
    return ids, lengths


def _owners(
    chains: Chains, chain: np.ndarray, depth: np.ndarray, block_tokens: int
) -> np.ndarray:
    """The chain that wrote each block first: up the parents, one step a round."""
    shared_tokens = np.where(chains.parent >= 0, chains.shared_tokens, 0)
    shared_blocks = shared_tokens // block_tokens
    owner = chain.copy()
    rows = np.arange(len(chain))
    while len(rows):
        rows = rows[depth[rows] < shared_blocks[owner[rows]]]
        owner[rows] = chains.parent[owner[rows]]
    return owner
