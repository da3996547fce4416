"""Coding agents like Claude Code: long prompts that grow with every tool result.

A call ends with a tool's use, after which the next call comes soon and almost surely,
or with the end of a turn, after which a person reads, thinks, and may not come back.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perc.errors import InputError
from perc.workloads import agent_facts as facts
from perc.workloads.arguments import at_least, describe, positive, probabilities
from perc.workloads.chains import Chains, block_ids
from perc.workloads.sampling import (
    draw_poisson_arrivals,
    draw_quantiles,
    draw_ranks,
    draw_tokens,
    zipf_shares,
)

if TYPE_CHECKING:
    from perc.types import Trace


def agent(
    *,
    requests: int = 5_000,
    seed: int = 0,
    sessions_per_h: float = 17.6,
    end_turn_p: float = 0.047,
    tool_return_p: float = 0.99,
    user_return_p: float = 0.86,
    subagent_p: float = 0.0017,
    system_prompts: int = 12,
    system_tokens: tuple[int, int] = (11_000, 20_000),
    subagent_system_tokens: int = 10_500,
    context_tokens: int = 160_000,
    block_tokens: int = 512,
) -> "Trace":
    """Sessions of coding agents, from an empty start on.

    Args:
        requests: calls of the trace, those of sub-agents included.
        seed: of all random draws; the same arguments give the same trace.
        sessions_per_h: new sessions that begin an hour.
        end_turn_p: probability that a call ends the turn and does not use a tool.
        tool_return_p: probability that another call follows on a tool's use.
        user_return_p: probability that another call follows on the end of a turn.
        subagent_p: probability that a tool's use is a sub-agent, which has a prefix
            and a session of its own; its caller waits for it.
        system_prompts: different beginnings (tools and system prompt), one a
            session, Zipf-popular; sessions with the same one share its blocks.
        system_tokens: the shortest and the longest of them.
        subagent_system_tokens: the beginning that all sub-agents share.
        context_tokens: a prompt that would be longer is compacted: a summary takes
            the place of all that stands behind the system prompt.
        block_tokens: tokens of a block.

    Returns:
        The trace; the kind of a request is how it stops, "tool_use" or "end_turn".

    Raises:
        InputError: if an argument is out of range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    source = describe(agent, locals())
    at_least(0, requests=requests, seed=seed, system_tokens=system_tokens[0])
    at_least(system_tokens[0], longest_system_tokens=system_tokens[1])
    at_least(0, subagent_system_tokens=subagent_system_tokens)
    at_least(1, system_prompts=system_prompts, block_tokens=block_tokens)
    at_least(system_tokens[1] + 1, context_tokens=context_tokens)
    positive(sessions_per_h=sessions_per_h)
    probabilities(end_turn_p=end_turn_p, tool_return_p=tool_return_p)
    probabilities(user_return_p=user_return_p, subagent_p=subagent_p)
    if end_turn_p * (1 - user_return_p) + (1 - end_turn_p) * (1 - tool_return_p) <= 0:
        raise InputError(
            "no session would ever end; let user_return_p or tool_return_p be below 1."
        )
    rng = np.random.default_rng(seed)
    agents = _Agents(
        end_turn_p, tool_return_p, user_return_p, subagent_p, context_tokens
    )
    prompts = rng.integers(*system_tokens, size=system_prompts, endpoint=True)
    systems = np.r_[prompts, subagent_system_tokens]
    begin_s = draw_poisson_arrivals(
        rng, sessions_per_h / 3_600, _enough_sessions(agents, requests)
    )
    calls = _run(rng, begin_s, agents, systems)
    calls = _pick(calls, np.argsort(calls.arrival_s, kind="stable")[:requests])
    chains, chain = _chains(calls, systems)
    ids, lengths = block_ids(chains, chain, calls.input_tokens, block_tokens)
    columns = Columns(
        arrival_s=calls.arrival_s,
        input_tokens=calls.input_tokens,
        output_tokens=calls.output_tokens,
        ids=ids,
        lengths=lengths,
        session=calls.session,
        kind=np.where(calls.end_turn, "end_turn", "tool_use"),
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)


class _Agents(NamedTuple):
    """How they behave; see `agent`."""

    end_turn_p: float
    tool_return_p: float
    user_return_p: float
    subagent_p: float
    context_tokens: int


class _Calls(NamedTuple):
    """Calls, one entry each."""

    session: np.ndarray  # i64, the agent run, sub-agents have their own
    compaction: np.ndarray  # i64, how often its text was begun anew
    system: np.ndarray  # i64, which system prompt
    arrival_s: np.ndarray  # f64
    input_tokens: np.ndarray  # i64
    output_tokens: np.ndarray  # i64
    end_turn: np.ndarray  # bool


def _enough_sessions(agents: _Agents, requests: int) -> int:
    """Sessions that have `requests` calls together, with a margin of 7 sigma."""
    tool, end = 1 - agents.end_turn_p, agents.end_turn_p
    stop_p = 1 - tool * agents.tool_return_p - end * agents.user_return_p
    return min(requests, int(2 * requests * stop_p) + 50)


def _run(
    rng: np.random.Generator,
    begin_s: np.ndarray,
    agents: _Agents,
    systems: np.ndarray,
) -> _Calls:
    """All calls of all sessions, wave after wave: the n-th calls, then the next."""
    size = len(begin_s)
    system = draw_ranks(rng, zipf_shares(1.0, len(systems) - 1), size)
    opening = draw_tokens(rng, facts.OPENING_TOKENS, size)
    opening = np.minimum(systems[system] + opening, agents.context_tokens)
    wave = _calls(rng, np.arange(size), system, begin_s, opening, agents.end_turn_p)
    waves, n_sessions = [wave], size
    while len(wave.session):
        subagents, busy_s = _subagents(rng, wave, agents, systems, n_sessions)
        n_sessions += int(np.count_nonzero(busy_s))
        wave = _next_calls(rng, wave, agents, systems, busy_s)
        waves += [subagents, wave]
    return _Calls(*(np.concatenate(column) for column in zip(*waves, strict=True)))


def _calls(
    rng: np.random.Generator,
    session: np.ndarray,
    system: np.ndarray,
    arrival_s: np.ndarray,
    input_tokens: np.ndarray,
    end_turn_p: float,
) -> _Calls:
    """Calls of texts that were not compacted yet."""
    size = len(session)
    return _Calls(
        session=session,
        compaction=np.zeros(size, np.int64),
        system=system,
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=draw_tokens(rng, facts.OUTPUT_TOKENS, size),
        end_turn=rng.random(size) < end_turn_p,
    )


def _next_calls(
    rng: np.random.Generator,
    wave: _Calls,
    agents: _Agents,
    systems: np.ndarray,
    busy_s: np.ndarray,
) -> _Calls:
    """The next call of each session that goes on, after its tool or its user."""
    return_p = np.where(wave.end_turn, agents.user_return_p, agents.tool_return_p)
    goes_on = rng.random(len(return_p)) < return_p
    wave, busy_s = _pick(wave, goes_on), busy_s[goes_on]
    size = len(busy_s)
    tool_s = np.maximum(draw_quantiles(rng, facts.TOOL_GAP_S, size), busy_s)
    user_s = draw_quantiles(rng, facts.USER_GAP_S, size)
    growth = draw_tokens(rng, facts.GROWTH_TOKENS, size)
    tokens = wave.input_tokens + np.maximum(growth, wave.output_tokens)
    full = tokens > agents.context_tokens
    short = systems[wave.system] + draw_tokens(rng, facts.SUMMARY_TOKENS, size)
    arrival_s = wave.arrival_s + np.where(wave.end_turn, user_s, tool_s)
    tokens = np.where(full, np.minimum(short, agents.context_tokens), tokens)
    after = _calls(rng, wave.session, wave.system, arrival_s, tokens, agents.end_turn_p)
    return after._replace(compaction=wave.compaction + full)


def _subagents(
    rng: np.random.Generator,
    wave: _Calls,
    agents: _Agents,
    systems: np.ndarray,
    first_session: int,
) -> tuple[_Calls, np.ndarray]:
    """All calls of the sub-agents that a wave starts, and the wait f64[R] for them."""
    starts = ~wave.end_turn & (rng.random(len(wave.session)) < agents.subagent_p)
    size = int(np.count_nonzero(starts))
    n_calls = draw_tokens(rng, facts.SUBAGENT_CALLS, size)
    first = np.cumsum(n_calls) - n_calls
    session = np.repeat(np.arange(size), n_calls)
    total = len(session)
    gap_s = draw_quantiles(rng, facts.SUBAGENT_GAP_S, total)
    growth = draw_tokens(rng, facts.SUBAGENT_GROWTH_TOKENS, total)
    task = systems[-1] + draw_tokens(rng, facts.SUBAGENT_TASK_TOKENS, size)
    system = np.full(total, len(systems) - 1)
    calls = _calls(
        rng, first_session + session, system, np.zeros(total), task[session], 0.0
    )
    growth = np.maximum(growth, calls.output_tokens)
    # What came before a call in its own run: all sums, less those at its first call.
    waited_s, grown = np.cumsum(gap_s) - gap_s, np.cumsum(growth) - growth
    waited_s -= waited_s[first][session]
    grown -= grown[first][session]
    last = first + n_calls - 1
    calls.end_turn[last] = True
    busy_s = np.zeros(len(starts))
    busy_s[starts] = waited_s[last] + gap_s[last]
    calls = calls._replace(
        arrival_s=wave.arrival_s[starts][session] + waited_s,
        input_tokens=np.minimum(calls.input_tokens + grown, agents.context_tokens),
    )
    return calls, busy_s


def _chains(calls: _Calls, systems: np.ndarray) -> tuple[Chains, np.ndarray]:
    """The texts: system prompts first, then one for each session and compaction."""
    key = np.column_stack([calls.session, calls.compaction])
    _, first, chain = np.unique(key, axis=0, return_index=True, return_inverse=True)
    parent = calls.system[first]
    chains = Chains(
        parent=np.r_[np.full(len(systems), -1), parent],
        shared_tokens=np.r_[np.zeros(len(systems), np.int64), systems[parent]],
    )
    return chains, len(systems) + chain


def _pick(calls: _Calls, rows: np.ndarray) -> _Calls:
    return _Calls(*(column[rows] for column in calls))
