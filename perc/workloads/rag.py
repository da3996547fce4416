"""Retrieval-augmented questions: popular passages, but in an order that defeats reuse.

The tables are measured on RAGPulse (flashserve/RAGPulse): 7,106 requests in a week.
There the last part of the system prompt differs from request to request, so that the
passages behind it, popular as they are, never hit: a negative control for policies.
"""

from typing import TYPE_CHECKING

import numpy as np

from perc.workloads.arguments import at_least, describe, positive, probabilities
from perc.workloads.sampling import (
    draw_poisson_arrivals,
    draw_quantiles,
    draw_ranks,
    draw_tokens,
    zipf_shares,
)

if TYPE_CHECKING:
    from perc.types import Trace

# Tables of quantiles: (share below, value).
PASSAGE_TOKENS = (
    (0.0, 20), (0.01, 48), (0.1, 141), (0.25, 191), (0.5, 266), (0.75, 318),
    (0.9, 345), (1.0, 404),
)  # fmt: skip
QUESTION_TOKENS = ((0.0, 1), (0.1, 3), (0.5, 6), (0.9, 12), (0.99, 28), (1.0, 60))
OUTPUT_TOKENS = (
    (0.0, 20), (0.01, 36), (0.1, 83), (0.25, 131), (0.5, 234), (0.75, 385), (0.9, 563),
    (0.99, 891), (1.0, 1_200),
)  # fmt: skip
GAP_S = (
    (0.0, 3), (0.01, 6), (0.1, 15), (0.25, 23), (0.5, 40), (0.75, 89), (0.9, 301),
    (0.97, 3_600), (1.0, 40_000),
)  # fmt: skip
CONTINUE_P = (0.41, 0.42, 0.45, 0.51, 0.6, 0.7)  # after turn 1, 2, ...; then the last
MOST_TURNS = 30


def rag(
    *,
    requests: int = 7_106,
    seed: int = 0,
    sessions_per_s: float = 0.0066,
    passages: int = 3_235,
    alpha: float = 0.65,
    passages_per_prompt: int = 6,
    retrieval_p: float = 0.79,
    system_tokens: int = 1_024,
    volatile_tokens: int = 437,
    block_tokens: int = 16,
) -> "Trace":
    """Questions answered from retrieved passages.

    A prompt is: system prompt, its volatile end, passages, conversation so far,
    question. 59 % of the sessions have one turn; every turn retrieves anew. Set
    `volatile_tokens=0` to see what the volatile part costs where it stands.

    Args:
        requests: requests of the trace.
        seed: of all random draws; the same arguments give the same trace.
        sessions_per_s: new sessions that begin a second.
        passages: passages of the store.
        alpha: exponent of their popularity, p(rank) ~ rank**-alpha.
        passages_per_prompt: passages retrieved for a question; a passage drawn
            twice is sent once.
        retrieval_p: probability that a question retrieves at all.
        system_tokens: beginning that all prompts share.
        volatile_tokens: part of the system prompt behind it that every request has
            for itself, such as date and user.
        block_tokens: tokens of a block.

    Returns:
        The trace.

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    source = describe(rag, locals())
    at_least(0, requests=requests, seed=seed, alpha=alpha, system_tokens=system_tokens)
    at_least(
        0, passages_per_prompt=passages_per_prompt, volatile_tokens=volatile_tokens
    )
    at_least(1, passages=passages, block_tokens=block_tokens)
    positive(sessions_per_s=sessions_per_s)
    probabilities(retrieval_p=retrieval_p)
    rng = np.random.default_rng(seed)
    arrival_s, session, turn = _turns(rng, requests, sessions_per_s)
    output = draw_tokens(rng, OUTPUT_TOKENS, requests)
    question = draw_tokens(rng, QUESTION_TOKENS, requests)
    drawn = draw_ranks(
        rng, zipf_shares(alpha, passages), requests * passages_per_prompt
    ).reshape(requests, passages_per_prompt)
    sent = _first_of_each(drawn) & (rng.random(requests) < retrieval_p)[:, None]
    # Close the gaps, so that equal passages stand in equal columns.
    packed = np.argsort(~sent, axis=1, kind="stable")
    drawn = np.take_along_axis(drawn, packed, axis=1)
    sent = np.take_along_axis(sent, packed, axis=1)
    passage_tokens = draw_tokens(rng, PASSAGE_TOKENS, passages)
    own = passages + 1 + np.arange(requests)  # a piece that only this request has
    piece = np.column_stack([np.full(requests, passages), own, drawn, own])
    tokens = np.column_stack(
        [
            np.full(requests, system_tokens),
            np.full(requests, volatile_tokens),
            np.where(sent, passage_tokens[drawn], 0),
            question + _history(session, turn, question + output),
        ]
    )
    ids, lengths = _piece_blocks(piece, tokens, block_tokens)
    columns = Columns(
        arrival_s=arrival_s,
        input_tokens=tokens.sum(axis=1),
        output_tokens=output,
        ids=ids,
        lengths=lengths,
        session=session,
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)


def _turns(
    rng: np.random.Generator, requests: int, sessions_per_s: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrival, session and turn of the first `requests` requests, in time."""
    begin_s = draw_poisson_arrivals(rng, sessions_per_s, requests)
    last = np.minimum(np.arange(MOST_TURNS - 1), len(CONTINUE_P) - 1)
    goes_on = rng.random((requests, MOST_TURNS - 1)) < np.array(CONTINUE_P)[last]
    turns = 1 + np.cumprod(goes_on, axis=1).sum(axis=1)
    session = np.repeat(np.arange(requests), turns)
    turn = np.arange(len(session)) - np.repeat(np.cumsum(turns) - turns, turns)
    gap = np.where(turn > 0, draw_quantiles(rng, GAP_S, len(turn)), 0.0)
    since = np.cumsum(gap)
    arrival_s = begin_s[session] + since - since[np.flatnonzero(turn == 0)][session]
    order = np.argsort(arrival_s, kind="stable")[:requests]
    return arrival_s[order], session[order], turn[order]


def _first_of_each(drawn: np.ndarray) -> np.ndarray:
    """Which passages did not stand further left in their row, bool[R, K]."""
    same = drawn[:, :, None] == drawn[:, None, :]
    return ~np.tril(same, -1).any(axis=2)


def _history(session: np.ndarray, turn: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Tokens i64[R] said in the session before each request."""
    order = np.lexsort((turn, session))
    before = np.cumsum(said[order]) - said[order]
    first = np.flatnonzero(np.diff(session[order], prepend=-1))
    turns = np.diff(np.r_[first, len(order)])
    history = np.empty_like(said)
    history[order] = before - np.repeat(before[first], turns)
    return history


def _piece_blocks(
    piece: np.ndarray, tokens: np.ndarray, block_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and number of blocks of prompts made of pieces [R, K] of so many tokens.

    A block is known by all pieces up to the one that holds its last token: a piece
    has one length, so equal pieces lie at equal places. An empty piece may only stand
    where all or none are empty, or before a piece that nobody else has.
    """
    node = np.empty_like(piece)
    above, taken = np.zeros(len(piece), np.int64), 1
    for column in range(piece.shape[1]):
        # An empty piece adds nothing to the text: the node stays.
        key = above * (piece.max(initial=0) + 2) + piece[:, column] + 1
        key = np.where(tokens[:, column] > 0, key, -1)
        _, inverse = np.unique(key, return_inverse=True)
        above = np.where(key >= 0, taken + inverse, above)
        taken += len(piece) + 1
        node[:, column] = above
    ends = np.cumsum(tokens, axis=1)
    lengths = -(-ends[:, -1] // block_tokens)
    request = np.repeat(np.arange(len(piece)), lengths)
    depth = np.arange(len(request)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    last_token = np.minimum((depth + 1) * block_tokens, ends[request, -1]) - 1
    holder = (ends[request] <= last_token[:, None]).sum(axis=1)
    return node[request, holder] * (lengths.max(initial=0) + 1) + depth, lengths
