"""Chat traffic like the Mooncake conversation trace: turns, one-offs, branches.

After a request, its user either goes on with the conversation (the next prompt holds
all of this one), or branches off (a new session that shares only the first tokens: an
edited message, the same document again), or leaves.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perc.workloads import chat_facts as facts
from perc.workloads.arguments import at_least, describe, positive, probabilities
from perc.workloads.chains import Chains, block_ids
from perc.workloads.sampling import (
    draw_poisson_arrivals,
    draw_quantiles,
    draw_tokens,
    steps,
)

if TYPE_CHECKING:
    from perc.types import Trace


def chat(
    *,
    requests: int = 12_031,
    seed: int = 0,
    sessions_per_s: float = 2.02,
    continue_p: tuple[float, ...] = (
        0.26,
        0.395,
        0.5,
        0.57,
        0.62,
        0.69,
        0.76,
        0.8,
        0.87,
    ),
    branch_p: float = 0.1,
    rebranch_p: float = 0.52,
    system_tokens: int = 890,
    block_tokens: int = 512,
    warm_up_s: float = 3_600.0,
    arrival_step_s: float = 0.0,
) -> "Trace":
    """Conversations that grow turn by turn, between many one-off questions.

    The defaults behave like an hour of the Mooncake conversation trace. Sessions are
    under way when the trace begins, as they were there; the first request that it
    shows of such a session counts as the session's first turn.

    Args:
        requests: requests of the trace.
        seed: of all random draws; the same arguments give the same trace.
        sessions_per_s: new sessions that begin a second, those aside that branch off.
        continue_p: probability that turn 1, 2, ... is followed by another one; the
            last entry holds for all later turns.
        branch_p: probability that a prompt of 8,192 to 16,383 tokens which is not
            continued is branched; longer ones more often, shorter ones less.
        rebranch_p: the same for any prompt of a session that is a branch itself.
        system_tokens: beginning that all prompts share.
        block_tokens: tokens of a block.
        warm_up_s: seconds of traffic before the trace begins, which it does not show.
        arrival_step_s: arrivals are rounded down to multiples of it (the real trace:
            3 s); 0 leaves them as they are.

    Returns:
        The trace, one session a conversation.

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    source = describe(chat, locals())
    at_least(0, requests=requests, seed=seed, warm_up_s=warm_up_s)
    at_least(0, system_tokens=system_tokens, arrival_step_s=arrival_step_s)
    at_least(1, block_tokens=block_tokens, entries_of_continue_p=len(continue_p))
    positive(sessions_per_s=sessions_per_s)
    probabilities(branch_p=branch_p, rebranch_p=rebranch_p)
    probabilities(**{f"continue_p[{i}]": p for i, p in enumerate(continue_p)})
    rng = np.random.default_rng(seed)
    before = rng.uniform(-warm_up_s, 0.0, rng.poisson(sessions_per_s * warm_up_s))
    # A session has at least one request, so these fill the trace.
    begin_s = np.r_[before, draw_poisson_arrivals(rng, sessions_per_s, requests)]
    users = _Users(np.array(continue_p), branch_p, rebranch_p)
    sent, chains = _converse(rng, begin_s, users, system_tokens)
    sent = _window(sent, requests)
    ids, lengths = block_ids(chains, sent.chain, sent.input_tokens, block_tokens)
    arrival_s = sent.arrival_s
    if arrival_step_s:
        arrival_s = np.floor(arrival_s / arrival_step_s) * arrival_step_s
    columns = Columns(
        arrival_s=arrival_s,
        input_tokens=sent.input_tokens,
        output_tokens=sent.output_tokens,
        ids=ids,
        lengths=lengths,
        session=sent.chain,
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)


class _Users(NamedTuple):
    """How they decide; see `chat`."""

    continue_p: np.ndarray
    branch_p: float
    rebranch_p: float


class _Prompts(NamedTuple):
    """Requests, one entry each."""

    chain: np.ndarray  # i64, the text that it sends: here, one a session
    turn: np.ndarray  # i64, 1 = first of its session
    branch: np.ndarray  # bool, the session branched off another one
    arrival_s: np.ndarray  # f64
    input_tokens: np.ndarray  # i64
    output_tokens: np.ndarray  # i64


def _converse(
    rng: np.random.Generator, begin_s: np.ndarray, users: _Users, system_tokens: int
) -> tuple[_Prompts, Chains]:
    """All requests, wave after wave: what comes after a wave is the next wave."""
    size, until_s = len(begin_s), begin_s.max(initial=0.0)
    # Chain 0 is the system prompt, every other chain a session.
    parents = [np.array([-1]), np.zeros(size, np.int64)]
    shared_tokens = [np.array([0]), np.full(size, system_tokens)]
    wave = _Prompts(
        chain=np.arange(1, size + 1),
        turn=np.ones(size, np.int64),
        branch=np.zeros(size, bool),
        arrival_s=begin_s,
        input_tokens=draw_tokens(rng, facts.FIRST_PROMPT_TOKENS, size),
        output_tokens=draw_tokens(rng, facts.OUTPUT_TOKENS, size),
    )
    waves, n_chains = [], size + 1
    while len(wave.chain):
        waves.append(wave)
        goes_on, leaves = _fates(rng, wave, users)
        branches, common = _branch_off(rng, _pick(wave, leaves), n_chains)
        parents.append(wave.chain[leaves])
        shared_tokens.append(common)
        n_chains += len(common)
        wave = _join([_follow_up(rng, _pick(wave, goes_on)), branches])
        wave = _pick(wave, wave.arrival_s <= until_s)
    chains = Chains(np.concatenate(parents), np.concatenate(shared_tokens))
    return _join(waves or [wave]), chains


def _fates(
    rng: np.random.Generator, wave: _Prompts, users: _Users
) -> tuple[np.ndarray, np.ndarray]:
    """Which requests are continued, and which others are branched, bool[R] each."""
    continue_p = users.continue_p[np.minimum(wave.turn, len(users.continue_p)) - 1]
    factor = steps(facts.CONTINUE_FACTOR, wave.input_tokens)
    factor = np.where(wave.branch, facts.CONTINUE_FACTOR_BRANCH, factor)
    continue_p = continue_p * np.where(wave.turn == 1, factor, 1.0)
    branch_p = users.branch_p * steps(facts.BRANCH_FACTOR, wave.input_tokens)
    branch_p = np.where(wave.branch, users.rebranch_p, branch_p)
    goes_on = rng.random(len(wave.chain)) < continue_p
    long_enough = wave.input_tokens >= facts.SHORTEST_BRANCH_TOKENS
    leaves = ~goes_on & long_enough & (rng.random(len(wave.chain)) < branch_p)
    return goes_on, leaves


def _follow_up(rng: np.random.Generator, before: _Prompts) -> _Prompts:
    """The next turn of each: all that was said, the answer, and something new."""
    size = len(before.chain)
    turn = before.turn + 1
    document_p = steps(facts.DOCUMENT_SHARE, turn)
    document_p = document_p * steps(facts.DOCUMENT_FACTOR, before.input_tokens)
    document = rng.random(size) < document_p
    new_tokens = np.where(
        document,
        draw_quantiles(rng, facts.DOCUMENT_TOKENS, size),
        rng.lognormal(*facts.MESSAGE_TOKENS_LN, size),
    )
    tokens = before.input_tokens + before.output_tokens + np.ceil(new_tokens)
    longest = np.maximum(before.input_tokens, facts.LONGEST_PROMPT_TOKENS)
    return before._replace(
        turn=turn,
        arrival_s=before.arrival_s + draw_quantiles(rng, facts.FOLLOW_UP_GAP_S, size),
        input_tokens=np.minimum(tokens, longest).astype(np.int64),
        output_tokens=draw_tokens(rng, facts.OUTPUT_TOKENS, size),
    )


def _branch_off(
    rng: np.random.Generator, left: _Prompts, first_chain: int
) -> tuple[_Prompts, np.ndarray]:
    """A new session from each request, and the tokens i64[R] it has in common."""
    size = len(left.chain)
    kept = left.input_tokens * draw_quantiles(rng, facts.BRANCH_SHARE, size)
    common = np.maximum(kept, facts.SHORTEST_BRANCH_TOKENS).astype(np.int64)
    length = left.input_tokens * rng.lognormal(*facts.BRANCH_LENGTH_LN, size)
    message = np.ceil(rng.lognormal(*facts.MESSAGE_TOKENS_LN, size))
    longest = np.maximum(left.input_tokens, facts.LONGEST_PROMPT_TOKENS)
    tokens = np.minimum(np.maximum(length, common + message), longest)
    branches = left._replace(
        chain=first_chain + np.arange(size),
        turn=np.ones(size, np.int64),
        branch=np.ones(size, bool),
        arrival_s=left.arrival_s + draw_quantiles(rng, facts.FOLLOW_UP_GAP_S, size),
        input_tokens=tokens.astype(np.int64),
        output_tokens=draw_tokens(rng, facts.OUTPUT_TOKENS, size),
    )
    return branches, common


def _window(sent: _Prompts, requests: int) -> _Prompts:
    """The first `requests` requests after the warm-up, by time."""
    shown = np.flatnonzero(sent.arrival_s >= 0)
    order = shown[np.argsort(sent.arrival_s[shown], kind="stable")]
    return _pick(sent, order[:requests])


def _pick(prompts: _Prompts, rows: np.ndarray) -> _Prompts:
    return _Prompts(*(column[rows] for column in prompts))


def _join(parts: list[_Prompts]) -> _Prompts:
    return _Prompts(*(np.concatenate(column) for column in zip(*parts, strict=True)))
